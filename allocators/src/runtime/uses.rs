//! The commands that use a block.

use super::Objects;
use crate::{QueueId, Region, Result};

/// What a command does with a part of memory.
///
/// ```
/// use binpool_allocators::runtime::Access;
///
/// // Two reads do not conflict.
/// let conflict = |one, other| one == Access::Write || other == Access::Write;
/// assert!(!conflict(Access::Read, Access::Read) && conflict(Access::Read, Access::Write));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It reads there.
    Read,
    /// It writes there, and may read.
    Write,
}

/// A block with this many entries is searched for commands that have ended.
const KEPT: usize = 16;

/// The commands that may use a block still.
///
/// # Invariants
///
/// - U1: when everything here has ended, no command uses the block.
/// - U2: a command that is not here conflicts with no later one, or has ended, or is before one that is here on the same in-order
///   queue.
pub(super) struct Uses<R: Objects> {
    commands: Vec<Use<R>>,
    /// Other things that have to end before the block is freed.
    others: Vec<R::Mark>,
    /// The length at which to look for commands that have ended.
    sweep_at: usize,
}

pub(super) struct Use<R: Objects> {
    pub(super) queue: QueueId,
    /// The command's number on its queue, if an end of a later command of the queue tells that this one has ended.
    pub(super) number: Option<u64>,
    pub(super) mark: R::Mark,
    pub(super) region: Region,
    pub(super) access: Access,
}

impl<R: Objects> Clone for Use<R> {
    fn clone(&self) -> Self {
        Self {
            mark: self.mark.clone(),
            ..*self
        }
    }
}

impl<R: Objects> Default for Uses<R> {
    fn default() -> Self {
        Self {
            commands: Vec::new(),
            others: Vec::new(),
            sweep_at: KEPT,
        }
    }
}

impl<R: Objects> Uses<R> {
    /// Notes a command. One that later commands may have to come after is noted with its region and access, and replaces only
    /// those of its queue that conflict with nothing else; otherwise the last command of an in-order queue is enough.
    pub(super) fn note(&mut self, mut new: Use<R>, by_region: bool) {
        if !by_region {
            (new.region, new.access) = (Region::first(usize::MAX), Access::Write);
        }
        if new.number.is_some() {
            let mut known = self.commands.iter_mut();
            let replaced =
                known.find(|old| old.queue == new.queue && old.number.is_some() && new.covers(old));
            if let Some(old) = replaced {
                // Its own number is that of another part of the same command.
                if old.number <= new.number {
                    *old = new;
                }
                return;
            }
        }
        if self.commands.len() >= self.sweep_at {
            self.commands.retain(|old| !R::has_ended(&old.mark));
            self.sweep_at = KEPT.max(2 * self.commands.len());
        }
        self.commands.push(new);
    }

    /// Notes something else that has to end before the block is freed.
    pub(super) fn note_other(&mut self, mark: R::Mark) {
        if self.others.len() >= KEPT {
            self.others.retain(|old| !R::has_ended(old));
        }
        self.others.push(mark);
    }

    /// Adds the marks that a command on `queue` comes after.
    pub(super) fn collect_conflicting(
        &self,
        queue: QueueId,
        (region, access): (Region, Access),
        after: &mut impl Extend<R::Mark>,
    ) {
        let conflicting = self.commands.iter().filter(|old| {
            let is_before = old.queue == queue && old.number.is_some();
            !is_before && old.conflicts(region, access) && !R::has_ended(&old.mark)
        });
        after.extend(conflicting.map(|old| old.mark.clone()));
        after.extend(self.others.iter().cloned());
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.commands.extend(other.commands.iter().cloned());
        self.others.extend(other.others.iter().cloned());
    }

    /// Returns whether all of them have ended.
    ///
    /// # Errors
    ///
    /// A failure of the runtime to tell.
    pub(super) fn have_ended(&self) -> Result<bool> {
        let commands = self.commands.iter().map(|old| &old.mark);
        for mark in commands.chain(&self.others) {
            if !R::status(mark)?.has_ended() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes the marks of all commands, and of the others.
    pub(super) fn take(&mut self) -> (Vec<R::Mark>, Vec<R::Mark>) {
        let commands = std::mem::take(&mut self.commands).into_iter();
        let marks = commands.map(|old| old.mark).collect();
        (marks, std::mem::take(&mut self.others))
    }
}

impl<R: Objects> Use<R> {
    fn conflicts(&self, region: Region, access: Access) -> bool {
        self.region.overlaps(region) && (access == Access::Write || self.access == Access::Write)
    }

    /// Returns whether what conflicts with the other conflicts with this.
    fn covers(&self, other: &Self) -> bool {
        let is_around =
            self.region.offset <= other.region.offset && self.region.end() >= other.region.end();
        is_around && (self.access == Access::Write || other.access == Access::Read)
    }
}
