//! Devices under the validation layer of Khronos, which says what is against the specification. Such a message ends the tests.
//!
//! The layer of Debian 12 crashes where one thread makes a device while others use theirs, so it is there only where one test runs after the other, as
//! [`again_one_by_one`] has them do.

pub(crate) mod faults;
pub(crate) mod other;
pub(crate) mod queues;

use std::{
    cell::Cell,
    env,
    ffi::{CStr, c_void},
    process::{self, Command, Stdio},
    sync::OnceLock,
};

use ash::{ext, vk};
use binpool_vulkan::VulkanBackend;

thread_local! {
    /// How many messages there were while they were wanted.
    static WANTED: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Called for each message.
unsafe extern "system" fn complain(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    _user: *mut c_void,
) -> vk::Bool32 {
    if let Some(count) = WANTED.get() {
        WANTED.set(Some(count + 1));
        return vk::FALSE;
    }
    // SAFETY: The layer calls this with a message, which lives during the call.
    let message = unsafe { (*data).p_message };
    // SAFETY: As above.
    let text = unsafe { CStr::from_ptr(message) };
    eprintln!("against the specification: {}", text.to_string_lossy());
    process::abort();
}

/// Returns how many messages the layer has for what `work` does, on this thread.
pub(crate) fn messages(work: impl FnOnce()) -> usize {
    WANTED.set(Some(0));
    work();
    WANTED.take().unwrap_or(0)
}

const ONE_BY_ONE: &str = "--test-threads=1";

/// Returns whether one test runs after the other, under the validation layer.
pub(crate) fn is_validated() -> bool {
    env::args().any(|argument| argument == ONE_BY_ONE)
}

/// Runs all tests of this program but `caller` in a process of their own, one after the other, and so under the validation layer.
pub(crate) fn again_one_by_one(caller: &str, variables: &[(&str, &str)]) {
    let mut tests = Command::new(env::current_exe().unwrap());
    tests
        .args([ONE_BY_ONE, "--skip", caller])
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    let output = tests.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("test result: ok"), "{text}");
}

/// The instance of all tests, which is never destroyed.
pub(crate) fn instance() -> &'static ash::Instance {
    static INSTANCE: OnceLock<ash::Instance> = OnceLock::new();
    INSTANCE.get_or_init(|| {
        // SAFETY: Loading it does no harm, and it is never unloaded.
        let entry = unsafe { ash::Entry::load() }.expect("scripts/platform installs it");
        let layers = [c"VK_LAYER_KHRONOS_validation".as_ptr()];
        let layers = &layers[..usize::from(is_validated())];
        let extensions = [ext::debug_utils::NAME.as_ptr()];
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let mut messenger = vk::DebugUtilsMessengerCreateInfoEXT::default()
            .message_severity(
                vk::DebugUtilsMessageSeverityFlagsEXT::WARNING
                    | vk::DebugUtilsMessageSeverityFlagsEXT::ERROR,
            )
            .message_type(vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION)
            .pfn_user_callback(Some(complain));
        let info = vk::InstanceCreateInfo::default()
            .application_info(&application)
            .enabled_layer_names(layers)
            .enabled_extension_names(&extensions)
            .push_next(&mut messenger);
        // SAFETY: The structs live during the call.
        let instance = unsafe { entry.create_instance(&info, None) }
            .expect("scripts/platform installs the validation layer");
        let debug = ext::debug_utils::Instance::new(&entry, &instance);
        messenger.p_next = std::ptr::null();
        // SAFETY: The function lives as long as the program.
        unsafe { debug.create_debug_utils_messenger(&messenger, None) }.unwrap();
        std::mem::forget(entry);
        instance
    })
}

/// A device of the program's own, with two queues where there are two. It is never destroyed.
pub(crate) struct Parts {
    pub(crate) instance: ash::Instance,
    pub(crate) physical: vk::PhysicalDevice,
    pub(crate) device: ash::Device,
    pub(crate) queues: Vec<(u32, vk::Queue)>,
}

pub(crate) fn parts() -> Parts {
    let instance = instance();
    // SAFETY: The instance lives.
    let physical = unsafe { instance.enumerate_physical_devices() }.unwrap()[0];
    // SAFETY: As above.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    let family = families
        .iter()
        .position(|one| one.queue_flags.contains(vk::QueueFlags::COMPUTE))
        .unwrap();
    let count = families[family].queue_count.min(2);
    let family = u32::try_from(family).unwrap();
    let priorities = vec![1.0; count as usize];
    let queues = [vk::DeviceQueueCreateInfo::default()
        .queue_family_index(family)
        .queue_priorities(&priorities)];
    let features = vk::PhysicalDeviceFeatures::default().shader_int64(true);
    let mut features_12 = vk::PhysicalDeviceVulkan12Features::default()
        .timeline_semaphore(true)
        .buffer_device_address(true);
    let info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&queues)
        .enabled_features(&features)
        .push_next(&mut features_12);
    // SAFETY: The device is of the instance, and has all of this.
    let device = unsafe { instance.create_device(physical, &info, None) }.unwrap();
    let queues: Vec<_> = (0..count)
        .map(|index| {
            // SAFETY: The device was made with these queues.
            (family, unsafe { device.get_device_queue(family, index) })
        })
        .collect();
    Parts {
        instance: instance.clone(),
        physical,
        device,
        queues,
    }
}

/// The same device, whose functions of version 1.0 are these.
pub(crate) fn with_functions(device: &ash::Device, functions: ash::DeviceFnV1_0) -> ash::Device {
    ash::Device::from_parts_1_3(
        device.handle(),
        functions,
        device.fp_v1_1().clone(),
        device.fp_v1_2().clone(),
        device.fp_v1_3().clone(),
    )
}

impl Parts {
    pub(crate) fn backend(&self) -> VulkanBackend {
        let (instance, device) = (self.instance.clone(), self.device.clone());
        // SAFETY: The handles belong together, and are never destroyed; nothing else submits on the queues.
        unsafe { VulkanBackend::from_raw(instance, self.physical, device, &self.queues) }.unwrap()
    }
}

/// A backend over a device of the program's own.
pub(crate) fn backend() -> VulkanBackend {
    parts().backend()
}
