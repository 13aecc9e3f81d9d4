//! What is to be freed once the commands that use it have ended.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

use crate::sys::{Context, Gate, Mark};

/// Each command looks at so many graves, which is more than it makes.
const LOOKS: usize = 4;

/// Something that ends.
pub(crate) enum End {
    Mark(Arc<Mark>),
    /// Resolved, or dropped by the program.
    Gate(Weak<Gate>),
    /// A command whose event could not be recorded: everything on the device.
    Everything(Arc<Context>),
}

impl End {
    pub(crate) fn has_come(&self) -> bool {
        match self {
            Self::Mark(mark) => mark.is_over(),
            Self::Gate(gate) => gate.upgrade().is_none_or(|gate| gate.is_open()),
            Self::Everything(context) => context.has_all_ended(),
        }
    }

    /// Waits, while no device waits for the host. Returns whether it has come.
    fn wait(&self) -> bool {
        match self {
            Self::Mark(mark) => mark.wait().is_ok() || mark.context().has_all_ended(),
            Self::Gate(_) | Self::Everything(_) => self.has_come(),
        }
    }
}

/// When a value may be dropped, besides its commands having ended.
#[derive(Clone, Copy, Default)]
pub(crate) struct Conditions {
    /// Not while the device may wait for the host, since the drop waits for the device.
    pub(crate) nothing_unresolved: bool,
    /// Not while a stream is captured, since the drop would spoil the capture, or be a part of the graph.
    pub(crate) no_capture: bool,
}

impl Conditions {
    fn forbid_it(self, context: &Context) -> bool {
        (self.nothing_unresolved && context.has_unresolved())
            || (self.no_capture && context.has_capture())
    }
}

struct Grave {
    after: Vec<End>,
    when: Conditions,
    /// Dropped in the end.
    held: Box<dyn Send>,
}

/// Values that are dropped once commands have ended. No thread waits for that: each call of the backend looks whether it is so.
pub(crate) struct Graveyard {
    context: Arc<Context>,
    graves: Mutex<VecDeque<Grave>>,
    has_warned: AtomicBool,
}

impl Graveyard {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        Self {
            context: Arc::clone(context),
            graves: Mutex::new(VecDeque::new()),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Drops `held` after all of `after`.
    pub(crate) fn bury(&self, held: impl Send + 'static, after: Vec<End>, when: Conditions) {
        let mut grave = Grave {
            after,
            when,
            held: Box::new(held),
        };
        if !self.may_go(&mut grave) {
            self.graves.lock().push_back(grave);
        }
    }

    /// Looks at some graves, in turn.
    pub(crate) fn reap_some(&self) {
        self.reap(LOOKS);
    }

    /// Looks at all graves.
    pub(crate) fn reap_all(&self) {
        let all = self.graves.lock().len();
        self.reap(all);
    }

    /// Says once, where memory has run out, that there would be some but for a user event.
    pub(crate) fn warn_of_unresolved(&self) {
        let blocks = self.graves.lock().len();
        if blocks == 0 || !self.context.has_unresolved() {
            return;
        }
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                blocks,
                "memory ran out while blocks cannot be freed, since streams wait for a user event: resolve or drop it"
            );
        }
    }

    fn reap(&self, looks: usize) {
        self.context.free_again();
        for _ in 0..looks {
            let Some(mut grave) = self.graves.lock().pop_front() else {
                return;
            };
            if self.may_go(&mut grave) {
                // The driver is called here, outside the lock.
                drop(grave.held);
            } else {
                self.graves.lock().push_back(grave);
            }
        }
    }

    fn may_go(&self, grave: &mut Grave) -> bool {
        grave.after.retain(|end| !end.has_come());
        grave.after.is_empty() && !grave.when.forbid_it(&self.context)
    }
}

impl Drop for Graveyard {
    fn drop(&mut self) {
        self.reap_all();
        let graves = std::mem::take(&mut *self.graves.lock());
        if graves.is_empty() {
            return;
        }
        let may_wait = !self.context.has_unresolved();
        let mut ends = graves.iter().flat_map(|grave| &grave.after);
        let have_come = may_wait && ends.all(End::wait);
        if !have_come
            || graves
                .iter()
                .any(|grave| grave.when.forbid_it(&self.context))
        {
            let blocks = graves.len();
            tracing::warn!(
                blocks,
                "memory is lost: the backend is dropped before a user event that its commands may wait for, or while a stream is captured"
            );
            std::mem::forget(graves);
        }
    }
}
