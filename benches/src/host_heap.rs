//! Heaps of the host: not the same service, but a price that readers know.

#![expect(unsafe_code, reason = "the peers are allocators of the host")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fmt,
    marker::PhantomData,
    ptr::NonNull,
};

use mimalloc::MiMalloc;
use snmalloc_rs::SnMalloc;

use crate::Subject;

/// A heap of host memory.
pub trait Heap: Sync {
    /// The heap's own type.
    type Allocator: GlobalAlloc;

    /// Its name in the tables.
    const NAME: &'static str;

    /// The heap of the process.
    const ALLOCATOR: Self::Allocator;
}

/// The C library's `malloc` and `free`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Malloc;

impl Heap for Malloc {
    type Allocator = System;

    const NAME: &'static str = "malloc";

    const ALLOCATOR: System = System;
}

/// `mimalloc`, which has a heap for each thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mimalloc;

impl Heap for Mimalloc {
    type Allocator = MiMalloc;

    const NAME: &'static str = "mimalloc";

    const ALLOCATOR: MiMalloc = MiMalloc;
}

/// `snmalloc`, which sends freed blocks to the thread that allocated them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snmalloc;

impl Heap for Snmalloc {
    type Allocator = SnMalloc;

    const NAME: &'static str = "snmalloc";

    const ALLOCATOR: SnMalloc = SnMalloc;
}

/// A block of host memory.
pub struct HostBlock<H: Heap> {
    address: NonNull<u8>,
    layout: Layout,
    heap: PhantomData<H>,
}

// SAFETY: the block owns its memory, and each heap takes blocks back from any thread.
unsafe impl<H: Heap> Send for HostBlock<H> {}

impl<H: Heap> fmt::Debug for HostBlock<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostBlock")
            .field("address", &self.address)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

impl<H: Heap> HostBlock<H> {
    /// A block of at least one byte, that was never touched.
    fn allocate(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(1), 16).ok()?;
        // SAFETY: the layout's size is not zero.
        let address = unsafe { H::ALLOCATOR.alloc(layout) };
        Some(Self {
            address: NonNull::new(address)?,
            layout,
            heap: PhantomData,
        })
    }
}

impl<H: Heap> Drop for HostBlock<H> {
    fn drop(&mut self) {
        // SAFETY: `address` came from this heap with this layout, and is freed here only.
        unsafe { H::ALLOCATOR.dealloc(self.address.as_ptr(), self.layout) }
    }
}

impl<H: Heap> Subject for H {
    type Block = HostBlock<H>;

    const NAME: &'static str = <H as Heap>::NAME;

    fn allocate(&self, bytes: usize) -> Option<HostBlock<H>> {
        HostBlock::allocate(bytes)
    }
}
