//! Random programs run in legal orders only, in whichever way the order is picked, and the same seed gives the same run.

use std::collections::BTreeSet;

use binpool_allocators::{EventStatus, FailureOrder, Outcome};
use binpool_mock::{Completion, Failures};
use proptest::prelude::*;

use crate::common::program::{BYTES, Effect, Run, Source, run, steps};

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

/// Everything that a command comes after ends before it does: unless it fails early, or a place before it is lost.
fn check_order(run: &Run, order: FailureOrder) {
    let positions = positions(run);
    let has_failed = |number: usize| run.ended[positions[number]].2 == EventStatus::Failed;
    let are_places_lost = order == FailureOrder::Lost && (0..run.commands.len()).any(&has_failed);
    // What is before each command: commands and gates, its own and those before what is before it.
    let mut before: Vec<(BTreeSet<usize>, BTreeSet<usize>)> = Vec::new();
    for (number, command) in run.commands.iter().enumerate() {
        let listed = |number: &usize| command.wait_list.contains(&Source::Command(*number));
        let after = command.after.iter().copied();
        let mut commands: BTreeSet<usize> = after
            .filter(|earlier| !are_places_lost || listed(earlier))
            .collect();
        let mut gates: BTreeSet<usize> = command.gates().collect();
        for earlier in commands.clone() {
            commands.extend(&before[earlier].0);
            gates.extend(&before[earlier].1);
        }
        if order == FailureOrder::Kept || !has_failed(number) {
            for earlier in &commands {
                assert!(
                    positions[*earlier] < positions[number],
                    "{number} ended before {earlier}: {run:#?}"
                );
            }
            for gate in &gates {
                let resolved = run.gates[*gate].expect("every gate is resolved");
                assert!(
                    resolved.ended_before <= positions[number],
                    "{number} passed gate {gate}: {run:#?}"
                );
            }
        }
        before.push((commands, gates));
    }
}

/// A command fails where something of its wait list does; where failures spread, also after a command that does; and
/// nowhere else.
fn check_failures(run: &Run, failures: Failures) {
    let positions = positions(run);
    let mut failed: Vec<bool> = Vec::new();
    for (number, command) in run.commands.iter().enumerate() {
        let must_fail = command.wait_list.iter().any(|source| match source {
            Source::Command(earlier) => failed[*earlier],
            Source::Gate(gate) => {
                run.gates[*gate].is_some_and(|gate| gate.outcome == Outcome::Failed)
            }
        });
        let may_fail = failures.spread && command.after.iter().any(|earlier| failed[*earlier]);
        let fails = run.ended[positions[number]].2 == EventStatus::Failed;
        assert!(
            fails == must_fail || fails && may_fail,
            "{number}: {run:#?}"
        );
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

fn failures() -> impl Strategy<Value = Failures> {
    prop::sample::select(&Failures::ALL)
}

proptest! {
    #[test]
    fn only_legal_orders_happen(steps in steps(), seed: u64, failures in failures()) {
        for completion in completions(seed) {
            let run = run(&steps, completion, failures);
            check_order(&run, failures.order);
            check_failures(&run, failures);
            check_contents(&run);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_run(steps in steps(), seed: u64, failures in failures()) {
        for completion in completions(seed) {
            let [one, two] = [(); 2].map(|()| run(&steps, completion, failures));
            prop_assert_eq!(one.ended, two.ended);
            prop_assert_eq!(one.contents, two.contents);
            prop_assert_eq!(one.calls, two.calls);
            prop_assert_eq!(one.statistics, two.statistics);
        }
    }
}
