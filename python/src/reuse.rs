//! What happens where a free block was used on another queue, by name.

use binpool::ReusePolicy;
use pyo3::{exceptions::PyValueError, prelude::*};

/// Returns the policy of that name.
pub(crate) fn reuse_policy(name: &str) -> PyResult<ReusePolicy> {
    Ok(match name {
        "same_queue" => ReusePolicy::SameQueue,
        "opportunistic" => ReusePolicy::Opportunistic,
        "insert_wait" => ReusePolicy::InsertWait,
        "wait_on_host" => ReusePolicy::WaitOnHost,
        other => {
            return Err(PyValueError::new_err(format!(
                "reuse='{other}': one of 'opportunistic', 'same_queue', 'insert_wait' and 'wait_on_host' is needed"
            )));
        }
    })
}
