//! The scenarios, in the order of the page.

/// One scenario.
pub(super) struct Scenario {
    /// Its name in `leasehold-bench`.
    pub(super) name: &'static str,
    /// The text on what is measured, against which yardstick, and how.
    pub(super) measured: &'static str,
    pub(super) runs: &'static [Run],
}

/// One run of the program.
pub(super) struct Run {
    /// The arguments after the name.
    pub(super) arguments: &'static [&'static str],
    /// Whether to use the counting allocator, which makes the program slower.
    pub(super) counts_memory: bool,
}

const fn run(arguments: &'static [&'static str]) -> Run {
    Run { arguments, counts_memory: false }
}

/// All scenarios.
pub(super) const SCENARIOS: [Scenario; 8] = [
    Scenario {
        name: "roundtrip",
        measured: "\
One task locks a key that nobody else wants and releases it. It sends the second request after the
answer to the first.

- \"Same two requests\" are the very commands that our lock and release send where server and lock
  are known. They are recorded at the connection and sent by a bare `MultiplexedConnection` of the
  crate `redis`. The ratio shows what the library adds.
- The ratio to 2 PING shows what the scripts cost, too.
- On one core, client and server share it. On two, a round trip costs the wake-up of another core.
",
        runs: &[run(&["--redis", "--cores", "1"]), run(&["--redis", "--cores", "2"])],
    },
    Scenario {
        name: "throughput",
        measured: "\
1, 100 and 1 000 tasks of one client, on one thread, lock and release keys that nobody else wants.
There are 4 000 keys, and each task has an equal share of its own. A cycle is a lock and a release;
the task waits for the answer to both. The yardstick is the textbook's lock by as many tasks over
one `MultiplexedConnection`: `SET NX PX`, then a script that compares and deletes.

- *Warm*: the key was locked before over the same connection.
- *Cold*: it was not; each key is locked once.
- *Unfenced*: `fencing(false)` and `unqueued()`.
- *Try*: by `try_lock`.
",
        runs: &[run(&["--redis"])],
    },
    Scenario {
        name: "handoff",
        measured: "\
Two processes hand one lock to one another, both ways. The time runs from the call that releases it
in one process to the return of `lock()` in the other, which stood in line, on one clock. The
yardstick is a bare PUBLISH by one process, until a task of the other that waits for it runs. It has
the same client crate, the same kind of runtime and the same pauses, in turns. The pauses before a
release differ, up to 5 ms.
",
        runs: &[run(&["--redis"])],
    },
    Scenario {
        name: "hot",
        measured: "\
All tasks want one key, and do nothing while they hold it.

- 1 000 tasks of one process run on a runtime with two workers, in turns with as many tasks on a
  `tokio::sync::Mutex` on the same runtime.
- Eight processes of 100 tasks each, on one thread each, start at one moment and end at another.
  Their work in between counts, and so does the wait of a task that still waits in the end.
- Requests are counted as they come to the server over connections. A script call is one.
",
        runs: &[run(&["--redis"])],
    },
    Scenario {
        name: "waiters",
        measured: "\
10 000 tasks in four processes wait while another process holds the lock: one key, then 1 000 keys,
on each of which tasks of every process wait.

- Requests are counted at the server, including those of the holder.
- Memory is the growth of each process once its tasks wait, the tasks themselves included. The
  yardstick is as many tasks that wait for a `tokio::sync::Mutex`.
- *Resident*: as the system sees it. *Allocated*: as the allocator does, in a run of its own.
- Brackets are over the processes.
",
        runs: &[
            run(&["--redis"]),
            Run { arguments: &["--redis", "--seconds", "1"], counts_memory: true },
        ],
    },
    Scenario {
        name: "renew",
        measured: "\
One client holds 100 000 leases with a ttl of 10 s. Processor time is that of all its threads while
only renewals happen, in windows of a third of the ttl. The yardstick runs after all were released:
the bare client sends one recorded renewal as often, in batches, thirty of them in a ttl. In a
second window every guard is checked ten times a second.
",
        runs: &[run(&["--redis"])],
    },
    Scenario {
        name: "idle",
        measured: "\
One task locks and releases the same key again and again, and its client keeps the lease in between
(`keep_idle`). The yardstick is a `tokio::sync::Mutex`, used by the same task.
",
        runs: &[run(&["--redis"])],
    },
    Scenario {
        name: "quorum",
        measured: "\
One task locks at five servers keys that nobody else wants. Only the acquire is measured: each lock
is released, and a majority has let go, before the next one. All servers share the cores with the
client.

- The yardsticks are one request to each server at once, by five bare `MultiplexedConnection`s of
  the crate `redis`, until the third answer is there: `SET NX PX`, and the very requests of a fenced
  acquire, recorded.
- *Unfenced*: `fencing(false)` and `unqueued()`.
- *Silent*: the same through proxies, first with all healthy. Then nothing gets through any more
  from one server, and at last from two, while the connections stay open. Each round has proxies and
  a client of its own.
- Requests are counted on the way to each server while 100 locks are acquired. Brackets are over the
  servers.
",
        runs: &[run(&["--redis"])],
    },
];
