//! What only a server does to the command.
