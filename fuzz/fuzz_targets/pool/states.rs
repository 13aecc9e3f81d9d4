//! Rare states as coverage. The fuzzer sees by itself that a program reaches a state, since that is an edge of the pool's code; these
//! counters tell it which state was reached after which.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex,
        atomic::{AtomicU8, Ordering},
    },
};

use binpool::rare::{Rare, STATES, take_reached};

/// A counter for each pair of states, in the order in which they were reached. libFuzzer looks at what is in a section of this name, and
/// clears it before each program.
#[used]
// SAFETY: libFuzzer reads and writes bytes there, and nothing else is in it.
#[unsafe(link_section = "__libfuzzer_extra_counters")]
static PAIRS: [AtomicU8; STATES * STATES] = [const { AtomicU8::new(0) }; STATES * STATES];

/// The states that a program has reached.
#[derive(Default)]
pub(crate) struct States(Vec<Rare>);

impl States {
    pub(crate) fn begin() -> Self {
        drop(take_reached());
        Self::default()
    }

    /// Records what the last step has reached.
    pub(crate) fn note(&mut self) {
        for state in take_reached() {
            for before in &self.0 {
                PAIRS[*before as usize * STATES + state as usize].store(1, Ordering::Relaxed);
                tell(*before, state);
            }
            if !self.0.contains(&state) {
                self.0.push(state);
            }
        }
    }
}

/// Prints a pair that this process had not seen, if `BINPOOL_FUZZ_STATES` is set.
fn tell(before: Rare, state: Rare) {
    static SEEN: Mutex<BTreeSet<(usize, usize)>> = Mutex::new(BTreeSet::new());
    if std::env::var_os("BINPOOL_FUZZ_STATES").is_none() {
        return;
    }
    let mut seen = SEEN.lock().expect("no thread has panicked");
    if seen.insert((before as usize, state as usize)) {
        eprintln!("{state:?} after {before:?} ({} pairs)", seen.len());
    }
}
