//! Segments of pages beside a paper on which stands what is mapped: blocks are apart and mapped, pages in use stay where they are
//! whatever fails, and no bytes are lost.
#![no_main]

#[path = "../../pool/segments/tests/segments/pages/world.rs"]
mod world;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use world::{PAGE, World};

#[derive(Arbitrary, Debug)]
struct Program {
    /// The most pages.
    capacity: u8,
    /// Whether pages may be mapped at two addresses.
    aliases: bool,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// Takes a block of this many pages, less this many times 256 bytes.
    Take {
        home: u8,
        pages: u8,
        less: u16,
        queue: u8,
    },
    /// Takes a block of this many times 256 bytes.
    TakeSmall {
        home: u8,
        units: u8,
        queue: u8,
    },
    Give {
        block: u8,
        queue: u8,
    },
    Settle {
        queue: u8,
    },
    Release {
        pages: u8,
        sweeps: bool,
    },
    /// The calls with these numbers from now on fail.
    Fail {
        calls: [u8; 3],
    },
}

/// Longer programs find little that shorter ones do not.
const MOST_STEPS: usize = 100;

fuzz_target!(|program: Program| {
    let mut world = World::new(
        (usize::from(program.capacity) * PAGE) as u64,
        program.aliases,
    );
    for step in program.steps.into_iter().take(MOST_STEPS) {
        match step {
            Step::Take {
                home,
                pages,
                less,
                queue,
            } => {
                let bytes = (1 + usize::from(pages)) * PAGE - usize::from(less % 8192) * 256;
                world.take(usize::from(home % 3), bytes.max(256), 1 + queue % 2);
            }
            Step::TakeSmall { home, units, queue } => {
                let bytes = (1 + usize::from(units)) * 256;
                world.take(usize::from(home % 3), bytes, 1 + queue % 2);
            }
            Step::Give { block, queue } => world.give(block.into(), queue % 3),
            Step::Settle { queue } => world.settle(1 + queue % 2),
            Step::Release { pages, sweeps } => {
                world.release(u64::from(pages) * PAGE as u64, sweeps)
            }
            Step::Fail { calls } => world.fail(calls.map(|call| 1 + usize::from(call % 30))),
        }
        world.check();
    }
});
