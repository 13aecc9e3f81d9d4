//! Calls that are to fail, and how often each was made.

use std::collections::HashMap;

use crate::Code;

#[derive(Default)]
pub(crate) struct Faults {
    calls: HashMap<String, u64>,
    planned: Vec<Fault>,
}

struct Fault {
    call: String,
    /// The calls that succeed before.
    before: u64,
    times: u64,
    code: Code,
}

impl Faults {
    /// Makes `times` calls fail after `before` others.
    pub(crate) fn plan(&mut self, call: String, before: u64, times: u64, code: Code) {
        self.planned.push(Fault {
            call,
            before,
            times,
            code,
        });
    }

    /// Counts a call, and returns its error.
    pub(crate) fn call(&mut self, name: &str) -> Result<(), Code> {
        *self.calls.entry(name.to_owned()).or_default() += 1;
        for fault in &mut self.planned {
            if fault.call != name {
                continue;
            }
            if fault.before > 0 {
                fault.before -= 1;
            } else if fault.times > 0 {
                fault.times -= 1;
                return Err(fault.code);
            }
        }
        Ok(())
    }

    pub(crate) fn count(&self, call: &str) -> u64 {
        self.calls.get(call).copied().unwrap_or(0)
    }
}
