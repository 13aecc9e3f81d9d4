//! Random programs run in legal orders only, whoever picks the order, and the same seed gives the same run.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod common;

use binpool_allocators::{EventStatus, Outcome};
use binpool_mock::Completion;
use common::program::{BYTES, Effect, Run, Source, run, steps};
use proptest::prelude::*;

/// Where each command came in the order of ends.
fn positions(run: &Run) -> Vec<usize> {
    let mut positions = vec![None; run.commands.len()];
    for (position, (command, ..)) in run.ended.iter().enumerate() {
        // The reads at the end of a run are commands of their own.
        if let Some(slot) = positions.get_mut(*command) {
            assert_eq!(*slot, None, "command {command} ended twice");
            *slot = Some(position);
        }
    }
    positions
        .into_iter()
        .map(|position| position.expect("every command ends"))
        .collect()
}

fn check_order(run: &Run) {
    let positions = positions(run);
    for (number, command) in run.commands.iter().enumerate() {
        for earlier in &command.after {
            assert!(
                positions[*earlier] < positions[number],
                "{number} ended before {earlier}: {run:#?}"
            );
        }
        for source in &command.wait_list {
            if let Source::Gate(gate) = source {
                let resolved = run.gates[*gate].expect("every gate is resolved");
                assert!(
                    resolved.ended_before <= positions[number],
                    "{number} passed gate {gate}: {run:#?}"
                );
            }
        }
    }
}

/// A command fails where something of its wait list does, and nowhere else.
fn check_failures(run: &Run) {
    let positions = positions(run);
    let mut failed: Vec<bool> = Vec::new();
    for (number, command) in run.commands.iter().enumerate() {
        let fails = command.wait_list.iter().any(|source| match source {
            Source::Command(earlier) => failed[*earlier],
            Source::Gate(gate) => {
                run.gates[*gate].is_some_and(|gate| gate.outcome == Outcome::Failed)
            }
        });
        let status = if fails {
            EventStatus::Failed
        } else {
            EventStatus::Complete
        };
        assert_eq!(run.ended[positions[number]].2, status, "{number}: {run:#?}");
        failed.push(fails);
    }
}

/// The bytes are those of the commands that ended well, one after the other in the order of their ends.
fn check_contents(run: &Run) {
    let blocks = run
        .contents
        .iter()
        .map(|(block, _)| block + 1)
        .max()
        .unwrap_or(0);
    let blocks = blocks.max(run.calls.len());
    let mut bytes = vec![[0u8; BYTES]; blocks];
    for (number, _, status) in &run.ended {
        let Some(command) = run.commands.get(*number) else {
            continue;
        };
        if *status == EventStatus::Failed {
            continue;
        }
        match command.effect {
            Effect::Nothing => {}
            Effect::Fill(block, byte) => bytes[block] = [byte; BYTES],
            Effect::Copy(from, to) => bytes[to] = bytes[from],
            Effect::Add(from, to) => {
                let from = bytes[from];
                for (to, from) in bytes[to].iter_mut().zip(from) {
                    *to = to.wrapping_add(from);
                }
            }
        }
    }
    for (block, contents) in &run.contents {
        assert_eq!(contents, &bytes[*block], "block {block}: {run:#?}");
    }
}

fn completions(seed: u64) -> [Completion; 3] {
    [
        Completion::AtOnce,
        Completion::Manual,
        Completion::Seeded(seed),
    ]
}

proptest! {
    #[test]
    fn only_legal_orders_happen(steps in steps(), seed: u64) {
        for completion in completions(seed) {
            let run = run(&steps, completion);
            check_order(&run);
            check_failures(&run);
            check_contents(&run);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run(steps in steps(), seed: u64) {
        for completion in completions(seed) {
            let [one, two] = [(); 2].map(|()| run(&steps, completion));
            prop_assert_eq!(one.ended, two.ended);
            prop_assert_eq!(one.contents, two.contents);
            prop_assert_eq!(one.calls, two.calls);
            prop_assert_eq!(one.statistics, two.statistics);
        }
    }
}
