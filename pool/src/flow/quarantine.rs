//! Releases memory again that could not be released before.

use binpool_allocators::{Backend, Event, contained::contained};

use crate::shared::{Quarantined, Shared};

impl<B: Backend> Shared<B> {
    /// Tries again to release what is quarantined.
    pub(crate) fn release_quarantined(&self) {
        let quarantined = std::mem::take(&mut self.state.lock().quarantine);
        for quarantined in quarantined.0 {
            match quarantined {
                Quarantined::Memory(memory, uses, after) => {
                    if let Err(error) = self.release(memory, &uses, &after) {
                        contained("a subscriber", || {
                            tracing::warn!(%error, "memory can still not be given back cleanly");
                        });
                    }
                }
                // This thread must not wait: the events may depend on what it does next.
                Quarantined::Range(held, after)
                    if contained("Event::status", || after.iter().all(Event::has_ended))
                        != Some(true) =>
                {
                    self.state.lock().quarantine.keep_range(held, &after);
                }
                Quarantined::Range(held, _) => {
                    self.state.lock().transit.depart(1);
                    if self.scrubber.is_on_free() {
                        self.keep_unscrubbed(held);
                    } else {
                        self.return_to_segment(held);
                    }
                }
            }
        }
    }
}
