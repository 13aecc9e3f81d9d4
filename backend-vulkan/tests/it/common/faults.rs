//! A device whose calls fail when a test says so, and whose objects are counted.

use std::{
    ffi::c_void,
    sync::{
        OnceLock,
        atomic::{AtomicI64, AtomicU32, Ordering},
    },
};

use ash::vk::{self, Handle as _};
use binpool_conformance::sweep::{FaultInjector, FaultPoint};
use binpool_vulkan::VulkanBackend;
use parking_lot::{Mutex, MutexGuard};

use super::Parts;

/// The calls of the devices of this process.
#[derive(Default)]
struct Calls {
    made: u64,
    point: Option<FaultPoint>,
    /// Only this function fails, where that is set.
    only: Option<&'static str>,
    /// With this result, where that is set.
    result: Option<vk::Result>,
    /// No call fails once fewer objects than this live.
    while_live: i64,
    first_failed: Option<&'static str>,
    /// The number of calls before the first repair.
    counted: Option<u64>,
}

static CALLS: Mutex<Calls> = Mutex::new(Calls {
    made: 0,
    point: None,
    only: None,
    result: None,
    while_live: 0,
    first_failed: None,
    counted: None,
});
static LIVE: AtomicI64 = AtomicI64::new(0);
static FREED_COMMAND_BUFFERS: AtomicU32 = AtomicU32::new(0);
static REAL: OnceLock<ash::DeviceFnV1_0> = OnceLock::new();
static REAL_12: OnceLock<ash::DeviceFnV1_2> = OnceLock::new();

/// Counts a call, and returns its error where it is to fail.
fn fault(call: &'static str) -> Option<vk::Result> {
    let mut calls = CALLS.lock();
    if calls.only.is_some_and(|only| only != call) {
        return None;
    }
    calls.made += 1;
    let point = calls.point?;
    let is_hit = calls.made == point.call || point.is_permanent && calls.made > point.call;
    if !is_hit || LIVE.load(Ordering::Relaxed) < calls.while_live {
        return None;
    }
    calls.first_failed.get_or_insert(call);
    Some(calls.result.unwrap_or(if point.is_out_of_memory {
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
    } else {
        vk::Result::ERROR_UNKNOWN
    }))
}

fn real() -> &'static ash::DeviceFnV1_0 {
    REAL.get().unwrap()
}

/// Functions that may fail, and how many objects more there are after one that does not.
macro_rules! failing {
    ($($name:ident($($argument:ident: $kind:ty),*) + $made:literal;)*) => {
        $(
            unsafe extern "system" fn $name($($argument: $kind),*) -> vk::Result {
                if let Some(error) = fault(stringify!($name)) {
                    return error;
                }
                // SAFETY: The caller's promises are those of the function itself.
                let result = unsafe { (real().$name)($($argument),*) };
                if result == vk::Result::SUCCESS {
                    LIVE.fetch_add($made, Ordering::Relaxed);
                }
                result
            }
        )*

        fn fail_all(functions: &mut ash::DeviceFnV1_0) {
            $(functions.$name = $name;)*
        }
    };
}

type Callbacks<'a> = *const vk::AllocationCallbacks<'a>;

failing! {
    allocate_memory(device: vk::Device, info: *const vk::MemoryAllocateInfo<'_>, callbacks: Callbacks<'_>, memory: *mut vk::DeviceMemory) + 1;
    create_buffer(device: vk::Device, info: *const vk::BufferCreateInfo<'_>, callbacks: Callbacks<'_>, buffer: *mut vk::Buffer) + 1;
    create_semaphore(device: vk::Device, info: *const vk::SemaphoreCreateInfo<'_>, callbacks: Callbacks<'_>, semaphore: *mut vk::Semaphore) + 1;
    create_command_pool(device: vk::Device, info: *const vk::CommandPoolCreateInfo<'_>, callbacks: Callbacks<'_>, pool: *mut vk::CommandPool) + 1;
    bind_buffer_memory(device: vk::Device, buffer: vk::Buffer, memory: vk::DeviceMemory, offset: vk::DeviceSize) + 0;
    map_memory(device: vk::Device, memory: vk::DeviceMemory, offset: vk::DeviceSize, size: vk::DeviceSize, flags: vk::MemoryMapFlags, data: *mut *mut c_void) + 0;
    allocate_command_buffers(device: vk::Device, info: *const vk::CommandBufferAllocateInfo<'_>, buffers: *mut vk::CommandBuffer) + 0;
    begin_command_buffer(buffer: vk::CommandBuffer, info: *const vk::CommandBufferBeginInfo<'_>) + 0;
    end_command_buffer(buffer: vk::CommandBuffer) + 0;
    queue_submit(queue: vk::Queue, count: u32, submits: *const vk::SubmitInfo<'_>, fence: vk::Fence) + 0;
    create_pipeline_layout(device: vk::Device, info: *const vk::PipelineLayoutCreateInfo<'_>, callbacks: Callbacks<'_>, layout: *mut vk::PipelineLayout) + 1;
    create_shader_module(device: vk::Device, info: *const vk::ShaderModuleCreateInfo<'_>, callbacks: Callbacks<'_>, module: *mut vk::ShaderModule) + 1;
    create_compute_pipelines(device: vk::Device, cache: vk::PipelineCache, count: u32, infos: *const vk::ComputePipelineCreateInfo<'_>, callbacks: Callbacks<'_>, pipelines: *mut vk::Pipeline) + 1;
}

/// Those of version 1.2, which fail only by their name: they are repeated, so that a failure once may be told to none.
macro_rules! failing_by_name {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            unsafe extern "system" fn $name($($argument: $kind),*) -> vk::Result {
                let is_named = CALLS.lock().only == Some(stringify!($name));
                if let Some(error) = is_named.then(|| fault(stringify!($name))).flatten() {
                    return error;
                }
                // SAFETY: The caller's promises are those of the function itself.
                unsafe { (REAL_12.get().unwrap().$name)($($argument),*) }
            }
        )*

        fn fail_all_by_name(functions: &mut ash::DeviceFnV1_2) {
            $(functions.$name = $name;)*
        }
    };
}

failing_by_name! {
    get_semaphore_counter_value(device: vk::Device, semaphore: vk::Semaphore, value: *mut u64);
    wait_semaphores(device: vk::Device, info: *const vk::SemaphoreWaitInfo<'_>, timeout: u64);
    signal_semaphore(device: vk::Device, info: *const vk::SemaphoreSignalInfo<'_>);
}

macro_rules! counted {
    ($($name:ident($object:ty);)*) => {
        $(
            unsafe extern "system" fn $name(device: vk::Device, object: $object, callbacks: Callbacks<'_>) {
                // Null is allowed.
                if !object.is_null() {
                    LIVE.fetch_sub(1, Ordering::Relaxed);
                }
                // SAFETY: The caller's promises are those of the function itself.
                unsafe { (real().$name)(device, object, callbacks) };
            }
        )*

        fn count_all(functions: &mut ash::DeviceFnV1_0) {
            $(functions.$name = $name;)*
        }
    };
}

counted! {
    free_memory(vk::DeviceMemory);
    destroy_buffer(vk::Buffer);
    destroy_semaphore(vk::Semaphore);
    destroy_command_pool(vk::CommandPool);
    destroy_pipeline(vk::Pipeline);
    destroy_pipeline_layout(vk::PipelineLayout);
    destroy_shader_module(vk::ShaderModule);
}

unsafe extern "system" fn free_command_buffers(
    device: vk::Device,
    pool: vk::CommandPool,
    count: u32,
    buffers: *const vk::CommandBuffer,
) {
    FREED_COMMAND_BUFFERS.fetch_add(count, Ordering::Relaxed);
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real().free_command_buffers)(device, pool, count, buffers) };
}

/// Backends whose calls fail. One test at a time has them.
#[derive(Clone, Copy)]
pub(crate) struct Faulty;

#[expect(
    clippy::unused_self,
    reason = "who has it has the faults of this process"
)]
impl Faulty {
    /// The faults of this process, for one test.
    pub(crate) fn alone() -> MutexGuard<'static, Self> {
        static ALONE: Mutex<Faulty> = Mutex::new(Faulty);
        let alone = ALONE.lock();
        *CALLS.lock() = Calls::default();
        alone
    }

    /// The injector of a run, without a fault yet.
    #[allow(dead_code, reason = "only the sweep takes it")]
    pub(crate) fn fresh() -> Self {
        *CALLS.lock() = Calls::default();
        Self
    }

    /// The one device.
    pub(crate) fn parts(self) -> &'static Parts {
        static PARTS: OnceLock<Parts> = OnceLock::new();
        PARTS.get_or_init(|| {
            let mut parts = super::parts();
            parts.device = with_faults(&parts.device);
            parts
        })
    }

    /// A backend, over the one device.
    pub(crate) fn backend(self) -> VulkanBackend {
        self.parts().backend()
    }

    /// Lets the next call of one function fail.
    pub(crate) fn fail_next(self, call: &'static str) {
        *CALLS.lock() = Calls {
            point: Some(FaultPoint {
                call: 1,
                is_out_of_memory: false,
                is_permanent: false,
            }),
            only: Some(call),
            ..Calls::default()
        };
    }

    /// Lets the next call of one function fail with this result.
    pub(crate) fn fail_next_with(self, call: &'static str, result: vk::Result) {
        self.fail_next(call);
        CALLS.lock().result = Some(result);
    }

    /// Returns how many calls of one function `work` makes.
    pub(crate) fn calls_of(self, call: &'static str, work: impl FnOnce()) -> u64 {
        *CALLS.lock() = Calls {
            only: Some(call),
            ..Calls::default()
        };
        work();
        std::mem::take(&mut *CALLS.lock()).made
    }

    /// Lets memory of each kind run out until an object is freed.
    pub(crate) fn run_out_until_freed(self) {
        *CALLS.lock() = Calls {
            point: Some(FaultPoint {
                call: 1,
                is_out_of_memory: true,
                is_permanent: true,
            }),
            only: Some("allocate_memory"),
            while_live: self.live(),
            ..Calls::default()
        };
    }

    pub(crate) fn freed_command_buffers(self) -> u32 {
        FREED_COMMAND_BUFFERS.load(Ordering::Relaxed)
    }

    pub(crate) fn live(self) -> i64 {
        LIVE.load(Ordering::Relaxed)
    }
}

fn with_faults(device: &ash::Device) -> ash::Device {
    let mut functions = REAL.get_or_init(|| device.fp_v1_0().clone()).clone();
    fail_all(&mut functions);
    count_all(&mut functions);
    functions.free_command_buffers = free_command_buffers;
    let mut functions_12 = REAL_12.get_or_init(|| device.fp_v1_2().clone()).clone();
    fail_all_by_name(&mut functions_12);
    ash::Device::from_parts_1_3(
        device.handle(),
        functions,
        device.fp_v1_1().clone(),
        functions_12,
        device.fp_v1_3().clone(),
    )
}

impl FaultInjector for Faulty {
    /// Which of the two codes it is, the name of `VkResult` says.
    fn mark(&self) -> &'static str {
        "ERROR_"
    }

    fn inject(&self, point: FaultPoint) {
        *CALLS.lock() = Calls {
            point: Some(point),
            ..Calls::default()
        };
    }

    fn repair(&self) {
        let mut calls = CALLS.lock();
        calls.point = None;
        let made = calls.made;
        calls.counted.get_or_insert(made);
    }

    fn calls(&self) -> u64 {
        CALLS.lock().counted.unwrap_or_default()
    }

    fn first_failed_call(&self) -> Option<String> {
        CALLS.lock().first_failed.map(str::to_owned)
    }

    fn violations(&self) -> Vec<String> {
        let live = self.live();
        if live == 0 {
            return Vec::new();
        }
        LIVE.store(0, Ordering::Relaxed);
        vec![format!("{live} objects of Vulkan are left")]
    }
}
