//! Programs that each do one unusual thing with OpenCL or CUDA: bare, recorded, pooled, and both, they see the same, end in the same way, and need as
//! much memory and time, but for a factor. README.md in this folder lists them.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failing test panics")]

mod agreement;
mod compiled;
mod page;
mod ran;
mod random;
#[path = "../../../../backend-cuda/tests/it/common/stand_in_build.rs"]
mod stand_in_build;

use agreement::disagreements;
use compiled::{Case, PROGRAMS};

/// Runs the cases of a kind: those that go together in one process, and each other one in a process of its own.
fn agree(kind: &str) {
    let mut wrong = Vec::new();
    for program in PROGRAMS {
        let cases: Vec<&Case> = program
            .cases()
            .iter()
            .filter(|case| case.kind == kind)
            .collect();
        let (together, alone): (Vec<&Case>, Vec<&Case>) =
            cases.into_iter().partition(|case| case.goes_with_others());
        if !together.is_empty() {
            let names: Vec<&str> = together.iter().map(|case| &*case.name).collect();
            wrong.extend(disagreements(program, &names));
        }
        for case in alone {
            wrong.extend(disagreements(program, &[&case.name]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One test for each file of cases.
macro_rules! kinds {
    ($($kind:ident)*) => {
        /// The files of cases.
        const KINDS: &[&str] = &[$(stringify!($kind)),*];

        mod programs_see_the_same_and_end_in_the_same_way {
            $(#[test] fn $kind() { super::agree(stringify!($kind)); })*
        }
    };
}

kinds! { asked_back callbacks cancellation ends events forks limits loading many memory orders queries sharing stacks wrong cuda_contexts cuda_memory cuda_processes cuda_streams }

#[test]
fn each_file_of_cases_has_a_test() {
    for case in PROGRAMS.iter().flat_map(|program| program.cases()) {
        assert!(
            KINDS.contains(&&*case.kind),
            "{} is in none of the tests",
            case.kind
        );
    }
}
