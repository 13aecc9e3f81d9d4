//! The choice of the memory that suits a device.

use std::{fmt, sync::Arc};

use binpool_allocators::{
    Allocator, ImmediateAllocator, MemoryKind, Result, SvmAllocator, SvmGrain,
};

use crate::{
    backend::OpenClBackend,
    device::{characterize::Characterization, kind::DeviceKind},
};

/// An allocator that suits a device, and why.
///
/// ```
/// use binpool::{Backend, Memory, MemoryPool, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let choice = backend.preferred_allocator()?;
/// let pool = MemoryPool::new(choice.allocator, &queue)?;
/// let block = pool.allocate(4096)?;
/// assert_eq!(block.memory_on(&queue).map(Memory::kind), Some(choice.kind));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct MemoryChoice {
    /// The allocator, ready for a pool.
    pub allocator: Arc<dyn Allocator<Backend = OpenClBackend>>,
    /// The kind of its memory.
    pub kind: MemoryKind,
    /// The reason, in words.
    pub reason: String,
}

impl fmt::Debug for MemoryChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryChoice")
            .field("kind", &self.kind)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for MemoryChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl OpenClBackend {
    /// Returns an allocator of the memory that suits the device best: fine-grained shared virtual memory if device and
    /// host have one memory, buffers that are committed when they are allocated everywhere else.
    ///
    /// ```
    /// use binpool_allocators::{Backend, Memory};
    /// use binpool_opencl::OpenClBackend;
    ///
    /// let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let choice = backend.preferred_allocator()?;
    /// assert!(choice.reason.starts_with(&backend.limits().device_name));
    /// println!("{choice}"); // "NVIDIA H200: buffers, since ..."
    /// assert_eq!(choice.allocator.allocate(4096)?.kind(), choice.kind);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn preferred_allocator(&self) -> Result<MemoryChoice> {
        let device = self.characterize()?;
        let (grain, reason) = choose(&device);
        let allocator: Arc<dyn Allocator<Backend = Self>> = match grain {
            Some(grain) => Arc::new(SvmAllocator::new(self, grain)?),
            None => Arc::new(ImmediateAllocator::new(self)?),
        };
        let name = &device.limits.device_name;
        Ok(MemoryChoice {
            allocator,
            kind: grain.map_or(MemoryKind::Buffer, MemoryKind::Svm),
            reason: format!("{name}: {reason}"),
        })
    }
}

/// Returns the grain of shared virtual memory, or `None` for buffers, and the reason.
fn choose(device: &Characterization) -> (Option<SvmGrain>, &'static str) {
    let one_memory = device.unified_memory || device.kind == DeviceKind::Cpu;
    if !device.limits.svm.coarse && !device.limits.svm.fine {
        return (None, "buffers, since it has no shared virtual memory");
    }
    if !device.limits.svm.fine {
        return (
            None,
            "buffers, since its shared virtual memory is coarse-grained: the host has to map it as it maps buffers, and it \
             may cost far more to allocate (on an NVIDIA H200 1.3 to 276 ms a block, where a buffer costs 75 to 230 us)",
        );
    }
    if !one_memory {
        return (
            None,
            "buffers, since its memory is not the host's: fine-grained shared virtual memory would be reached over the bus",
        );
    }
    (
        Some(SvmGrain::Fine),
        "fine-grained shared virtual memory, since it and the host have one memory: an allocation costs as little as that \
         of a buffer, and pointers mean the same on both sides",
    )
}

#[cfg(test)]
mod tests {
    use binpool_allocators::{Align, DeviceLimits};

    use super::*;
    use crate::device::image_limits::ImageLimits;

    fn device(kind: DeviceKind, unified_memory: bool, svm: (bool, bool)) -> Characterization {
        let mut limits = DeviceLimits::new("some device", 1 << 30, 1 << 28, Align::ONE);
        (limits.svm.coarse, limits.svm.fine) = svm;
        Characterization {
            kind,
            platform: String::new(),
            driver: String::new(),
            version: (3, 0),
            c_version: (1, 2),
            limits,
            unified_memory,
            cache_bytes: 0,
            cache_line_bytes: 64,
            compute_units: 1,
            work_group_size: 1,
            work_item_sizes: vec![1; 3],
            local_memory_bytes: 0,
            dedicated_local_memory: false,
            images: ImageLimits::default(),
            doubles: false,
            halves: false,
            p2p_copies: false,
            extensions: Vec::new(),
        }
    }

    #[test]
    fn svm_is_chosen_where_the_host_has_it_for_nothing() {
        use DeviceKind::{Cpu, Gpu};
        let cases = [
            (Gpu, false, (false, false), "no shared"),
            (Gpu, false, (true, false), "276 ms"),
            (Gpu, true, (true, false), "coarse-grained"),
            (Gpu, false, (true, true), "over the bus"),
            (Gpu, true, (true, true), "one memory"),
            (Cpu, false, (true, true), "one memory"),
        ];
        for (kind, unified, svm, why) in cases {
            let (chosen, reason) = choose(&device(kind, unified, svm));
            let expected = (why == "one memory").then_some(SvmGrain::Fine);
            assert_eq!(chosen, expected, "{kind} {unified} {svm:?}");
            assert!(reason.contains(why), "{reason}");
        }
    }
}
