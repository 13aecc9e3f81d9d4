//! Which arena of the segments each thread carves from.

use crate::rare::{Rare, reached};

/// The number of arenas. Fewer under `shuttle` and Miri, whose programs have few threads.
pub(crate) const ARENAS: usize = if cfg!(any(shuttle, miri)) { 2 } else { 16 };

/// The number of threads that each arena is the home of.
///
/// A thread that joins gets the first arena that has the fewest. So a program with one thread at a time has one arena.
#[derive(Debug, Default)]
pub(crate) struct Homes([usize; ARENAS]);

impl Homes {
    /// Returns the home of a thread that joins the pool.
    pub(crate) fn join(&mut self) -> usize {
        let fewest = (0..ARENAS).min_by_key(|home| self.0[*home]).unwrap_or(0);
        self.0[fewest] += 1;
        reached(Rare::HomeTaken);
        fewest
    }

    /// Counts the end of a thread with this home.
    pub(crate) fn end(&mut self, home: usize) {
        self.0[home] -= 1;
        reached(Rare::HomeLeft);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_homes_only_where_there_are_more_threads_than_arenas() {
        let mut homes = Homes::default();
        for round in 0..3 {
            for home in 0..ARENAS {
                assert_eq!(homes.join(), home, "{round}");
            }
        }
        homes.end(ARENAS - 1);
        assert_eq!((homes.join(), homes.join()), (ARENAS - 1, 0));
    }
}
