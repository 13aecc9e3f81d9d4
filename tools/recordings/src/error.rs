//! Errors that several importers have in common.

use binpool_trace::{TraceError, TraceErrorKind};

/// The file ends too early.
pub(crate) fn truncated() -> TraceError {
    TraceError::malformed("the file ends here, but more was expected: it is damaged or incomplete")
}

/// A field is missing or has another type.
pub(crate) fn field(field: &str, expected: &str) -> TraceError {
    TraceError::malformed(format_args!("expected {field} to be {expected}"))
}

pub(crate) fn no_allocation(advice: &str) -> TraceError {
    TraceError::new(
        TraceErrorKind::NoAllocation,
        format_args!("it has no allocations: {advice}"),
    )
}

pub(crate) fn no_device(device: usize, devices: usize) -> TraceError {
    TraceError::new(
        TraceErrorKind::NoDevice,
        format_args!("there is no device {device}: the snapshot has {devices}"),
    )
}
