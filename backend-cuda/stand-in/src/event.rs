//! CUDA events: what was recorded, and whether it has ended.

use std::{collections::HashSet, time::Duration};

use parking_lot::{Condvar, Mutex};

use crate::{CAPTURED_EVENT, Code, capture, device::Device};

/// A thread that waits looks so often whether the device is lost.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(crate) struct Event {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How often it was recorded.
    recorded: u64,
    /// The records that have not ended, each of which a stream may wait for.
    pending: HashSet<u64>,
    /// The stream whose capture has the last record.
    captured: Option<usize>,
}

impl Event {
    /// Returns the number of a new record.
    pub(crate) fn record(&self) -> u64 {
        let mut state = self.state.lock();
        state.recorded += 1;
        state.captured = None;
        let record = state.recorded;
        state.pending.insert(record);
        record
    }

    /// Records it in a capture of a stream.
    pub(crate) fn capture(&self, stream: usize) {
        self.state.lock().captured = Some(stream);
    }

    /// The stream whose capture has the last record.
    pub(crate) fn captured(&self) -> Option<usize> {
        self.state.lock().captured
    }

    /// Checks that the host may ask for it; if not, that spoils the capture.
    pub(crate) fn check_host(&self) -> Result<(), Code> {
        match self.captured() {
            Some(stream) => Err(capture::spoil(stream, CAPTURED_EVENT)),
            None => Ok(()),
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.state.lock().recorded
    }

    pub(crate) fn end(&self, record: u64) {
        let mut state = self.state.lock();
        state.pending.remove(&record);
        self.changed.notify_all();
    }

    pub(crate) fn has_ended(&self) -> bool {
        let state = self.state.lock();
        !state.pending.contains(&state.recorded)
    }

    /// Waits for a record, or until one of the devices is lost.
    pub(crate) fn wait(&self, record: u64, devices: [&Device; 2]) {
        let mut state = self.state.lock();
        while state.pending.contains(&record) && !devices.iter().any(|device| device.is_lost()) {
            self.changed.wait_for(&mut state, LOOK);
        }
    }
}
