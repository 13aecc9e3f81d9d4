//! A runtime whose commands end when the test says so.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering},
};

use binpool_allocators::{
    Align, DeviceLimits, Error, EventStatus, FailureOrder, MemoryFlags, Outcome, QueueOrder,
    Result, Work,
    runtime::{Core, Objects, Part, Runtime},
};
use parking_lot::Mutex;

/// Clones are the same device.
#[derive(Clone, Debug)]
pub(crate) struct Scripted(Arc<Device>);

#[derive(Debug)]
struct Device {
    core: Arc<Core<Scripted>>,
    commands: Mutex<Vec<Command>>,
    blocks: Arc<AtomicUsize>,
    fails: Mutex<bool>,
}

/// What `submit` was told.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) mark: Mark,
    pub(crate) after: Vec<Mark>,
}

#[derive(Clone, Debug)]
pub(crate) struct Mark(Arc<Mutex<EventStatus>>);

impl Mark {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(EventStatus::Pending)))
    }

    pub(crate) fn set(&self, status: EventStatus) {
        *self.0.lock() = status;
    }

    pub(crate) fn get(&self) -> EventStatus {
        *self.0.lock()
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Counts as long as it is allocated.
#[derive(Debug)]
pub(crate) struct Block(Weak<AtomicUsize>);

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(blocks) = self.0.upgrade() {
            blocks.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Scripted {
    pub(crate) fn new() -> Self {
        let alignment = Align::new(16).unwrap();
        let mut limits = DeviceLimits::new("scripted", 1 << 20, 1 << 20, alignment);
        limits.failure_order = FailureOrder::Kept;
        limits.out_of_order_queues = true;
        Self(Arc::new(Device {
            core: Arc::new(Core::new(limits)),
            commands: Mutex::default(),
            blocks: Arc::default(),
            fails: Mutex::new(false),
        }))
    }

    pub(crate) fn last(&self) -> Command {
        self.0.commands.lock().last().unwrap().clone()
    }

    pub(crate) fn blocks(&self) -> usize {
        self.0.core.drop_what_has_ended();
        self.0.blocks.load(Ordering::Relaxed)
    }

    /// The next call fails, after it has enqueued something.
    pub(crate) fn fail_next(&self) {
        *self.0.fails.lock() = true;
    }
}

impl Objects for Scripted {
    type Block = Block;
    type Stream = ();
    type Mark = Mark;

    fn status(mark: &Mark) -> Result<EventStatus> {
        Ok(mark.get())
    }

    fn wait(mark: &Mark) -> Result<()> {
        assert!(mark.get().has_ended(), "a wait that never ends");
        Ok(())
    }

    fn wait_at_end(mark: &Mark) -> bool {
        mark.get().has_ended()
    }

    unsafe fn resolve(mark: &Mark, outcome: Outcome) -> Result<()> {
        mark.set(match outcome {
            Outcome::Complete => EventStatus::Complete,
            Outcome::Failed => EventStatus::Failed,
        });
        Ok(())
    }
}

impl Runtime for Scripted {
    fn core(&self) -> &Arc<Core<Self>> {
        &self.0.core
    }

    fn allocate(&self, _bytes: usize, _flags: MemoryFlags) -> Result<Block> {
        self.0.blocks.fetch_add(1, Ordering::Relaxed);
        Ok(Block(Arc::downgrade(&self.0.blocks)))
    }

    fn create_stream(&self, _order: QueueOrder) -> Result<()> {
        Ok(())
    }

    unsafe fn submit(
        &self,
        (): &(),
        after: &[Mark],
        _work: Work<'_, &Part<'_, Self>>,
    ) -> Result<Mark> {
        let (mark, after) = (Mark::new(), after.to_vec());
        let command = Command {
            mark: mark.clone(),
            after,
        };
        self.0.commands.lock().push(command);
        if std::mem::take(&mut *self.0.fails.lock()) {
            return Err(Error::backend("submit", Some(-1), "on purpose"));
        }
        Ok(mark)
    }

    fn create_user_mark(&self) -> Result<Mark> {
        Ok(Mark::new())
    }

    unsafe fn after_failure(&self, (): &(), _parts: &[&Part<'_, Self>]) -> Option<Mark> {
        Some(self.last().mark)
    }
}
