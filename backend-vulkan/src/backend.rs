//! A Vulkan device as a `Backend`: its memory, commands and sparse pages.

use std::sync::{Arc, atomic::AtomicUsize};

use ash::vk;
use binpool_allocators::{
    Align, DeviceLimits, FailureOrder, Result, debug_by,
    runtime::{Core, CoreEvent, CoreMemory, CoreQueue},
};

use crate::{
    staging::Kept,
    sys::{Device, HeldBack, VulkanBlock},
};

/// Memory of a Vulkan device.
pub type VulkanMemory = CoreMemory<VulkanBackend>;
/// A queue: a timeline semaphore on one of the device's queues.
pub type VulkanQueue = CoreQueue<VulkanBackend>;
/// The event of a command, or a user event.
pub type VulkanEvent = CoreEvent<VulkanBackend>;

/// Pages are moved between addresses by calls that wait, so they are larger than the device's own.
const LEAST_PAGE_BYTES: usize = 1 << 21;

/// What the clones of a backend share.
pub(crate) struct Shared {
    pub(crate) core: Arc<Core<VulkanBackend>>,
    pub(crate) device: Arc<Device>,
    pub(crate) staging: Arc<Kept>,
    pub(crate) held_back: Arc<HeldBack>,
    /// How many streams were made, for the next one's queue.
    pub(crate) streams: AtomicUsize,
    /// The size that sizes and offsets of pages are multiples of; 0 without sparse binding.
    pub(crate) page_bytes: usize,
    pub(crate) page_kinds: u32,
    pub(crate) largest_reservation: usize,
}

/// A Vulkan device. Clones are the same backend; any thread may use them.
///
/// ```no_run
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_vulkan::VulkanBackend;
///
/// let backend = VulkanBackend::open(0)?;
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let block = backend.create_buffer(4, MemoryFlags::empty())?;
/// backend.write(&queue, &block, 0, &[1_u8, 2, 3, 4])?;
/// let mut bytes = [0_u8; 2];
/// backend.read(&queue, &block, 1, &mut bytes)?;
/// assert_eq!(bytes, [2, 3]);
/// // For calls of the program's own.
/// // SAFETY: no other thread submits meanwhile.
/// unsafe { backend.raw().device_wait_idle() }.map_err(|result| format!("{result:?}"))?;
/// assert!(!backend.is_lost(), "a kernel has ended the device");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct VulkanBackend {
    pub(crate) shared: Arc<Shared>,
}

impl VulkanBackend {
    pub(crate) fn over(device: Device) -> Result<Self> {
        let device = Arc::new(device);
        let facts = &device.facts;
        let alignment = Align::new(facts.alignment).unwrap_or(Align::ONE);
        let (name, bytes) = (facts.name.clone(), facts.total_bytes);
        let mut limits = DeviceLimits::new(name, bytes, facts.largest_block, alignment);
        limits.failure_order = FailureOrder::Kept;
        limits.buffer_views_are_addresses = true;
        let (mut page_bytes, mut page_kinds) = (0, 0);
        let largest_reservation = usize::try_from(facts.sparse_bytes).unwrap_or(usize::MAX);
        if largest_reservation > 0 {
            let needs = VulkanBlock::reservation(&device, LEAST_PAGE_BYTES)?.requirements();
            let least = usize::try_from(needs.alignment).unwrap_or(usize::MAX);
            page_bytes = least.max(LEAST_PAGE_BYTES);
            page_kinds = needs.memory_type_bits;
        }
        let shared = Shared {
            core: Arc::new(Core::new(limits)),
            staging: Arc::default(),
            held_back: Arc::default(),
            streams: AtomicUsize::new(0),
            page_bytes,
            page_kinds,
            largest_reservation,
            device,
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Makes a backend from a device of the program, and from the queues that this crate may submit on, with the numbers of their
    /// families.
    ///
    /// The program keeps its queues: to submit on one itself, it holds [`QueueStream::lock`](crate::QueueStream::lock), or
    /// calls [`enqueue_own`](Self::enqueue_own).
    ///
    /// ```no_run
    /// use ash::vk;
    /// use binpool_vulkan::VulkanBackend;
    ///
    /// fn pooled(instance: &ash::Instance, physical: vk::PhysicalDevice, device: &ash::Device) -> binpool_allocators::Result<VulkanBackend> {
    ///     // SAFETY: they are handles of one device, and outlive the backend; it has the features that are asked for.
    ///     unsafe {
    ///         let queue = device.get_device_queue(0, 0);
    ///         VulkanBackend::from_raw(instance.clone(), physical, device.clone(), &[(0, queue)])
    ///     }
    /// }
    /// ```
    ///
    /// # Safety
    ///
    /// The handles belong together, and live until everything that was made with the backend is dropped. The instance and the device are of
    /// version 1.2 or later, and the device was made with the features `timelineSemaphore` and `bufferDeviceAddress`, and with
    /// `VK_EXT_memory_budget` where it has that. There is at least one queue; each takes transfers, and computes if kernels are to run on it.
    /// Nothing else submits on them, but in these two ways.
    ///
    /// # Errors
    ///
    /// A failure of Vulkan.
    #[expect(unsafe_code, reason = "handles that the program has made")]
    pub unsafe fn from_raw(
        instance: ash::Instance,
        physical: vk::PhysicalDevice,
        device: ash::Device,
        queues: &[(u32, vk::Queue)],
    ) -> Result<Self> {
        Self::over(Device::adopt(instance, device, physical, queues))
    }

    /// The device, for the program's own calls. It is valid while this value or a clone lives.
    #[must_use]
    pub fn raw(&self) -> &ash::Device {
        self.shared.device.raw()
    }

    /// Returns whether a call has reported that the device is lost. All of its commands have failed then.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.shared.device.is_lost()
    }
}

debug_by!(VulkanBackend, |this| device: this.shared.core.limits().device_name);
