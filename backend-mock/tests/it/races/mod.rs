//! Races are found, whatever order the commands happened to run in, and nothing else is called a race.

mod behind_failures;
mod brute_force;
mod planted;
mod program;

use std::collections::BTreeSet;

use binpool_mock::{Completion, Failures};
use program::{Program, steps};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(1000),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Every reported pair can come in both orders; and where any pair on the half of a block can, one is reported there.
    /// The same for every way in which the device may run the commands.
    #[test]
    fn the_detector_agrees_with_trying_all_orders(
        steps in steps(0.0),
        choices in prop::collection::vec(any::<u8>(), 0..40),
        seed in any::<u64>(),
    ) {
        check(&Program::new(&steps, Failures::default()), &choices, seed)?;
    }

    /// The same for programs in which something fails, whatever becomes of the commands after it.
    #[test]
    fn the_detector_agrees_with_trying_all_orders_of_programs_that_fail(
        steps in steps(0.7),
        choices in prop::collection::vec(any::<u8>(), 0..40),
        seed in any::<u64>(),
        failures in prop::sample::select(&Failures::ALL),
    ) {
        check(&Program::new(&steps, failures), &choices, seed)?;
    }
}

fn check(program: &Program, choices: &[u8], seed: u64) -> Result<(), TestCaseError> {
    let races = brute_force::races(program);
    let places = |pairs: &BTreeSet<program::Pair>| -> BTreeSet<(usize, u8)> {
        let of_pair = |pair: &program::Pair| {
            let halves = program.raced_halves(*pair);
            let each = [1, 2].into_iter().filter(move |half| halves & half != 0);
            let block = pair.block;
            each.map(move |half| (block, half))
        };
        pairs.iter().flat_map(of_pair).collect()
    };
    for completion in [
        Completion::AtOnce,
        Completion::Manual,
        Completion::Seeded(seed),
    ] {
        let reported = program.run(completion, choices);
        prop_assert!(
            reported.is_subset(&races),
            "{completion:?}: {reported:?} were reported, {races:?} race: {program:#?}"
        );
        // A command that a failure spreads to in this run touches nothing in it, and races in others only.
        if !program.failures.spread {
            prop_assert_eq!(
                places(&reported),
                places(&races),
                "{:?}: {:?} race: {:#?}",
                completion,
                races,
                program
            );
        }
    }
    Ok(())
}
