//! One process that wants a key all the time, and the turns that it reported.

use rustix::process::Signal;

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
pub(super) struct Turns(pub(super) Vec<Turn>);

impl Turns {
    /// Reads one more line.
    fn read(&mut self, line: &str) -> Result<(), String> {
        let strange = || format!("`{line}` is not a line of a program that contends");
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

    /// The last turn, if it has not ended.
    pub(super) fn open(&self) -> Option<Turn> {
        self.0.last().filter(|turn| turn.to.is_none()).copied()
    }

    /// The first turn that began after this moment.
    pub(super) fn after(&self, at: Nanos) -> Option<Turn> {
        self.0.iter().find(|turn| turn.from > at).copied()
    }

    /// The turn that began at this moment, as far as it is known.
    pub(super) fn at(&self, at: Nanos) -> Option<Turn> {
        self.0.iter().find(|turn| turn.from == at).copied()
    }
}

/// A process. It is killed when it is dropped.
pub(super) struct Contender {
    process: Process,
    order: String,
    turns: Turns,
}

impl Contender {
    /// A process that will contend as `order` says.
    pub(super) fn new(process: Process, order: String) -> Self {
        Self { process, order, turns: Turns::default() }
    }

    /// Makes it contend.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        self.process.tell(&self.order)
    }

    /// Reads its lines so far. Fails once it has ended and all lines are read.
    pub(super) fn read(&mut self) -> Result<(), String> {
        while let Some(line) = self.process.next_line()? {
            self.turns.read(&line)?;
        }
        Ok(())
    }

    /// Its turns until it was last read.
    pub(super) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), String> {
        self.process.signal(signal)
    }

    /// Kills all of them together, and reads their remaining lines. So no process gets the lock of
    /// a process that was killed earlier.
    pub(super) fn end(all: &mut [&mut Self]) {
        for contender in &*all {
            // A process that has ended cannot be stopped.
            let _stopped = contender.signal(Signal::STOP);
        }
        for contender in all {
            contender.process.kill();
            while let Some(line) = contender.process.rest() {
                // The last line may be incomplete.
                let _read = contender.turns.read(&line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_a_contender_is_understood_or_refused() {
        let mut turns = Turns::default();
        for line in ["acquired 1 10", "acquired 0 12", "released 1 14"] {
            turns.read(line).expect(line);
        }
        let turn = |task, from, to| Turn { task, from, to };
        assert_eq!(turns.0, [turn(1, 10, Some(14)), turn(0, 12, None)]);
        assert_eq!(turns.open(), Some(turn(0, 12, None)));
        assert_eq!(turns.after(10), Some(turn(0, 12, None)));
        assert_eq!(turns.at(10), Some(turn(1, 10, Some(14))));
        for line in ["released 1 15", "released 7 1", "acquired x 1", "acquired 1", "hello"] {
            assert!(turns.read(line).is_err(), "{line}");
        }
        turns.read("released 0 20").expect("it was open");
        assert_eq!((turns.open(), turns.after(12)), (None, None));
    }
}
