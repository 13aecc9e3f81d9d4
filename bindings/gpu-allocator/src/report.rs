//! What is allocated at a moment.

use std::{cmp::Reverse, fmt, ops::Range};

use binpool_allocators::words;

/// A live allocation.
///
/// ```
/// use binpool_gpu_allocator::AllocationReport;
///
/// let report = AllocationReport { name: "vertices".to_owned(), offset: 0, size: 2048 };
/// assert_eq!(format!("{report:?}"), r#""vertices": 2.0 KiB"#);
/// ```
#[derive(Clone)]
pub struct AllocationReport {
    /// The name that the program gave.
    pub name: String,
    /// The offset in its memory block.
    pub offset: u64,
    /// The size in bytes.
    pub size: u64,
}

/// A memory block: a `VkDeviceMemory`.
///
/// ```
/// use binpool_gpu_allocator::AllocatorReport;
///
/// fn bytes_of_the_first_block(report: &AllocatorReport) -> Option<u64> {
///     let block = report.blocks.first()?;
///     let sizes = report.allocations[block.allocations.clone()].iter().map(|allocation| allocation.size);
///     Some(sizes.sum())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryBlockReport {
    /// The size in bytes.
    pub size: u64,
    /// The indices of its allocations among those of the report.
    pub allocations: Range<usize>,
}

/// What [`generate_report`](crate::vulkan::Allocator::generate_report) returns. `Debug` prints the largest allocations; the precision sets
/// their number.
///
/// ```
/// use binpool_gpu_allocator::vulkan::Allocator;
///
/// fn log(allocator: &Allocator) {
///     println!("{:.5?}", allocator.generate_report());
/// }
/// ```
#[derive(Clone)]
pub struct AllocatorReport {
    /// All live allocations, grouped by memory block.
    pub allocations: Vec<AllocationReport>,
    /// All memory blocks.
    pub blocks: Vec<MemoryBlockReport>,
    /// The bytes of all allocations.
    pub total_allocated_bytes: u64,
    /// The bytes of all memory blocks.
    pub total_capacity_bytes: u64,
}

impl fmt::Debug for AllocationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() {
            "--"
        } else {
            &self.name
        };
        write!(f, "{name:?}: {}", words::bytes(self.size))
    }
}

impl fmt::Debug for AllocatorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut largest: Vec<_> = self.allocations.iter().collect();
        largest.sort_by_key(|allocation| Reverse(allocation.size));
        largest.truncate(f.precision().unwrap_or(usize::MAX));
        let [used, all] = [self.total_allocated_bytes, self.total_capacity_bytes];
        let summary = [used, all].map(words::bytes).join(" / ");
        f.debug_struct("AllocatorReport")
            .field("summary", &format_args!("{summary}"))
            .field("blocks", &self.blocks.len())
            .field("allocations", &self.allocations.len())
            .field("largest", &largest)
            .finish()
    }
}
