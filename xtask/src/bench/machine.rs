//! The machine of a run, in general terms.

use std::process::Command;

use serde_json::{Value, json};

use crate::step;

/// Describes the machine.
pub(super) fn describe() -> Result<Value, String> {
    let cores = std::thread::available_parallelism().map_err(|error| error.to_string())?;
    let kernel = step::output(Command::new("uname").args(["-s", "-r"]))?;
    let server = step::output(Command::new("redis-server").arg("--version"))?;
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let processor = processor(&read("/proc/cpuinfo"));
    Ok(json!({
        "cores": cores.get(),
        "processor": processor.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        "kernel": general(&kernel),
        "server": version(&server).ok_or("the server does not say its version")?,
        "load": load(&read("/proc/loadavg")).unwrap_or(0.0),
    }))
}

/// The name and the first two numbers. The rest is specific to one build of the kernel.
fn general(kernel: &str) -> String {
    let mut words = kernel.split_whitespace();
    let (name, release) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let numbers: Vec<&str> = release.split(['.', '-']).take(2).collect();
    format!("{name} {}", numbers.join("."))
}

fn version(server: &str) -> Option<String> {
    let name = server.split_whitespace().next()?;
    let version = server.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
    Some(format!("{name} {version}"))
}

fn processor(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The load average of the last minute.
fn load(loadavg: &str) -> Option<f64> {
    loadavg.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_in_general_terms() {
        assert_eq!(general("Linux 6.18.44-cloud-amd64\n"), "Linux 6.18");
        assert_eq!(general("Darwin 25.1"), "Darwin 25.1");
        let server = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64";
        assert_eq!(version(server).as_deref(), Some("Redis 7.0.15"));
        assert_eq!(version("no server"), None);
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD EPYC\n";
        assert_eq!(processor(cpuinfo).as_deref(), Some("AMD EPYC"));
        assert_eq!(load("0.25 1.00 2.00 1/99 7\n"), Some(0.25));
    }
}
