//! A server that is killed and restarted while processes contend for a lock.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_testkit::servers::RedisServer;
use rustix::process::Signal;

use crate::harness::{Running, World, finish, start, until};

const CONTENDERS: usize = 4;
const KILLS: usize = 6;
/// The most kills of a forgetful server until two contenders are seen at work at the same time.
const KILLS_MAX: usize = 60;

/// One contender: takes the lock and works under it again and again, until told to stop. Every step
/// is one line at the end of one file, so the order of the lines is the order of the steps. The
/// exit codes are kept for the end.
const CONTENDER: &str = "while [ ! -e $1/stop ]; do \
       echo $2 ask >> $1/log; \
       \"$0\" -q run x --ttl 1s -- sh -c \"$3\" sh $1 $2; \
       echo $? >> $1/codes; \
     done";

/// Half a second of work.
const WORK: &str = "i=0; while [ $i -lt 25 ]; do \
       echo $2 in $LEASEHOLD_FENCE >> $1/log; sleep 0.02; i=$((i+1)); \
     done; echo $2 out $LEASEHOLD_FENCE >> $1/log";

/// One step of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    contender: usize,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Ask,
    In(u64),
    Out(u64),
}

fn contenders(world: &World) -> Vec<Running> {
    let contender = |number: usize| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", CONTENDER, env!("CARGO_BIN_EXE_leasehold")]);
        command.arg(world.path("")).arg(number.to_string()).arg(WORK);
        command.env("LEASEHOLD_URL", world.url());
        start(command)
    };
    (0..CONTENDERS).map(contender).collect()
}

fn steps(world: &World) -> Vec<Step> {
    let log = world.read("log");
    // The last line may be incomplete.
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    let step = |line: &str| {
        let mut words = line.split(' ');
        let contender = words.next().and_then(|word| word.parse().ok()).expect("a number");
        let what = words.next().expect("a step");
        let fence = words.next().and_then(|word| word.parse().ok());
        let what = match what {
            "ask" => What::Ask,
            "in" => What::In(fence.expect("a fencing token")),
            _ => What::Out(fence.expect("a fencing token")),
        };
        Step { contender, what }
    };
    whole.lines().map(step).collect()
}

/// The fencing tokens under which work began.
fn fences(steps: &[Step]) -> BTreeSet<u64> {
    let fence = |step: &Step| match step.what {
        What::In(fence) => Some(fence),
        What::Ask | What::Out(_) => None,
    };
    steps.iter().filter_map(fence).collect()
}

/// The turns of work, in their order. If two contenders work at the same time, lower fencing tokens
/// follow higher ones.
fn turns(steps: &[Step]) -> Vec<u64> {
    let mut turns = Vec::new();
    for step in steps {
        if let What::In(fence) | What::Out(fence) = step.what
            && turns.last() != Some(&fence)
        {
            turns.push(fence);
        }
    }
    turns
}

fn is_one_after_the_other(turns: &[u64]) -> bool {
    turns.is_sorted_by(|one, next| one < next)
}

/// Kills the server while a contender works, restarts it, and waits until another turn of work
/// begins. Returns whether the interrupted contender went on after the restart.
fn kill_and_restart(world: &World) -> bool {
    let before = fences(&steps(world));
    let mut working = None;
    until("somebody has begun to work", || {
        let last = steps(world).into_iter().rfind(|step| step.what != What::Ask);
        working = last.and_then(|step| match step.what {
            What::In(fence) if !before.contains(&fence) => Some(fence),
            _ => None,
        });
        working.is_some()
    });
    world.server().kill();
    let killed = steps(world).len();
    world.server().restart();
    let known = fences(&steps(world));
    until("work is done again", || !fences(&steps(world)).is_subset(&known));
    let ended = working.map(What::Out).expect("it was just seen");
    steps(world)[killed..].iter().any(|step| step.what == ended)
}

/// Ends the contenders, and checks their exit codes.
fn stop(world: &World, contenders: Vec<Running>) {
    std::fs::write(world.path("stop"), "").expect("a file");
    for contender in contenders {
        contender.end().code(0);
    }
    let codes = world.read("codes");
    // 0 means that the work was done, 69 that there was no server, 79 that the lock was lost.
    let known = |code: &str| matches!(code, "0" | "69" | "79");
    assert!(codes.lines().all(known), "{codes}");
    assert!(codes.lines().any(|code| code == "0"), "{codes}");
    assert_fences_rise(&steps(world));
}

/// Asserts that fencing tokens are unique. Each must also be higher than all tokens under which
/// work had begun before the contender asked.
fn assert_fences_rise(steps: &[Step]) {
    let mut owners = BTreeMap::new();
    let mut known = [None; CONTENDERS];
    for &Step { contender, what } in steps {
        match what {
            What::Ask => known[contender] = owners.keys().next_back().copied(),
            What::In(fence) => {
                let owner = *owners.entry(fence).or_insert(contender);
                assert_eq!(owner, contender, "{fence} was granted twice");
                let before = known[contender];
                assert!(before < Some(fence), "{fence} was granted after {before:?}");
            }
            What::Out(_) => {}
        }
    }
}

#[test]
fn a_server_that_keeps_its_data_lets_nobody_work_beside_another_after_a_restart() {
    let server = RedisServer::builder().config("appendonly", "yes");
    let world = World::on(server.config("appendfsync", "always").start());
    let contenders = contenders(&world);
    let held_on = (0..KILLS).filter(|_| kill_and_restart(&world)).count();
    stop(&world, contenders);
    assert!(held_on > 0, "nobody held on over a restart");
    let turns = turns(&steps(&world));
    assert!(turns.len() > KILLS, "{turns:?}");
    assert!(is_one_after_the_other(&turns), "two at the same time: {turns:?}");
}

/// GUARANTEES.md says that two contenders may work at the same time here. This shows that the test
/// above can notice that. The fencing tokens tell the two apart.
#[test]
fn a_server_that_comes_back_empty_grants_higher_fencing_tokens_than_it_forgot() {
    let world = World::redis();
    let contenders = contenders(&world);
    let mut kills = 0;
    while kills < KILLS || is_one_after_the_other(&turns(&steps(&world))) {
        assert!(kills < KILLS_MAX, "{kills} restarts let no two in at the same time");
        kill_and_restart(&world);
        kills += 1;
    }
    stop(&world, contenders);
}

/// A booting machine starts its jobs and its server in any order.
#[test]
fn a_wait_for_a_store_that_is_still_starting_happens_on_request() {
    let world = World::redis();
    world.server().kill();
    for flags in [&["-w", "30"][..], &["-n"]] {
        finish(world.run("x", flags, "touch $1/began")).code(69);
        let patient = [flags, &["--wait-store", "10m"]].concat();
        let mut run = start(world.run("x", &patient, "echo mine"));
        let mut acquire = start({
            let mut command = world.leasehold(["acquire", "y", "--ttl", "1s"]);
            command.args(&patient);
            command
        });
        for waiting in [&mut run, &mut acquire] {
            let line = waiting.expect_message("the store cannot be used yet");
            assert!(line.contains("the lock is not acquired, trying for 10m"), "{line}");
        }
        world.server().restart();
        run.expect("mine");
        run.end().code(0);
        acquire.end().code(0);
        world.server().kill();
    }
    assert!(!world.path("began").exists());
    let done = finish(world.run("x", &["-n", "--wait-store", "300ms"], "true"));
    done.code(69).says("the store cannot be used yet");
    let mut stopped = start(world.run("x", &["--wait-store", "10m"], "true"));
    stopped.expect_message("the store cannot be used yet");
    stopped.kill(Signal::TERM);
    stopped.end().signal(Signal::TERM);
}
