//! Memory that bins released to the device, and that was requested again.
//!
//! What follows from it, and why, is in docs/design/growth.md.

/// Memory that was released to the device and requested again, in bytes: the cost of releasing memory.
///
/// A pool that gives memory back cannot know whether the program is about to ask for it again. It keeps as much memory as giving memory
/// back has already cost, like a skier who rents until the rents add up to the price of a pair of skis (Karlin, Manasse, Rudolph, Sleator:
/// *Competitive snoopy caching*, 1988).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Regret {
    /// The bytes that were released and not requested again.
    gone: u64,
    /// The bytes that were requested again.
    bytes: u64,
    /// Set if anything was requested again since the last sweep.
    is_recent: bool,
}

impl Regret {
    /// Records that `bytes` bytes were released to keep to the high water.
    pub(super) fn went_back(&mut self, bytes: u64) {
        self.gone = self.gone.saturating_add(bytes);
    }

    /// Records that `bytes` bytes are requested from the device.
    pub(super) fn asked(&mut self, bytes: u64) {
        let again = bytes.min(self.gone);
        self.gone -= again;
        self.bytes = self.bytes.saturating_add(again);
        self.is_recent |= again > 0;
    }

    /// The bytes that were requested again.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets half of it, unless something was requested again since the last call.
    pub(super) fn sweep(&mut self) {
        if !std::mem::take(&mut self.is_recent) {
            self.gone /= 2;
            self.bytes /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_went_back_before_is_regretted() {
        let mut regret = Regret::default();
        regret.asked(100);
        assert_eq!(regret.bytes(), 0, "nothing went back");
        regret.went_back(100);
        regret.asked(70);
        assert_eq!(regret.bytes(), 70);
        regret.asked(70);
        assert_eq!(regret.bytes(), 100, "no more than went back");
        regret.asked(70);
        assert_eq!(regret.bytes(), 100);
    }

    #[test]
    fn what_was_asked_for_again_any_number_of_times_since_the_last_sweep_is_recent() {
        let mut regret = Regret::default();
        regret.went_back(300);
        regret.asked(100);
        regret.asked(100);
        regret.sweep();
        assert_eq!(regret.bytes(), 200);
    }

    #[test]
    fn a_sweep_without_regret_forgets_half() {
        let mut regret = Regret::default();
        regret.went_back(300);
        regret.asked(100);
        regret.sweep();
        assert_eq!(regret.bytes(), 100, "it is recent");
        regret.sweep();
        assert_eq!(regret.bytes(), 50);
        // Of the 200 that were left, 100 are remembered.
        regret.asked(200);
        assert_eq!(regret.bytes(), 150);
        regret.sweep();
        // What never went back is no regret.
        regret.asked(1000);
        regret.sweep();
        assert_eq!(regret.bytes(), 75);
        (0..9).for_each(|_| regret.sweep());
        assert_eq!(regret.bytes(), 0);
    }
}
