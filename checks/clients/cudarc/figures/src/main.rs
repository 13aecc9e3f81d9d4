//! Host time of a pair of allocation and drop, and memory over live, of cudarc as it is published and over binpool.
//!
//! `cudarc-figures pairs`; `cudarc-figures trace NAME ROUNDS < TRACE`, where a trace has lines `a ID BYTES STREAM` and `f ID`.

use std::io::{Read, stdin};

mod before {
    pub(crate) use before as cudarc;
    include!("measure.rs");
}

mod after {
    pub(crate) use after as cudarc;
    include!("measure.rs");
}

/// A line of a trace.
pub(crate) enum Call {
    Allocate { id: u64, bytes: usize, stream: usize },
    Free { id: u64 },
}

fn calls(text: &str) -> Vec<Call> {
    let call = |line: &str| {
        let mut words = line.split(' ');
        let of = words.next()?;
        let mut number = || words.next()?.parse::<u64>().ok();
        let id = number()?;
        Some(match of {
            "a" => Call::Allocate { id, bytes: number()? as usize, stream: number().unwrap_or(0) as usize },
            _ => Call::Free { id },
        })
    };
    text.lines().filter_map(call).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [pairs] if pairs == "pairs" => {
            println!("| a pair of allocation and drop | before, µs | after, µs |\n|---|---|---|");
            let (before, after) = (before::pairs()?, after::pairs()?);
            for ((name, before), (_, after)) in before.into_iter().zip(after) {
                println!("| {name} | {before:.3} | {after:.3} |");
            }
        }
        [trace, name, rounds] if trace == "trace" => {
            let mut text = String::new();
            stdin().read_to_string(&mut text)?;
            let (calls, rounds) = (calls(&text), rounds.parse()?);
            let (before, after) = (before::replay(&calls, rounds)?, after::replay(&calls, rounds)?);
            let gib = before.live as f64 / f64::from(1 << 30);
            println!(
                "| {name} | {rounds} | {gib:.3} | {:.3} | {:.3} | {:.3} | {:.3} | {} |",
                before.taken_over_live(),
                after.taken_over_live(),
                before.micros_a_pair,
                after.micros_a_pair,
                if before.checksum == after.checksum { "equal" } else { "DIFFERENT" },
            );
        }
        _ => return Err("usage: cudarc-figures pairs | cudarc-figures trace NAME ROUNDS < TRACE".into()),
    }
    Ok(())
}
