//! Worlds without a server: the store is the memory of one program, or a file that the processes of
//! one machine share.

use crate::simulation::clock::ServerClock;
use crate::simulation::drawn_faults::planned;
use crate::simulation::fault::Fault;
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::{KeptIn, Plan};
use crate::virtual_host::SeededRandom;

/// One world in this many has its locks in memory, and one in this many in a file.
const MEMORY_ONE_IN: usize = 24;
const FILE_ONE_IN: usize = 32;

const MEMORY_SALT: u64 = 0x003e_3057_0e00;
const FILE_SALT: u64 = 0x0f11_e057_0e00;

/// Makes a world local if its seed says so. A quorum never is.
pub(super) fn draw_place(draw: Draw<'_>, plan: &mut Plan) {
    if plan.is_quorum() {
        return;
    }
    plan.kept_in = if draw.of(Kind::Memory, MEMORY_SALT, MEMORY_ONE_IN).is_some() {
        KeptIn::Memory
    } else if draw.of(Kind::Sqlite, FILE_SALT, FILE_ONE_IN).is_some() {
        KeptIn::File
    } else {
        return;
    };
    // All processes share the clock of their machine, and so does the store.
    let faster_ppm = plan.clients[0].faster_ppm;
    plan.clients.iter_mut().for_each(|client| client.faster_ppm = faster_ppm);
    plan.clocks = vec![ServerClock::default()];
    plan.delay_us = (0, 0);
}

/// Keeps the faults that can happen on one machine. Replaces those that need a network or a server.
pub(super) fn draw_faults(draw: Draw<'_>, plan: &mut Plan) {
    let salt = match plan.kept_in {
        KeptIn::Servers => return,
        KeptIn::Memory => MEMORY_SALT,
        KeptIn::File => FILE_SALT,
    };
    let mut random =
        SeededRandom::new(SeededRandom::new(draw.seed).next_u64() ^ salt.rotate_left(9));
    let mut can_happen = Fault::OF_MACHINES.to_vec();
    if plan.kept_in == KeptIn::File {
        can_happen.extend(Fault::OF_FILES);
    }
    let mut faults = std::mem::take(&mut plan.faults);
    for one in &mut faults {
        if !can_happen.contains(&one.fault) {
            let fault = can_happen[random.below(can_happen.len())];
            *one = planned(&mut random, fault, one.at, plan);
        }
        if one.fault == Fault::ClientSuspend {
            // The machine sleeps, so all its processes sleep.
            one.client = None;
        }
    }
    plan.faults = faults;
}
