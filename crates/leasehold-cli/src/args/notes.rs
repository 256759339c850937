//! The text at the end of the help of a command.

/// The end of `run --help`.
pub(super) const RUN: &str = "\
CMD runs without a shell. For pipes, builtins and variables write  -- sh -c '...'
The lock is held until CMD and every process that it left in the background have ended.
Several names are taken together or not at all. They may be in any order: no deadlock is possible.
If one lock is lost, CMD is stopped.
CMD finds LEASEHOLD_NAME, _TOKEN, _FENCE, _TTL_MS, _EXPIRES_AT_MS and _STORE in its environment.
With several names, _NAME, _TOKEN and _FENCE have one line for each lock. CMD also finds
LEASEHOLD_URL (or _URL_FILE) and LEASEHOLD_NAMESPACE: with them, a nested leasehold reaches the same
locks.
Below a `run` that holds NAME, `run NAME` joins that lock: it changes nothing at the store, and CMD
is stopped together with the outer CMD. The inner run uses only its flags --shared, --permits and
--weight, which must fit the lock of the outer run. It refuses --once-per and --max-hold.";

/// The end of `elect --help`.
pub(super) const ELECT: &str = "\
One instance leads and runs CMD. The others wait in line, and the next one leads if the first fails.
CMD runs as under `leasehold run`, and its LEASEHOLD_FENCE is the term. If CMD exits with 0, so does
its instance. If CMD fails, its instance resigns, and campaigns again after a pause of 1s to 1m.
If the term is lost, CMD is stopped and killed before another instance leads.";

/// The end of `acquire --help`.
pub(super) const ACQUIRE: &str = "\
Prints lines for a shell: export LEASEHOLD_NAME=..., LEASEHOLD_TOKEN=..., LEASEHOLD_FENCE=...,
LEASEHOLD_TTL_MS=... `eval` hides a failure, so store the lines first:
  out=$(leasehold acquire NAME --ttl 1m) || exit; eval \"$out\"
  leasehold renew NAME      # again and again; with the same ttl
  leasehold release NAME
Two locks in one shell: keep the token of each, since the second overwrites LEASEHOLD_TOKEN:
  out=$(leasehold acquire a --ttl 1m) || exit; eval \"$out\"; a=$LEASEHOLD_TOKEN
  out=$(leasehold acquire b --ttl 1m) || exit; eval \"$out\"; b=$LEASEHOLD_TOKEN
  LEASEHOLD_TOKEN=$b leasehold release b
  LEASEHOLD_TOKEN=$a leasehold release a";

/// The end of `doctor --help`.
pub(super) const DOCTOR: &str = "\
Writes keys of its own, which begin with leasehold:probe: or the namespace, and removes them.
Takes at most 10 s, or longer with a longer connect_timeout in a URL.
If the user lacks the right for a check, the check is UNKNOWN, and names the right.
Exit codes: 0 nothing failed, 1 a check was not fine and --strict, 2 a check failed.";

/// The end of `migrate --help`.
pub(super) const MIGRATE: &str = "\
Run it once for each database and schema, and again after an update of leasehold, before you replace
the programs. It needs a user who may create the tables, and changes nothing if all is there. Locks
may be in use. It says which builds may go on. It refuses tables of a newer version.
Other users need less. On PostgreSQL:
  GRANT USAGE ON SCHEMA leasehold TO app;
  GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO app;
On MySQL and MariaDB, where the database is called app:
  GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON app.* TO app;
Other stores need no tables: migrate ends with 78 there.";

/// The end of `strict --help`.
pub(super) const STRICT: &str = "\
A strict server that may have forgotten its leases grants nothing new for 65 s. All clients of a
database must be strict. So you switch the database itself, and it records who did so, when and why.
A client may demand a mode in its URL: `?strict=yes` or `?strict=no`. Otherwise it follows the
database. Name all servers of a quorum, each by --url. You may repeat the commands.";
