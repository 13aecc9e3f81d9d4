//! The programs of [`schedules`](../../checks/schedules) on threads of the system, each once. Under Miri each seed is another schedule
//! (`scripts/miri`).
//!
//! Arguments are parts of the names of those to run.

#![allow(clippy::unwrap_used, reason = "a program that fails panics")]

#[path = "../../checks/schedules/src/adaptors.rs"]
mod adaptors;
#[path = "../../checks/schedules/src/device.rs"]
mod device;
#[path = "../../checks/schedules/src/pages.rs"]
mod pages;
#[path = "../../checks/schedules/src/plans.rs"]
mod plans;
#[path = "../../checks/schedules/src/queues.rs"]
mod queues;
#[path = "../../checks/schedules/src/shortage.rs"]
mod shortage;
#[path = "../../checks/schedules/src/thread_caches.rs"]
mod thread_caches;
#[path = "../../checks/schedules/src/watching.rs"]
mod watching;
#[path = "../../checks/schedules/src/world.rs"]
mod world;

/// What takes the place of `checks/schedules/src/program.rs`, which has shuttle pick the schedules.
mod program {
    pub(crate) use std as library;

    #[derive(Clone, Copy)]
    pub(crate) struct Program {
        pub(crate) name: &'static str,
        pub(crate) run: fn(),
    }

    impl Program {
        pub(crate) const fn new(name: &'static str, _threads: usize, run: fn()) -> Self {
            Self { name, run }
        }

        pub(crate) const fn listed(name: &'static str, threads: usize, run: fn()) -> Self {
            Self::new(name, threads, run)
        }
    }
}

fn main() {
    let parts: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| {
        let mut parts = parts
            .iter()
            .filter(|part| !part.starts_with('-'))
            .peekable();
        parts.peek().is_none() || parts.any(|part| name.contains(part.as_str()))
    };
    let programs = [
        thread_caches::PROGRAMS,
        watching::PROGRAMS,
        queues::PROGRAMS,
        shortage::PROGRAMS,
        pages::PROGRAMS,
        plans::PROGRAMS,
        adaptors::PROGRAMS,
        device::PROGRAMS,
    ];
    for program in programs.iter().copied().flatten() {
        if is_wanted(program.name) {
            println!("{}", program.name);
            (program.run)();
        }
    }
}
