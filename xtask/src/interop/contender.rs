//! One process that wants a key all the time, and the turns that it says it had.

use rustix::process::{Pid, Signal, kill_process};

use crate::rivals::Process;

/// A moment on the clock that all processes of the machine share, in nanoseconds.
pub(super) type Nanos = u64;

/// One time with the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) task: u32,
    pub(super) from: Nanos,
    /// `None` until the process says that it releases the lock.
    pub(super) to: Option<Nanos>,
}

/// The turns of a process, in the order in which they began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told(pub(super) Vec<Turn>);

impl Told {
    /// Reads one more line.
    fn hear(&mut self, line: &str) -> Result<(), String> {
        let strange = || format!("`{line}` is no line of a program that contends");
        let words: Vec<_> = line.split(' ').collect();
        let [event, task, at] = words[..] else { return Err(strange()) };
        let task = task.parse().map_err(|_| strange())?;
        let at = at.parse::<Nanos>().map_err(|_| strange())?;
        match event {
            "acquired" => self.0.push(Turn { task, from: at, to: None }),
            "released" => {
                let mut turns = self.0.iter_mut().rev();
                let turn = turns.find(|turn| turn.task == task && turn.to.is_none());
                turn.ok_or_else(strange)?.to = Some(at);
            }
            _ => return Err(strange()),
        }
        Ok(())
    }

    /// The turn that has not ended, if there is one.
    pub(super) fn open(&self) -> Option<Turn> {
        self.0.last().filter(|turn| turn.to.is_none()).copied()
    }
}

/// A process. It is killed when it is dropped.
pub(super) struct Contender {
    process: Process,
    told: Told,
}

impl Contender {
    /// Makes a process contend.
    pub(super) fn new(mut process: Process, order: &str) -> Result<Self, String> {
        process.tell(order)?;
        Ok(Self { process, told: Told::default() })
    }

    /// Its turns until now. Fails if the process has ended.
    pub(super) fn told(&mut self) -> Result<&Told, String> {
        while let Some(line) = self.process.next_line()? {
            self.told.hear(&line)?;
        }
        Ok(&self.told)
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or("it has no pid")?, signal).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_contender_prints_is_understood_or_refused() {
        let mut told = Told::default();
        for line in ["acquired 1 10", "acquired 0 12", "released 1 14"] {
            told.hear(line).expect(line);
        }
        let turn = |task, from, to| Turn { task, from, to };
        assert_eq!(told.0, [turn(1, 10, Some(14)), turn(0, 12, None)]);
        assert_eq!(told.open(), Some(turn(0, 12, None)));
        for line in ["released 1 15", "released 7 1", "acquired x 1", "acquired 1", "hello"] {
            assert!(told.hear(line).is_err(), "{line}");
        }
        told.hear("released 0 20").expect("it was open");
        assert_eq!(told.open(), None);
    }
}
