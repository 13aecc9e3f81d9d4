//! Programs of every call that a pool has, on a mock device that is stepped by hand or by a seed and that fails on demand:
//! blocks keep their bytes until they are dropped, blocks in use never share any, the counters add up after each step, and at
//! the end nothing is left and the device has seen no race and no misuse.
#![no_main]

mod live;
mod program;
mod settings;
mod states;
mod step;
mod swarm;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use program::Program;
use settings::Settings;
use states::States;
use step::Step;

#[derive(Arbitrary, Debug)]
struct Input {
    settings: Settings,
    steps: Vec<Step>,
}

/// Longer programs find little that shorter ones do not, and take their time.
const MOST_STEPS: usize = 100;

fuzz_target!(|input: Input| {
    let mut program = Program::new(&input.settings);
    let (swarm, mut states) = (input.settings.swarm(), States::begin());
    let steps = input.steps.iter().take(MOST_STEPS).enumerate();
    for (_, step) in steps.filter(|(index, step)| swarm.has(step, *index)) {
        program.run(step);
        program.check_counters();
        states.note();
    }
    program.end();
    states.note();
});
