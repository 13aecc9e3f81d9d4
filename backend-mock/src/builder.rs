//! The builder of mock devices.

use std::sync::Arc;

use binpool_allocators::{Align, SvmSupport};

use crate::{
    Completion, DeviceProfile, Failures, HostWait, MockDevice, cause::saturate, config::Config,
    shared::Shared,
};

/// Builds a [`MockDevice`].
///
/// ```
/// use binpool_allocators::Align;
/// use binpool_mock::{Completion, MockDevice};
///
/// let device = MockDevice::builder()
///     .capacity_bytes(64 << 20)
///     .alignment(Align::new(512).expect("a power of two"))
///     .completion(Completion::Seeded(7))
///     .build();
/// assert_eq!(device.limits().capacity_bytes, 64 << 20);
/// assert_eq!(device.limits().largest_block_bytes, 64 << 20);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct MockDeviceBuilder {
    config: Config,
    /// `None` if the largest block follows from the capacity.
    largest_block_bytes: Option<usize>,
}

impl MockDeviceBuilder {
    /// Sets the memory of the device, in bytes. Default: 1 GiB.
    pub fn capacity_bytes(mut self, bytes: u64) -> Self {
        self.config.limits.capacity_bytes = bytes;
        self
    }

    /// Sets the largest single block, in bytes. Default: the capacity, or the profile's if that is less.
    pub fn largest_block_bytes(mut self, bytes: usize) -> Self {
        self.largest_block_bytes = Some(bytes);
        self
    }

    /// Sets the alignment that sub-regions must have. Default: 256 bytes.
    pub fn alignment(mut self, alignment: Align) -> Self {
        self.config.limits.alignment = alignment;
        self
    }

    /// Sets the largest alignment that can be requested for SVM. Default: 4096 bytes.
    ///
    /// ```
    /// use binpool_allocators::{Align, Error, InvalidRequest, SvmBackend, SvmGrain};
    /// use binpool_mock::MockDevice;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let [line, page] = [64, 4096].map(Align::new);
    /// let largest = line.ok_or("no power of two")?;
    /// let backend = MockDevice::builder()
    ///     .largest_svm_alignment(largest)
    ///     .build()
    ///     .backend();
    /// let allocate = |alignment| backend.allocate_svm(100, alignment, SvmGrain::Coarse, None);
    /// assert!(allocate(line).is_ok());
    /// let Err(Error::InvalidRequest(error)) = allocate(page) else {
    ///     return Err("a page is no line".into());
    /// };
    /// assert!(matches!(error, InvalidRequest::AlignmentTooLarge { .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn largest_svm_alignment(mut self, alignment: Align) -> Self {
        self.config.limits.largest_svm_alignment = alignment;
        self
    }

    /// Sets the kinds of SVM that the device has. Default: coarse and fine, with atomics.
    ///
    /// ```
    /// use binpool_allocators::{Error, SvmAllocator, SvmGrain, SvmSupport};
    /// use binpool_mock::MockDevice;
    ///
    /// // A device without fine-grained SVM, as most GPUs are.
    /// let mut support = SvmSupport::default();
    /// support.coarse = true;
    /// let backend = MockDevice::builder().svm(support).build().backend();
    /// assert!(SvmAllocator::new(&backend, SvmGrain::Coarse).is_ok());
    /// let error = SvmAllocator::new(&backend, SvmGrain::Fine).unwrap_err();
    /// assert!(matches!(error, Error::Unsupported { .. }));
    /// ```
    pub fn svm(mut self, support: SvmSupport) -> Self {
        self.config.limits.svm = support;
        self
    }

    /// Sets whether the device has out-of-order queues. Default: yes.
    ///
    /// ```
    /// use binpool_allocators::{Backend, Queue, QueueOrder};
    /// use binpool_mock::MockDevice;
    ///
    /// // Does a program work with in-order queues only?
    /// let backend = MockDevice::builder()
    ///     .out_of_order_queues(false)
    ///     .build()
    ///     .backend();
    /// let queue = backend
    ///     .create_queue(QueueOrder::OutOfOrder)
    ///     .or_else(|_| backend.create_queue(QueueOrder::InOrder))?;
    /// assert_eq!(queue.order(), QueueOrder::InOrder);
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn out_of_order_queues(mut self, available: bool) -> Self {
        self.config.limits.out_of_order_queues = available;
        self
    }

    /// Sets whether the device has [virtual memory](binpool_allocators::VirtualMemory). Default: no.
    ///
    /// ```
    /// use binpool_allocators::VirtualMemory;
    /// use binpool_mock::MockDevice;
    ///
    /// let device = MockDevice::builder().virtual_memory(true).build();
    /// let backend = device.backend();
    /// let reservation = backend.reserve(1 << 40)?; // Addresses take nothing of the device.
    /// assert_eq!(device.statistics().committed_bytes, 0);
    /// backend.map(&reservation, 0, &backend.create_pages(2 << 20)?)?;
    /// assert_eq!(device.statistics().committed_bytes, 2 << 20);
    /// drop(reservation);
    /// assert_eq!(device.statistics().committed_bytes, 0);
    /// assert!(MockDevice::new().backend().reserve(1 << 40).is_err());
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn virtual_memory(mut self, available: bool) -> Self {
        self.config.virtual_memory = available;
        self
    }

    /// Sets whether pages of virtual memory may be mapped at several addresses at once. Default: yes, as on NVIDIA's devices.
    ///
    /// ```
    /// use binpool_allocators::{Error, VirtualMemory};
    /// use binpool_mock::MockDevice;
    ///
    /// for allowed in [false, true] {
    ///     let device = MockDevice::builder().virtual_memory(true).page_aliases(allowed).build();
    ///     let backend = device.backend();
    ///     let (addresses, pages) = (backend.reserve(2 * backend.page_bytes())?, backend.create_pages(1)?);
    ///     backend.map(&addresses, 0, &pages)?;
    ///     let second = backend.map(&addresses, backend.page_bytes(), &pages);
    ///     assert_eq!(second.is_ok(), allowed);
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn page_aliases(mut self, allowed: bool) -> Self {
        self.config.page_aliases = allowed;
        self
    }

    /// Sets when commands run. Default: [`Completion::AtOnce`].
    pub fn completion(mut self, completion: Completion) -> Self {
        self.config.completion = completion;
        self
    }

    /// Sets how a failed command affects other commands, and what the device reports about it
    /// ([`DeviceLimits::failure_order`](binpool_allocators::DeviceLimits::failure_order)). Default: [`Failures::default`].
    ///
    /// ```
    /// use binpool_allocators::FailureOrder;
    /// use binpool_mock::{Failures, MockDevice};
    ///
    /// // The behaviour of PoCL.
    /// let failures = Failures { order: FailureOrder::Lost, spread: true };
    /// let device = MockDevice::builder().failures(failures).build();
    /// assert_eq!(device.limits().failure_order, FailureOrder::Lost);
    /// ```
    pub fn failures(mut self, failures: Failures) -> Self {
        self.config.limits.failure_order = failures.order;
        self.config.failures_spread = failures.spread;
        self
    }

    /// Sets what happens if the host would wait forever. Default: [`HostWait::Report`].
    ///
    /// ```
    /// use binpool_allocators::{Backend, Outcome, Queue, QueueOrder};
    /// use binpool_mock::{HostWait, MockDevice};
    ///
    /// let backend = MockDevice::builder()
    ///     .host_waits(HostWait::Report)
    ///     .build()
    ///     .backend();
    /// let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let gate = backend.create_user_event()?;
    /// backend.enqueue_marker(queue.after(&[gate.clone()]))?;
    /// assert!(queue.finish().is_err()); // Instead of hanging, the call fails.
    /// backend.resolve_user_event(&gate, Outcome::Complete)?;
    /// queue.finish()?;
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn host_waits(mut self, host_waits: HostWait) -> Self {
        self.config.host_waits = host_waits;
        self
    }

    /// Sets whether buffers are committed when they are created, as by runtimes that do not defer. Default: no.
    ///
    /// ```
    /// use binpool_allocators::{Backend, MemoryFlags};
    /// use binpool_mock::MockDevice;
    ///
    /// for (commits, fit) in [(false, [true, true]), (true, [true, false])] {
    ///     let device = MockDevice::builder()
    ///         .capacity_bytes(1 << 20)
    ///         .commit_at_create(commits)
    ///         .build();
    ///     let backend = device.backend();
    ///     let made = [(); 2].map(|()| backend.create_buffer(1 << 20, MemoryFlags::empty()));
    ///     assert_eq!(made.map(|buffer| buffer.is_ok()), fit);
    /// }
    /// ```
    pub fn commit_at_create(mut self, commit: bool) -> Self {
        self.config.commit_at_create = commit;
        self
    }

    /// Uses the limits and costs of a real device. Later calls override parts of it; settings of earlier calls
    /// are lost.
    ///
    /// ```
    /// use binpool_mock::{DeviceProfile, MockDevice};
    ///
    /// // An H200 with little memory left.
    /// let device = MockDevice::builder()
    ///     .profile(DeviceProfile::h200())
    ///     .capacity_bytes(1 << 30)
    ///     .build();
    /// let limits = device.limits();
    /// assert_eq!(limits.device_name, "NVIDIA H200 (mock)");
    /// assert_eq!(limits.alignment.bytes(), 512);
    /// assert_eq!(limits.capacity_bytes, 1 << 30);
    /// assert_eq!(limits.largest_block_bytes, 1 << 30); // No more than the capacity.
    /// ```
    pub fn profile(mut self, profile: DeviceProfile) -> Self {
        self.config.limits = profile.limits;
        self.largest_block_bytes = None;
        self.config.costs = Some(profile.costs);
        self
    }

    /// Sets whether every call and every command is logged. The log grows without bound. Default: no.
    ///
    /// ```
    /// use binpool_allocators::{Allocator, Backend, Error, ImmediateAllocator, QueueOrder, Region};
    /// use binpool_mock::{Call, Completion, MockDevice};
    ///
    /// // Two runs of one program with the same seed make the same calls.
    /// let run = || -> Result<Vec<Call>, Error> {
    ///     let builder = MockDevice::builder().completion(Completion::Seeded(7));
    ///     let device = builder.log_calls(true).build();
    ///     let backend = device.backend();
    ///     let queue = backend.create_queue(QueueOrder::OutOfOrder)?;
    ///     let block = ImmediateAllocator::new(&backend)?.allocate(1024)?;
    ///     backend.enqueue_fill(&queue, &block, Region::first(1024), &[7_u8])?;
    ///     Ok(device.calls())
    /// };
    /// assert_eq!(run()?, run()?);
    /// # assert!(!run()?.is_empty());
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn log_calls(mut self, log: bool) -> Self {
        self.config.log_calls = log;
        self
    }

    /// Sets whether commands that touch the same bytes without an order are reported ([`Race`](crate::Race)). Default: yes.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// use binpool_mock::MockDevice;
    ///
    /// // For kernels that share bytes on purpose: two queues update the same buffer, as with atomic operations.
    /// let device = MockDevice::builder().detect_races(false).build();
    /// # let backend = device.backend();
    /// let counter = backend.create_buffer(1, MemoryFlags::empty())?;
    /// for _ in 0..2 {
    ///     let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///     let count = |_: &[&[u8]], writes: &mut [&mut [u8]]| writes[0][0] += 1;
    ///     backend.launch(&queue, "count", &[], &[&counter], count)?;
    /// }
    /// assert!(device.violations().is_empty());
    /// # Ok::<(), binpool_allocators::Error>(())
    /// ```
    pub fn detect_races(mut self, detect: bool) -> Self {
        self.config.detect_races = detect;
        self
    }

    /// Builds the device.
    #[must_use]
    pub fn build(self) -> MockDevice {
        let mut config = self.config;
        let capacity = saturate(config.limits.capacity_bytes);
        let largest = if config.costs.is_some() {
            config.limits.largest_block_bytes.min(capacity)
        } else {
            capacity
        };
        config.limits.largest_block_bytes = self.largest_block_bytes.unwrap_or(largest);
        MockDevice {
            shared: Arc::new(Shared::new(config)),
        }
    }
}

impl MockDevice {
    /// Makes a device with the defaults of [`builder`](Self::builder).
    ///
    /// ```
    /// use binpool_mock::MockDevice;
    ///
    /// let device = MockDevice::new();
    /// let limits = device.limits();
    /// assert_eq!(limits.capacity_bytes, 1 << 30);
    /// assert_eq!(limits.alignment.bytes(), 256);
    /// assert!(limits.out_of_order_queues && limits.svm.coarse && limits.svm.fine);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Builds a device.
    pub fn builder() -> MockDeviceBuilder {
        MockDeviceBuilder::default()
    }
}

impl Default for MockDevice {
    fn default() -> Self {
        Self::new()
    }
}
