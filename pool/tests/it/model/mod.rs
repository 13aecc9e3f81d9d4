//! Random programs of the whole public interface of a pool, against tables of what it has to do.
//!
//! A program that fails is made short, and printed as a test, which `found.rs` takes as it is.

#![allow(clippy::unreadable_literal, reason = "numbers are as they are printed")]

mod found;
mod ledger;
mod live;
mod operation;
mod printer;
mod reference;
mod rig;
mod shorten;
mod viewed;
mod words;

use binpool_mock::Failures;
use operation::{Operation, Setting, any_failing_operation, any_operation, any_setting};
use printer::Program;
use proptest::{
    prelude::*,
    test_runner::{TestError, TestRunner},
};
use rig::Rig;

/// This many programs take half a minute where nothing is optimized.
const CASES: u32 = 3000;

#[test]
fn the_pool_does_what_the_reference_does() {
    let in_order = &Failures::ALL[..1];
    try_programs(in_order, any_operation());
}

#[test]
fn the_pool_does_what_the_reference_does_though_commands_fail() {
    try_programs(&Failures::ALL[..], any_failing_operation());
}

fn try_programs(failures: &'static [Failures], operation: impl Strategy<Value = Operation>) {
    let config = ProptestConfig {
        cases: ProptestConfig::default().cases.max(CASES),
        // What is found is written down as a test of its own.
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    };
    let operations = prop::collection::vec(operation, 1..80);
    let programs = (any_setting(failures), operations).prop_map(|(setting, operations)| Program {
        setting,
        operations,
    });
    let found = TestRunner::new(config).run(&programs, |program| {
        program
            .fails()
            .map_or(Ok(()), |error| Err(TestCaseError::fail(error)))
    });
    match found {
        Ok(()) => {}
        Err(TestError::Fail(_, program)) => {
            let program = program.shortened();
            panic!("{}\n\n{program}", program.fails().unwrap_or_default());
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs a program that was found.
fn run(setting: Setting, operations: &[Operation]) {
    if let Err(error) = Rig::run(setting, operations) {
        panic!("{error}");
    }
}

/// A program as it is printed, with one of every kind of operation.
mod pasted {
    use crate::model::{run, words::*};

    include!("pasted.rs");
}

/// The same text: its program is printed again.
mod printed {
    use crate::model::{printer::is_printed_again as run, words::*};

    include!("pasted.rs");
}
