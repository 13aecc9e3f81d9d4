//! Programs of two to five threads over the mock device, on schedules that `shuttle` picks: at random, by priorities that
//! change a few times (PCT), and, for the smallest, one after the other.
//!
//! ```text
//! scripts/schedules            a minute
//! scripts/schedules 50         fifty times as many schedules
//! scripts/schedules 1 depot    those programs whose name has this in it
//! scripts/schedules replay NAME SCHEDULE
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a schedule that fails panics"
)]

mod adaptors;
mod commands;
mod device;
mod opencl;
mod pages;
mod plans;
mod program;
mod queues;
mod shortage;
mod thread_caches;
mod watching;
mod world;

use std::process::ExitCode;

use program::Program;

// By these names the files of the OpenCL backend know the rest of their crate.
pub(crate) use opencl::{order, queue, sys};

fn main() -> ExitCode {
    let programs: Vec<Program> = [
        thread_caches::PROGRAMS,
        watching::PROGRAMS,
        queues::PROGRAMS,
        shortage::PROGRAMS,
        pages::PROGRAMS,
        plans::PROGRAMS,
        adaptors::PROGRAMS,
        device::PROGRAMS,
        commands::PROGRAMS,
    ]
    .concat();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["replay", name, schedule] => match programs.iter().find(|it| it.name == name) {
            Some(program) => {
                program.replay(schedule);
                println!("{name}: this schedule passes");
                ExitCode::SUCCESS
            }
            None => usage(),
        },
        [] => try_all(&programs, 1, ""),
        [times] => times
            .parse()
            .map_or_else(|_| usage(), |times| try_all(&programs, times, "")),
        [times, part] => times
            .parse()
            .map_or_else(|_| usage(), |times| try_all(&programs, times, part)),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("[TIMES [PART OF A NAME]] | replay NAME SCHEDULE");
    ExitCode::from(2)
}

fn try_all(programs: &[Program], times: usize, part: &str) -> ExitCode {
    let wanted = programs.iter().filter(|it| it.name.contains(part));
    let (mut tried, mut schedules, mut failed) = (0, 0, Vec::new());
    for program in wanted {
        let outcome = program.try_schedules(times);
        tried += 1;
        schedules += outcome.schedules;
        println!("{program}: {outcome}");
        if outcome.has_failed {
            failed.push(program.name);
        }
    }
    println!(
        "{tried} programs, {schedules} schedules, {} failed",
        failed.len()
    );
    for name in &failed {
        println!("scripts/schedules replay {name} SCHEDULE # which is printed above");
    }
    if failed.is_empty() && tried > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
