//! Local memory of a launch.

/// The local memory that each work group of a launch gets for one `local` pointer of its kernel. The seed's name.
///
/// ```
/// use binpool_opencl::LocalMemory;
///
/// // A float for each work item of a group, however large the groups are.
/// let scratch = LocalMemory::per_item::<f32>(1);
/// // 4 KiB in all.
/// let table = LocalMemory::bytes(4096);
/// # let _ = (scratch, table);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalMemory {
    bytes: usize,
    per_item: bool,
}

impl LocalMemory {
    /// That many bytes for each group.
    #[must_use]
    pub const fn bytes(bytes: usize) -> Self {
        Self {
            bytes,
            per_item: false,
        }
    }

    /// That many elements for each work item of a group. The launch needs a [`local_size`](crate::Launch::local_size),
    /// unless the kernel is compiled for one.
    #[must_use]
    pub const fn per_item<T>(elements: usize) -> Self {
        Self {
            bytes: elements.saturating_mul(size_of::<T>()),
            per_item: true,
        }
    }

    /// Returns the bytes for each group, if a group has that many work items; `None` if that number is needed and unknown.
    pub(super) fn for_group_of(self, items: Option<usize>) -> Option<usize> {
        if self.per_item {
            items.map(|items| self.bytes.saturating_mul(items))
        } else {
            Some(self.bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_for_a_group_and_elements_for_each_of_its_items() {
        assert_eq!(LocalMemory::bytes(100).for_group_of(None), Some(100));
        assert_eq!(LocalMemory::bytes(100).for_group_of(Some(8)), Some(100));
        let pair = LocalMemory::per_item::<f32>(2);
        assert_eq!(pair.for_group_of(Some(8)), Some(64));
        assert_eq!(pair.for_group_of(None), None);
        let huge = LocalMemory::per_item::<u64>(usize::MAX);
        assert_eq!(huge.for_group_of(Some(2)), Some(usize::MAX));
    }
}
