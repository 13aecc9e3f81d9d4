//! What binpool would make of a program's memory, which a replay on the simulated device finds out.

use binpool::PoolOptions;
use binpool_allocators::words::{bytes, counted};
use binpool_recordings::Trace;
use binpool_trace::shown;

use super::{figures::kind_of, reserved::most_reserved};
use crate::{AllocatorChoice, Device, Outcome, Profile, ReplaySettings, figures::ratio};

/// The kinds of memory that `binpool run --pool` serves.
const SERVED: [&str; 4] = ["buffer", "SVM", "device", "async pool"];

/// What a pool would save of what it would serve; `None` if it would save less than half of the requests to the driver, which is not worth one.
pub(super) fn forecast(trace: &Trace) -> Option<String> {
    let is_served = |block| SERVED.contains(&kind_of(trace.group_of(block)));
    let trace = &trace.only(|block| !trace.is_of_program() || is_served(block));
    if trace.allocations() == 0 {
        return None;
    }
    let outcome = match replayed(trace) {
        Ok(outcome) => outcome,
        Err(text) => return Some(text),
    };
    // Releases are on neither side: some of the program's, and those of the pool's last memory, come after the recording.
    let with = outcome.device_allocations + outcome.maps;
    let without = trace.allocations() as u64;
    let (reserved, live) = (outcome.peak_reserved_bytes, trace.peak_live_bytes());
    (with <= without / 2).then(|| {
        format!(
            "with a pool, the driver would be asked for memory {} instead of {without}, and {} would be reserved, {:.2} times the most \
             that was live (`binpool run --pool`)",
            counted(with, "time"),
            bytes(reserved),
            ratio(reserved, live),
        )
    })
}

/// What binpool would reserve in the place of the program's own allocator, and what to do.
pub(super) fn forecast_instead(trace: &Trace) -> String {
    let outcome = match replayed(trace) {
        Ok(outcome) => outcome,
        Err(text) => return text,
    };
    let (now, then) = (most_reserved(trace).1, outcome.peak_reserved_bytes);
    if then >= now {
        return format!(
            "binpool in its place would reserve no less: {}",
            bytes(then)
        );
    }
    format!(
        "with binpool in its place, {} would be reserved, {} less: `binpool run --pool` runs the program so",
        bytes(then),
        bytes(now - then),
    )
}

fn replayed(trace: &Trace) -> Result<Outcome, String> {
    let allocator = if trace.is_of_cuda() {
        AllocatorChoice::VirtualMemory
    } else {
        AllocatorChoice::Immediate
    };
    let settings = ReplaySettings {
        allocator,
        pool: Some(PoolOptions::new().segments(true)),
        ..ReplaySettings::default()
    };
    let device = Device::Mock(Profile::default());
    match device.replay(trace, &settings, &|_| {}) {
        Ok(measured) => Ok(measured.outcome),
        Err(failure) => {
            let cause = shown(&failure.source);
            Err(format!(
                "could not tell what a pool would save: {failure}: {cause}"
            ))
        }
    }
}
