//! A clock that is cheap to read.

use std::{sync::LazyLock, time::Duration};

/// The processor's counter where it is reliable, which takes half as long to read as the system's clock. Its first use
/// takes up to 0.2 seconds. Miri has no such counter; there no time passes.
static CLOCK: LazyLock<quanta::Clock> = LazyLock::new(|| {
    if cfg!(miri) {
        quanta::Clock::mock().0
    } else {
        quanta::Clock::new()
    }
});

/// A clock whose ticks are those of the fastest counter of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Ticks(quanta::Clock);

impl Ticks {
    pub(crate) fn new() -> Self {
        Self(CLOCK.clone())
    }

    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.0.raw()
    }

    /// Returns the time between two moments; 0 if `to` is before `from`.
    pub(crate) fn nanoseconds(&self, from: u64, to: u64) -> u64 {
        self.0.delta_as_nanos(from, to.max(from))
    }

    pub(crate) fn since(&self, moment: u64) -> Duration {
        Duration::from_nanos(self.nanoseconds(moment, self.now()))
    }
}
