//! The two makes of servers, and the differences between them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::process::find;

/// The variable that names a MySQL server by its absolute path. The tests then use it instead of
/// MariaDB.
const VARIABLE: &str = "LEASEHOLD_TEST_MYSQLD";

/// The package of Debian and Ubuntu.
const PACKAGE: &str = "mariadb-server";

/// The make of the server program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Make {
    MariaDb,
    Mysql(PathBuf),
}

impl Make {
    /// The make that the tests use.
    pub(super) fn of_tests() -> Self {
        std::env::var_os(VARIABLE).map_or(Self::MariaDb, |path| Self::Mysql(path.into()))
    }

    /// The program with the settings that only this make knows.
    pub(super) fn server(&self) -> Command {
        match self {
            Self::MariaDb => {
                let mut command = of_mariadb("mariadbd");
                command.arg("--innodb-log-file-size=8M");
                command
            }
            Self::Mysql(program) => mysqld(program),
        }
    }

    /// The settings for a server without TLS.
    pub(super) const fn without_tls(&self) -> &'static [&'static str] {
        match self {
            Self::MariaDb => &["--skip-ssl"],
            Self::Mysql(_) => &["--tls-version="],
        }
    }

    /// The program that makes the tables of the server, which have no passwords.
    pub(super) fn install(&self) -> Command {
        match self {
            Self::MariaDb => {
                let mut command = of_mariadb("mariadb-install-db");
                command.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
                command
            }
            Self::Mysql(program) => {
                let mut command = mysqld(program);
                command.arg("--initialize-insecure");
                command
            }
        }
    }
}

/// A program of MariaDB, which finds the files beside it.
fn of_mariadb(name: &str) -> Command {
    let (program, prefix) = with_prefix(&find(name, PACKAGE));
    let mut command = Command::new(program);
    command.arg("--no-defaults").arg(format!("--basedir={}", prefix.display()));
    command
}

fn mysqld(program: &Path) -> Command {
    let (program, prefix) = with_prefix(program);
    let mut command = Command::new(program);
    command.args(["--no-defaults", "--secure-file-priv=NULL", "--mysqlx=OFF"]);
    let share = prefix.join("share/mysql");
    command.arg(format!("--lc-messages-dir={}", share.display()));
    command.arg(format!("--character-sets-dir={}", share.join("charsets").display()));
    command.arg(format!("--plugin-dir={}", prefix.join("lib/mysql/plugin").display()));
    command
}

/// A program, and the folder that has its `bin` or `sbin`.
fn with_prefix(program: &Path) -> (PathBuf, PathBuf) {
    let program = program.canonicalize().expect("it was found");
    let prefix = program.parent().and_then(Path::parent).expect("it lies in PREFIX/sbin");
    (program.clone(), prefix.to_owned())
}
