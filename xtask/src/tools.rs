//! The programs that are needed in addition to cargo, and how to get them.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::step;

/// A program that packages of the system provide. Tests start private servers, and do not touch a
/// running server of the system.
pub(crate) struct Need {
    /// Its name in messages.
    what: &'static str,
    /// The packages of Debian and Ubuntu.
    packages: &'static [&'static str],
    is_there: fn() -> bool,
    /// A step that root takes before the packages are installed.
    before: Option<fn() -> Result<(), String>>,
}

const C_COMPILER: Need =
    Need::new("a C compiler with its headers (`cc`)", &["gcc", "libc6-dev"], compiles_c);

pub(crate) const REDIS_SERVER: Need =
    Need::new("a Redis server (`redis-server`)", &["redis-server"], runs_redis_server);

const POSTGRES: Need = Need {
    before: Some(forbid_a_cluster),
    ..Need::new("a PostgreSQL server (`initdb` and `postgres`)", &["postgresql"], has_postgres)
};

const PGBOUNCER: Need =
    Need::new("a pooler for PostgreSQL (`pgbouncer`)", &["pgbouncer"], has_pgbouncer);

pub(crate) const MARIADB: Need = Need::new(
    "a MariaDB server (`mariadbd` and `mariadb-install-db`)",
    &["mariadb-server"],
    has_mariadb,
);

pub(crate) const ETCD: Need = Need::new("an etcd server (`etcd`)", &["etcd-server"], has_etcd);

pub(crate) const ZOOKEEPER: Need = Need::new(
    "a ZooKeeper server (`/usr/share/java/zookeeper.jar`) and Java",
    &["zookeeper"],
    has_zookeeper,
);

pub(crate) const PIP: Need =
    Need::new("the package installer of Python (`python3 -m pip`)", &["python3-pip"], runs_pip);

/// Makes sure that there is a C compiler with its headers, for the bundled SQLite.
pub(crate) fn need_c_compiler() -> Result<(), String> {
    if let (Ok(compiler), false) = (std::env::var("CC"), compiles_c()) {
        return Err(format!("the variable CC names `{compiler}`, which does not compile C"));
    }
    C_COMPILER.get()
}

/// Makes sure that there are a PostgreSQL server and a pooler.
pub(crate) fn need_postgres() -> Result<(), String> {
    POSTGRES.get()?;
    PGBOUNCER.get()
}

/// Whether to install a program. An error tells the user to do it.
fn is_ours_to_install(
    need: &Need,
    is_there: bool,
    is_debian: bool,
    is_root: bool,
) -> Result<bool, String> {
    match (is_there, is_debian, is_root) {
        (true, ..) => Ok(false),
        (false, true, true) => Ok(true),
        (false, true, false) => Err(by_hand(need)),
        (false, false, _) => {
            Err(format!("{} is missing: install your system's, then run this again", need.what))
        }
    }
}

fn by_hand(need: &Need) -> String {
    format!(
        "{} is missing. Run this as root, then try again:\n\
         \u{20} apt-get update && apt-get install -y --no-install-recommends {}",
        need.what,
        need.packages.join(" ")
    )
}

impl Need {
    const fn new(
        what: &'static str,
        packages: &'static [&'static str],
        is_there: fn() -> bool,
    ) -> Self {
        Self { what, packages, is_there, before: None }
    }

    /// Makes sure that it is there.
    pub(crate) fn get(&self) -> Result<(), String> {
        let is_debian = Path::new("/etc/debian_version").exists();
        if is_ours_to_install(self, (self.is_there)(), is_debian, is_root())? {
            return install(self);
        }
        Ok(())
    }
}

fn install(need: &Need) -> Result<(), String> {
    eprintln!("xtask: {} is missing, installing {}", need.what, need.packages.join(" and "));
    step::run(&mut apt_get("update"))?;
    if let Some(before) = need.before {
        before()?;
    }
    step::run(apt_get("install").args(AS_GIVEN).args(need.packages))?;
    if (need.is_there)() { Ok(()) } else { Err(by_hand(need)) }
}

/// Installs without questions, and only the named packages.
const AS_GIVEN: [&str; 2] = ["-y", "--no-install-recommends"];

fn apt_get(order: &str) -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").arg(order);
    command
}

fn is_root() -> bool {
    step::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

fn runs_redis_server() -> bool {
    step::succeeds(Command::new("redis-server").arg("--version"))
}

/// The folder in which Debian and Ubuntu have PostgreSQL, by version.
const POSTGRES_HOME: &str = "/usr/lib/postgresql";

fn has_postgres() -> bool {
    let versions = std::fs::read_dir(POSTGRES_HOME).into_iter().flatten().flatten();
    let mut programs = versions.map(|version| version.path().join("bin"));
    programs.any(|bin| bin.join("initdb").is_file() && bin.join("postgres").is_file())
        || step::succeeds(Command::new("initdb").arg("--version"))
}

fn has_pgbouncer() -> bool {
    // Debian keeps it in a folder that only the PATH of root contains.
    Path::new("/usr/sbin/pgbouncer").is_file()
        || step::succeeds(Command::new("pgbouncer").arg("--version"))
}

/// Tells the package not to make and start a database of the system.
fn forbid_a_cluster() -> Result<(), String> {
    step::run(apt_get("install").args(AS_GIVEN).arg("postgresql-common"))?;
    let settings = Path::new("/etc/postgresql-common/createcluster.conf");
    let fail = |error| format!("cannot change {}: {error}", settings.display());
    let before = std::fs::read_to_string(settings).unwrap_or_default();
    std::fs::write(settings, before + "\ncreate_main_cluster = false\n").map_err(fail)
}

fn has_mariadb() -> bool {
    // Debian keeps the server in a folder that only the PATH of root contains.
    let is_there = |program: &str| {
        ["/usr/sbin", "/usr/bin"].iter().any(|bin| Path::new(bin).join(program).is_file())
            || step::succeeds(Command::new(program).arg("--version"))
    };
    ["mariadbd", "mariadb-install-db", "mariadb"].into_iter().all(is_there)
}

fn has_etcd() -> bool {
    step::succeeds(Command::new("etcd").arg("--version"))
}

fn has_zookeeper() -> bool {
    let jars = ["zookeeper", "slf4j-simple"];
    let mut jars = jars.map(|name| format!("/usr/share/java/{name}.jar")).into_iter();
    jars.all(|jar| Path::new(&jar).is_file())
        && step::succeeds(Command::new("java").arg("-version"))
}

/// The package installer of Python.
pub(crate) fn pip() -> Command {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip"]);
    pip
}

fn runs_pip() -> bool {
    step::succeeds(pip().arg("--version"))
}

fn compiles_c() -> bool {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let compile = format!("echo 'int main(void) {{ return 0; }}' | {compiler} -include stdio.h ");
    let mut shell = Command::new("sh");
    shell.args(["-c", &(compile + "-fsyntax-only -xc -")]).stdin(Stdio::null());
    step::succeeds(&mut shell)
}

/// Makes sure that there is a component of the Rust toolchain, such as `fmt` (in `rustfmt`).
pub(crate) fn need_component(subcommand: &str, component: &str) -> Result<(), String> {
    if step::succeeds(step::cargo().args([subcommand, "--version"])) {
        return Ok(());
    }
    eprintln!("xtask: `cargo {subcommand}` is missing, adding the component {component}");
    step::run(Command::new("rustup").args(["component", "add", component])).map_err(|error| {
        format!("{error}\n`cargo {subcommand}` is needed: install {component} for this toolchain")
    })
}

/// The command of cargo-deny, which is installed below `target/` if it is missing.
pub(crate) fn cargo_deny() -> Result<Command, String> {
    let home = crate::root().join("target/tools");
    let mut install = step::cargo();
    install.args(["install", "--quiet", "--locked", "cargo-deny", "--version", "0.20.2"]);
    // Without optimisation it compiles in a third of the time, and still checks in seconds.
    install.args(["--debug", "--config", "profile.dev.debug=false", "--root"]).arg(&home);
    step::run(&mut install)?;
    let mut deny = Command::new(home.join("bin/cargo-deny"));
    deny.current_dir(crate::root());
    Ok(deny)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_on_debian_installs_missing_tools_and_others_are_told_to() {
        // there, on Debian, as root, what is done
        let table = [
            (true, false, false, Ok(false)),
            (true, true, true, Ok(false)),
            (false, true, true, Ok(true)),
            (false, true, false, Err("apt-get install -y --no-install-recommends redis-server")),
            (false, false, true, Err("(`redis-server`) is missing: install your system's")),
            (false, false, false, Err("(`redis-server`) is missing: install your system's")),
        ];
        for (is_there, is_debian, is_root, expected) in table {
            match (is_ours_to_install(&REDIS_SERVER, is_there, is_debian, is_root), expected) {
                (Err(text), Err(part)) => assert!(text.contains(part), "{text}"),
                (ours, expected) => {
                    assert_eq!(ours, expected.map_err(str::to_owned), "{is_debian} {is_root}");
                }
            }
        }
    }
}
