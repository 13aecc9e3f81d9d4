//! A device, and the queues that Vulkan has for it.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use ash::{ext, vk};
use binpool_allocators::{Error, Result};
use parking_lot::{Mutex, MutexGuard};

use super::{Facts, Instance, Named as _, VulkanError};

/// More queues of one family than these bring nothing.
const MOST_QUEUES: u32 = 4;

/// A queue of Vulkan. Calls on it are made one after the other, so it is locked for each.
pub(crate) struct DeviceQueue {
    pub(crate) family: u32,
    pub(crate) raw: Mutex<vk::Queue>,
    /// How often the program has had it, for submits of its own. Grows while the queue is locked.
    lent: AtomicU64,
}

impl DeviceQueue {
    fn new(family: u32, raw: vk::Queue) -> Self {
        Self {
            family,
            raw: Mutex::new(raw),
            lent: AtomicU64::new(0),
        }
    }

    /// Locks the queue for calls of the program's own.
    pub(crate) fn lend(&self) -> MutexGuard<'_, vk::Queue> {
        let queue = self.raw.lock();
        self.lent.fetch_add(1, Ordering::Release);
        queue
    }

    pub(crate) fn lent(&self) -> u64 {
        self.lent.load(Ordering::Acquire)
    }
}

/// A logical device. One that this crate has made is destroyed with it.
pub(crate) struct Device {
    raw: ash::Device,
    is_own: bool,
    instance: Arc<Instance>,
    pub(crate) facts: Facts,
    pub(crate) queues: Vec<Arc<DeviceQueue>>,
    /// The families of `queues`, each once.
    families: Vec<u32>,
    /// Semaphores that no command uses, with their numbers. They are destroyed with the device only: drivers of Mesa use a semaphore that a submit has
    /// waited for after the submit has ended.
    pub(crate) semaphores: Mutex<Vec<(vk::Semaphore, u64)>>,
    /// Why no command of it ends any more.
    lost: OnceLock<VulkanError>,
}

impl Device {
    /// Makes the logical device of a physical one, with queues of its first family that computes.
    pub(crate) fn create(instance: &Arc<Instance>, facts: Facts) -> Result<Self> {
        if !facts.is_usable {
            return Err(Error::unsupported(format!(
                "{}, which lacks Vulkan 1.2 with timeline semaphores and buffer device addresses: update its driver, or use OpenCL",
                facts.name
            )));
        }
        let mut families = (0_u32..).zip(&facts.families);
        let found = families.find(|(_, it)| it.queue_flags.contains(vk::QueueFlags::COMPUTE));
        let (family, properties) = found.ok_or_else(|| {
            Error::unsupported(format!(
                "{}, which has no queue for kernels and copies",
                facts.name
            ))
        })?;
        let count = properties.queue_count.min(MOST_QUEUES);
        let binds = vk::QueueFlags::SPARSE_BINDING;
        let is_sparse = facts.sparse_bytes > 0 && properties.queue_flags.contains(binds);
        let priorities = vec![1.0; count as usize];
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&priorities)];
        let features = vk::PhysicalDeviceFeatures::default()
            .shader_int64(facts.features.shader_int64 != 0)
            .shader_float64(facts.features.shader_float64 != 0)
            .sparse_binding(is_sparse)
            .sparse_residency_buffer(is_sparse);
        let mut features_12 = vk::PhysicalDeviceVulkan12Features::default()
            .timeline_semaphore(true)
            .buffer_device_address(true);
        let extensions = facts
            .has_budget
            .then_some(ext::memory_budget::NAME.as_ptr());
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(extensions.as_slice())
            .enabled_features(&features)
            .push_next(&mut features_12);
        // SAFETY: The device is of the instance, which has what is asked for.
        let raw = unsafe { instance.raw().create_device(facts.physical, &info, None) };
        let raw = raw.of("vkCreateDevice")?;
        let all = (0..count).map(|index| {
            // SAFETY: The device was made with these queues.
            (family, unsafe { raw.get_device_queue(family, index) })
        });
        let all: Vec<_> = all.collect();
        let mut device = Self::new(Arc::clone(instance), raw, facts, &all);
        device.is_own = true;
        if !is_sparse {
            device.facts.sparse_bytes = 0;
        }
        Ok(device)
    }

    /// Takes a device and queues, by family, that the program has made, and destroys after this.
    pub(crate) fn adopt(
        instance: ash::Instance,
        raw: ash::Device,
        physical: vk::PhysicalDevice,
        queues: &[(u32, vk::Queue)],
    ) -> Self {
        let instance = Arc::new(Instance::adopt(instance));
        let mut facts = Facts::of(&instance, physical);
        // Which features it was made with cannot be asked.
        facts.sparse_bytes = 0;
        Self::new(instance, raw, facts, queues)
    }

    fn new(
        instance: Arc<Instance>,
        raw: ash::Device,
        facts: Facts,
        queues: &[(u32, vk::Queue)],
    ) -> Self {
        let mut families: Vec<_> = queues.iter().map(|(family, _)| *family).collect();
        families.sort_unstable();
        families.dedup();
        let queues = queues.iter();
        let queues = queues.map(|&(family, queue)| Arc::new(DeviceQueue::new(family, queue)));
        Self {
            raw,
            is_own: false,
            instance,
            facts,
            queues: queues.collect(),
            families,
            semaphores: Mutex::default(),
            lost: OnceLock::new(),
        }
    }

    pub(crate) fn raw(&self) -> &ash::Device {
        &self.raw
    }

    pub(crate) fn families(&self) -> &[u32] {
        &self.families
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Returns the error of a call, and notes it if the device is lost: no command of it ends any more then.
    pub(crate) fn failed(&self, error: VulkanError) -> VulkanError {
        if error.is_lost() {
            let _earlier = self.lost.set(error);
        }
        error
    }

    /// Counts the device as lost, though Vulkan does not, once everything that was submitted has ended: what is called failed is freed.
    pub(crate) fn give_up(&self, error: VulkanError) {
        if self.is_lost() {
            return;
        }
        let _locked = self.wait_for_queues();
        let _earlier = self.lost.set(error);
    }

    /// Waits for everything that was submitted, and returns the locked queues.
    fn wait_for_queues(&self) -> Vec<MutexGuard<'_, vk::Queue>> {
        let queues: Vec<_> = self.queues.iter().map(|queue| queue.raw.lock()).collect();
        for queue in &queues {
            // SAFETY: The queue is locked. One that cannot be waited for is lost, or out of memory for the wait.
            let _failed = unsafe { self.raw.queue_wait_idle(**queue) };
        }
        queues
    }

    /// Checks that the device is not lost.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        let source = self.lost.get().map(|error| (*error).into());
        match source {
            None => Ok(()),
            source => Err(Error::DeviceLost { operation, source }),
        }
    }

    /// The bytes of its own memory that are free, where it tells.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        if !self.facts.has_budget {
            return None;
        }
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        let instance = self.instance.raw();
        // SAFETY: The device is of the instance, and has the extension.
        unsafe {
            instance.get_physical_device_memory_properties2(self.facts.physical, &mut properties);
        };
        let free = |heap: usize| budget.heap_budget[heap].saturating_sub(budget.heap_usage[heap]);
        Some(self.facts.device_heaps().map(free).sum())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        drop(self.wait_for_queues());
        for (semaphore, _) in self.semaphores.get_mut().drain(..) {
            // SAFETY: No command is left.
            unsafe { self.raw.destroy_semaphore(semaphore, None) };
        }
        if self.is_own {
            // SAFETY: What was made on it keeps it, and is gone, with all of its commands.
            unsafe { self.raw.destroy_device(None) };
        }
    }
}
