//! Servers in packages of other Debian releases. They are unpacked together with their own
//! libraries, and started by their own loader, so that they run on this system.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::step;

/// A Debian package with a server.
pub(super) struct Package {
    /// The release of Debian, by its code name. A stable release keeps the version.
    pub(super) suite: &'static str,
    pub(super) name: &'static str,
    /// The paths of its programs, the server first.
    pub(super) programs: &'static [&'static str],
}

/// The keys of Debian, by which apt checks what it downloads.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where the libraries are in an unpacked root, and the loader of a newer Debian.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";

/// The loader of this system, for programs that are not newer.
const OWN_LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

impl Package {
    /// Downloads the package with its dependencies, and unpacks all. Puts a script in the place of
    /// each program, and links to the scripts into `bin/`. This needs no root rights, and apt sees
    /// nothing of this system.
    pub(super) fn unpack_into(&self, home: &Path) -> Result<(), String> {
        let fail = |error: std::io::Error| format!("cannot write to {}: {error}", home.display());
        // Remove what an earlier try may have left.
        fs::remove_dir_all(home).map_err(fail)?;
        for folder in ["lists/partial", "cache/archives/partial", "root"] {
            fs::create_dir_all(home.join(folder)).map_err(fail)?;
        }
        let source = format!("deb [signed-by={KEYS}] {} {} main\n", mirror()?, self.suite);
        fs::write(home.join("sources.list"), source).map_err(fail)?;
        fs::write(home.join("status"), "").map_err(fail)?;
        let settings = SETTINGS.replace("HOME", &home.display().to_string());
        fs::write(home.join("apt.conf"), settings).map_err(fail)?;
        let apt = |args: &[&str]| {
            let mut apt = Command::new("apt-get");
            step::run(apt.env("APT_CONFIG", home.join("apt.conf")).arg("-qq").args(args))
        };
        apt(&["update"])?;
        apt(&["install", "-y", "--download-only", self.name])?;
        let root = home.join("root");
        for entry in fs::read_dir(home.join("cache/archives")).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            if path.extension().is_some_and(|it| it == "deb") {
                step::run(Command::new("dpkg-deb").arg("-x").arg(path).arg(&root))?;
            }
        }
        fs::create_dir(home.join("bin")).map_err(fail)?;
        for program in self.programs {
            wrap(&root, program)?;
            symlink(root.join(program), home.join("bin").join(name_of(program))).map_err(fail)?;
        }
        Ok(())
    }

    /// The file name of the server.
    pub(super) fn server(&self) -> &'static str {
        name_of(self.programs[0])
    }
}

fn name_of(program: &'static str) -> &'static str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Puts a script in the place of a program. The script starts the program with its own libraries.
/// The program finds its files from the place of the script.
fn wrap(root: &Path, program: &str) -> Result<(), String> {
    let path = root.join(program);
    let fail = |error: std::io::Error| format!("cannot change {}: {error}", path.display());
    let start = fs::read(&path).map_err(fail)?;
    if !start.starts_with(b"\x7fELF") {
        return Ok(());
    }
    let itself = path.with_extension("itself");
    fs::rename(&path, &itself).map_err(fail)?;
    let loader = root.join(LOADER);
    let loader = if loader.exists() { loader } else { OWN_LOADER.into() };
    let script = format!(
        "#!/bin/sh\nexec '{}' --argv0 '{}' --library-path '{}' '{}' \"$@\"\n",
        loader.display(),
        path.display(),
        root.join(LIBRARIES).display(),
        itself.display(),
    );
    fs::write(&path, script).map_err(fail)?;
    step::run(Command::new("chmod").arg("+x").arg(path))
}

/// The settings of an apt that knows only the folder HOME.
const SETTINGS: &str = r#"Dir::State "HOME";
Dir::State::lists "HOME/lists";
Dir::State::status "HOME/status";
Dir::Cache "HOME/cache";
Dir::Etc::sourcelist "HOME/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Acquire::Languages "none";
APT::Install-Recommends "false";
APT::Sandbox::User "";
"#;

/// The mirror of Debian that this system uses.
fn mirror() -> Result<String, String> {
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", "$(SITE)", "Created-By: Packages"]);
    let sites = step::output(&mut apt)?;
    // Other sources are for security updates, or not from Debian.
    let mirror = sites.lines().find(|site| site.trim_end_matches('/').ends_with("/debian"));
    let mirror = mirror.filter(|_| Path::new(KEYS).exists()).ok_or(
        "this is not Debian, so its packages are not available; name a server in \
         LEASEHOLD_TEST_SERVER and run `cargo xtask test`",
    )?;
    Ok(mirror.to_owned())
}
