//! The program `chaos`: a short run, and bad arguments.

use std::process::{Command, Output};

use serde_json::Value;

fn chaos(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chaos"));
    command.args(args).output().expect("it starts")
}

#[test]
fn a_short_run_keeps_the_promises_and_leaves_a_record() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("record.json");
    let kinds = "reset,reply-lost,script-flush,server-stop,client-crash,restart-empty";
    let mut args = vec!["--minutes", "0.1", "--worlds", "2", "--without-run"];
    args.extend(["--kinds", kinds, "--commit", "abc", "--json", path.to_str().expect("UTF-8")]);
    let done = chaos(&args);
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    let record = std::fs::read_to_string(path).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    assert_eq!(record["schema"], "leasehold.trust.chaos.v1");
    assert_eq!(record["commit"], "abc");
    assert!(record["granted"].as_u64() > Some(0), "{record}");
    assert!(record["acquisitions"].as_u64() >= record["granted"].as_u64(), "{record}");
    assert!(record["shares_granted"].as_u64() > Some(0), "{record}");
    assert!(record["calm_s"].is_u64() && record["killed_runs"] == 0, "{record}");
    let faults = record["faults"].as_object().expect("faults by kind");
    assert_eq!(faults.len(), 6, "{record}");
    let injected: u64 = faults.values().filter_map(|fault| fault["injected"].as_u64()).sum();
    assert!(injected > 0, "{record}");
    assert_eq!(record["violations_in_model"], serde_json::json!({}));
}

/// A run of no minutes starts no server. It runs without the right to mount a disk.
#[test]
fn a_fault_that_cannot_be_injected_here_is_named_and_not_left_out_in_silence() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("record.json");
    let mut command = Command::new("setpriv");
    if rustix::process::geteuid().is_root() {
        command.arg("--bounding-set=-sys_admin");
    }
    command.arg(env!("CARGO_BIN_EXE_chaos")).args(["--minutes", "0", "--without-run"]);
    command.args(["--kinds", "reset,disk-full", "--json"]).arg(&path);
    let done = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    let lines = said.lines().filter(|line| line.starts_with("`disk-full` is not part of this run"));
    assert_eq!(lines.count(), 2, "at the beginning and at the end: {said}");
    let record = std::fs::read_to_string(path).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    let reason = record["left_out"]["disk-full"].as_str().expect("a reason");
    assert!(reason.contains("no disk can be mounted here"), "{reason}");
    let faults: Vec<_> = record["faults"].as_object().expect("faults").keys().collect();
    assert_eq!(faults, ["reset"]);
}

#[test]
fn arguments_that_do_not_read_are_refused() {
    for (args, complaint) in [
        (&["--kinds", "reset,plague"][..], "invalid value 'plague' for '--kinds"),
        (&["--minutes", "1000"], "0 to 120 minutes"),
        (&["--minutes"], "a value is required for '--minutes"),
        (&["--kinds", "run-stop"], "no fault is left"),
    ] {
        let done = chaos(&[&["--without-run"], args].concat());
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!((done.status.code(), said.contains(complaint)), (Some(2), true), "{said}");
    }
}
