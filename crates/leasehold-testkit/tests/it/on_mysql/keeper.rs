//! Another transaction that keeps the rows of locks locked.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use leasehold_testkit::servers::{MysqlDatabase, MysqlServer};

/// Keeps the rows of some locks locked until it is dropped.
pub(super) struct Keeper(Child);

impl Keeper {
    pub(super) fn of(database: &MysqlDatabase, names: &[&str]) -> Self {
        let names = names.join("', '");
        Self::of_rows(database, &format!("name FROM leasehold_locks WHERE name IN ('{names}')"))
    }

    /// Locks the rows that `SELECT` with this text finds.
    pub(super) fn of_rows(database: &MysqlDatabase, rows: &str) -> Self {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--user=root", "--unbuffered"]);
        command.arg(format!("--socket={}", MysqlServer::shared().socket().display()));
        command.arg(database.name()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        // At the default level, it would also lock each row that it looks at.
        let level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
        let sql = format!("{level}; BEGIN; SELECT {rows} FOR UPDATE;\n");
        let pipe = child.stdin.as_mut().expect("it was asked for");
        pipe.write_all(sql.as_bytes()).expect("it reads");
        // The program prints the rows once it has locked them.
        let stdout = child.stdout.as_mut().expect("it was asked for");
        BufReader::new(stdout).lines().next().expect("a line").expect("text");
        Self(child)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The transaction ends when the program's input ends.
        drop(self.0.stdin.take());
        let _status = self.0.wait();
    }
}
