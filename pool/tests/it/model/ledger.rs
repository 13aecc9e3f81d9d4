//! The allocator below the pool, which writes down where every block lies and what the pool has of it.

use std::{
    collections::BTreeMap,
    mem::take,
    sync::{Arc, Mutex},
};

use binpool::{Allocator, Error, Memory, MemoryId, Region};
use binpool_allocators::{Align, MemoryOf};
use binpool_mock::{MockBackend, MockEvent};

/// Where some bytes lie: in which block of the allocator's, and where there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) root: MemoryId,
    pub(crate) region: Region,
}

impl Extent {
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.root == other.root && self.region.overlaps(other.region)
    }
}

/// What went through the allocator.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The blocks that the pool has, and their sizes.
    pub(crate) roots: BTreeMap<MemoryId, usize>,
    /// The views of them.
    views: BTreeMap<MemoryId, Extent>,
    /// The most bytes that the pool had.
    pub(crate) peak_bytes: usize,
    /// Blocks that were given, ever.
    pub(crate) given: u64,
    /// Those of this step.
    pub(crate) fresh: Vec<MemoryId>,
    /// Those that came back in this step, with their sizes.
    pub(crate) returned: Vec<(MemoryId, usize)>,
    /// What the pool must not do, and did.
    complaints: Vec<String>,
}

impl Ledger {
    pub(crate) fn bytes(&self) -> usize {
        self.roots.values().sum()
    }

    pub(crate) fn extent(&self, memory: MemoryId) -> Option<Extent> {
        let root = self.roots.get(&memory).map(|bytes| Extent {
            root: memory,
            region: Region::first(*bytes),
        });
        root.or_else(|| self.views.get(&memory).copied())
    }

    /// Takes a block out of the pool for good.
    pub(crate) fn forget(&mut self, memory: MemoryId) {
        self.roots.remove(&memory);
    }

    pub(crate) fn begin_step(&mut self) {
        self.fresh.clear();
        self.returned.clear();
    }

    pub(crate) fn check(&mut self) -> Result<(), String> {
        let complaints = take(&mut self.complaints);
        if complaints.is_empty() {
            Ok(())
        } else {
            Err(complaints.join("; "))
        }
    }

    fn give(&mut self, memory: MemoryId, bytes: usize) {
        self.roots.insert(memory, bytes);
        self.given += 1;
        self.fresh.push(memory);
        self.peak_bytes = self.peak_bytes.max(self.bytes());
    }

    fn take_back(&mut self, memory: MemoryId) {
        match self.roots.remove(&memory) {
            Some(bytes) => self.returned.push((memory, bytes)),
            None => self
                .complaints
                .push(format!("{memory} came back, and was not the pool's")),
        }
        if self.views.values().any(|view| view.root == memory) {
            self.complaints
                .push(format!("{memory} came back before its views"));
        }
    }

    fn view(&mut self, view: MemoryId, extent: Extent) {
        if let Some(other) = self.views.values().find(|other| other.overlaps(extent)) {
            self.complaints
                .push(format!("a view {extent:?} was made over one {other:?}"));
        }
        self.views.insert(view, extent);
    }

    /// A view was dropped, by any thread.
    pub(crate) fn drop_view(&mut self, view: MemoryId) {
        if self.views.remove(&view).is_none() {
            self.complaints
                .push(format!("{view} was released, and was no view"));
        }
    }
}

/// Any allocator, with a [`Ledger`].
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    inner: Arc<dyn Allocator<Backend = MockBackend>>,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
}

impl Recorded {
    pub(crate) fn new(inner: impl Allocator<Backend = MockBackend>) -> Self {
        Self {
            inner: Arc::new(inner),
            ledger: Arc::default(),
        }
    }

    /// Frees memory that was taken out of the pool.
    pub(crate) fn free_detached(
        &self,
        memory: MemoryOf<Self>,
        after: &[MockEvent],
    ) -> Result<(), Error> {
        self.inner.release(memory, after)
    }
}

impl Allocator for Recorded {
    type Backend = MockBackend;

    fn backend(&self) -> &MockBackend {
        self.inner.backend()
    }

    fn allocate(&self, bytes: usize) -> Result<MemoryOf<Self>, Error> {
        let memory = self.inner.allocate(bytes)?;
        self.ledger.lock().unwrap().give(memory.id(), bytes);
        Ok(memory)
    }

    fn release(&self, memory: MemoryOf<Self>, after: &[MockEvent]) -> Result<(), Error> {
        self.ledger.lock().unwrap().take_back(memory.id());
        self.inner.release(memory, after)
    }

    fn create_view(&self, block: &MemoryOf<Self>, region: Region) -> Result<MemoryOf<Self>, Error> {
        let view = self.inner.create_view(block, region)?;
        let root = block.id();
        let extent = Extent { root, region };
        self.ledger.lock().unwrap().view(view.id(), extent);
        Ok(view)
    }

    fn release_view(&self, view: MemoryOf<Self>) {
        self.ledger.lock().unwrap().drop_view(view.id());
        self.inner.release_view(view);
    }

    fn is_deferred(&self) -> bool {
        self.inner.is_deferred()
    }

    fn release_needs_events(&self) -> bool {
        self.inner.release_needs_events()
    }

    fn alignment(&self) -> Align {
        self.inner.alignment()
    }

    fn largest_block(&self) -> usize {
        self.inner.largest_block()
    }

    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }

    fn available_bytes(&self) -> u64 {
        self.inner.available_bytes()
    }
}
