//! The programs that are needed beside cargo, and how to get them.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::step;

/// Makes sure of a C compiler with its headers, with which the bundled SQLite is built.
pub(crate) fn need_c_compiler() -> Result<(), String> {
    const PACKAGES: [&str; 2] = ["gcc", "libc6-dev"];
    if compiles_c() {
        return Ok(());
    }
    if let Ok(compiler) = std::env::var("CC") {
        return Err(format!("the variable CC names `{compiler}`, which does not compile C"));
    }
    if !Path::new("/etc/debian_version").exists() {
        return Err(
            "a C compiler with its headers is missing (`cc`): install your system's, then run \
             this again"
                .to_owned(),
        );
    }
    let by_hand = format!(
        "a C compiler is missing. Run this, then try again:\n\
         \u{20} apt-get update && apt-get install -y {}",
        PACKAGES.join(" ")
    );
    if step::output(Command::new("id").arg("-u"))?.trim() != "0" {
        return Err(format!("{by_hand}\n(as root)"));
    }
    eprintln!("xtask: a C compiler is missing, installing {}", PACKAGES.join(" and "));
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    step::run(apt().arg("update"))?;
    step::run(apt().args(["install", "-y", "--no-install-recommends"]).args(PACKAGES))?;
    if compiles_c() { Ok(()) } else { Err(by_hand) }
}

fn compiles_c() -> bool {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let compile = format!("echo 'int main(void) {{ return 0; }}' | {compiler} -include stdio.h ");
    let mut shell = Command::new("sh");
    shell.args(["-c", &(compile + "-fsyntax-only -xc -")]).stdin(Stdio::null());
    step::succeeds(&mut shell)
}

/// Makes sure of a component of the Rust toolchain, such as `fmt` (in `rustfmt`).
pub(crate) fn need_component(subcommand: &str, component: &str) -> Result<(), String> {
    if step::succeeds(step::cargo().args([subcommand, "--version"])) {
        return Ok(());
    }
    eprintln!("xtask: `cargo {subcommand}` is missing, adding the component {component}");
    step::run(Command::new("rustup").args(["component", "add", component])).map_err(|error| {
        format!("{error}\n`cargo {subcommand}` is needed: install {component} for this toolchain")
    })
}
