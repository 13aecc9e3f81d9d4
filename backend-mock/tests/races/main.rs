//! Races are found, whatever order the commands happened to run in, and nothing else is called a race.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

mod brute_force;
mod planted;
mod program;

use std::collections::BTreeSet;

use binpool_mock::Completion;
use program::{Program, steps};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(400),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Every reported pair can come in both orders; and where any pair on a block can, one is reported there. The same
    /// for every way in which the device may run the commands.
    #[test]
    fn the_detector_agrees_with_trying_all_orders(
        steps in steps(),
        choices in prop::collection::vec(any::<u8>(), 0..40),
        seed in any::<u64>(),
    ) {
        let program = Program::new(&steps);
        let races = brute_force::races(&program);
        let blocks = |pairs: &BTreeSet<program::Pair>| -> BTreeSet<usize> {
            pairs.iter().map(|pair| pair.block).collect()
        };
        for completion in [Completion::AtOnce, Completion::Manual, Completion::Seeded(seed)] {
            let reported = program.run(completion, &choices);
            prop_assert!(
                reported.is_subset(&races),
                "{completion:?}: {reported:?} were reported, {races:?} race: {program:#?}"
            );
            prop_assert_eq!(
                blocks(&reported),
                blocks(&races),
                "{:?}: {:?} race: {:#?}", completion, races, program
            );
        }
    }
}
