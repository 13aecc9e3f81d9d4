//! The commands that failed commands should have come after.
//!
//! A failed command does not tell whether those have ended, so a command after it comes after those, too. They may have failed as well, and
//! so on: a chain of failed commands may reach back to the start of the program. A command that has ended stays ended, so each look at such a
//! chain keeps only the pending ones, and the next look takes no longer than if none had failed.

use std::{collections::HashMap, sync::Arc};

use crate::{
    order::tracked_command::{Earlier, Standing, TrackedCommand},
    sys::ClResult,
};

/// The failed commands that a walk has reached. Each is looked at once, however many paths lead to it.
#[derive(Default)]
struct Seen(HashMap<*const TrackedCommand, Arc<TrackedCommand>>);

impl Seen {
    fn is_new(&mut self, command: &Arc<TrackedCommand>) -> bool {
        // While this reference lives, no other command can have the address.
        let former = self.0.insert(Arc::as_ptr(command), Arc::clone(command));
        former.is_none()
    }
}

/// A failed command whose earlier commands are being looked at.
struct Step {
    failed: Arc<TrackedCommand>,
    /// The earlier commands that are still to be looked at.
    left: Earlier,
    pending: Earlier,
}

impl Step {
    fn of(failed: Arc<TrackedCommand>) -> Self {
        Self {
            left: failed.earlier(),
            failed,
            pending: Earlier::new(),
        }
    }
}

/// Returns the pending commands that `failed`, which has failed, was to come after. From now on, it and the failed ones before it remember
/// only those.
///
/// A loop, since recursion over a long chain would overflow the stack.
pub(crate) fn pending_before(failed: &Arc<TrackedCommand>) -> ClResult<Earlier> {
    let mut seen = Seen::default();
    let mut steps = Vec::new();
    let mut step = Step::of(Arc::clone(failed));
    loop {
        let Some(command) = step.left.pop() else {
            let pending = each_once(step.pending);
            step.failed.comes_after_only(pending.clone())?;
            step = match steps.pop() {
                Some(later) => later,
                None => return Ok(pending),
            };
            step.pending.extend(pending);
            continue;
        };
        command.wait_until_decided();
        match command.standing()? {
            Standing::Over => {}
            Standing::Pending(_) => step.pending.push(Arc::clone(&command)),
            Standing::Failed if seen.is_new(&command) => {
                let earlier = Step::of(Arc::clone(&command));
                steps.push(std::mem::replace(&mut step, earlier));
            }
            Standing::Failed => step.pending.extend(command.earlier()),
        }
    }
}

/// Returns the commands that stand for `command`, which has failed: the pending ones that it was to come after. `None` if it has not
/// failed, or if it has a companion of a user event that no other command has.
pub(crate) fn in_place_of(command: &Arc<TrackedCommand>) -> Option<Earlier> {
    if !command.has_failed() {
        return None;
    }
    // There is nothing to wait for: the commands that a failed one comes after were enqueued before it.
    let pending = pending_before(command).ok()?;
    command.shares_companions_with(&pending).then_some(pending)
}

fn each_once(mut commands: Earlier) -> Earlier {
    commands.sort_unstable_by_key(Arc::as_ptr);
    commands.dedup_by(|one, other| Arc::ptr_eq(one, other));
    commands
}
