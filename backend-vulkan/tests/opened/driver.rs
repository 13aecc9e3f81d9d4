//! A driver whose device has the families and features that a test says, and sparse buffers: addresses of the process, to which memory files are mapped.

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "structs of C come in chains"
)]

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashMap},
    ffi::{CStr, CString, c_char},
    ptr,
    sync::OnceLock,
};

use ash::vk::{self, Handle as _};
use parking_lot::Mutex;

use super::common::{self, other::Other};
use crate::{
    VulkanDevice,
    sys::{Facts, Instance},
};

/// What the device of a driver was made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) family: u32,
    pub(super) queues: u32,
    pub(super) extensions: Vec<CString>,
    pub(super) is_sparse: bool,
    pub(super) has_numbers: [bool; 2],
}

thread_local! {
    static OPENED: RefCell<Option<Opened>> = const { RefCell::new(None) };
    static FAILURE: Cell<vk::Result> = const { Cell::new(vk::Result::SUCCESS) };
    static ALIGNMENT: Cell<usize> = const { Cell::new(PAGE) };
}

/// What the last device of this thread was made with.
pub(super) fn opened() -> Option<Opened> {
    OPENED.take()
}

/// Has each bind, page and sparse buffer of this thread fail that `work` asks for.
pub(super) fn failing<T>(result: vk::Result, work: impl FnOnce() -> T) -> T {
    FAILURE.set(result);
    let done = work();
    FAILURE.set(vk::Result::SUCCESS);
    done
}

/// Has the pages of this thread's devices another size from now on.
pub(super) fn set_page(bytes: usize) {
    ALIGNMENT.set(bytes);
}

/// The size and the alignment of pages of the device.
pub(super) const PAGE: usize = 1 << 16;

static REAL_INSTANCE: OnceLock<ash::InstanceFnV1_0> = OnceLock::new();
static REAL: OnceLock<ash::DeviceFnV1_0> = OnceLock::new();

fn real() -> &'static ash::DeviceFnV1_0 {
    REAL.get().unwrap()
}

/// A device of a driver that tells this, on this thread.
pub(super) fn device(other: Other) -> VulkanDevice {
    let parts = other.parts();
    let mut functions = parts.instance.fp_v1_0().clone();
    let _earlier = REAL_INSTANCE.set(common::instance().fp_v1_0().clone());
    let _earlier = REAL.set(common::parts().device.fp_v1_0().clone());
    functions.create_device = create_device;
    functions.get_device_proc_addr = get_device_proc_addr;
    let raw = ash::Instance::from_parts_1_3(
        parts.instance.handle(),
        functions,
        parts.instance.fp_v1_1().clone(),
        parts.instance.fp_v1_3().clone(),
    );
    let instance = Instance::adopt(raw);
    let facts = Facts::of(&instance, parts.physical);
    VulkanDevice::of(instance, facts)
}

/// A device with sparse buffers, and one queue of one family.
pub(super) fn sparse() -> Other {
    use vk::{MemoryPropertyFlags as Flags, QueueFlags};
    let seen = Flags::HOST_VISIBLE | Flags::HOST_COHERENT | Flags::HOST_CACHED;
    // Pages are of the second type, and nothing else is.
    let mut sparse = Other::of_types(&[Flags::DEVICE_LOCAL | seen, Flags::DEVICE_LOCAL]);
    let does = QueueFlags::COMPUTE | QueueFlags::TRANSFER | QueueFlags::SPARSE_BINDING;
    sparse.families = vec![(does, 1)];
    sparse.features = |told| (told.sparse_binding, told.sparse_residency_buffer) = (1, 1);
    // The driver's memory has an end at 2 GiB.
    sparse.properties = |told| told.limits.sparse_address_space_size = 1 << 30;
    sparse
}

unsafe extern "system" fn create_device(
    physical: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    device: *mut vk::Device,
) -> vk::Result {
    // SAFETY: The caller gives structs that live, and their numbers.
    let (mut info, mut queues, mut features, extensions) = unsafe {
        let info = *info;
        assert_eq!(info.queue_create_info_count, 1);
        let extensions = 0..info.enabled_extension_count as usize;
        let extensions =
            extensions.map(|index| CStr::from_ptr(*info.pp_enabled_extension_names.add(index)));
        let extensions: Vec<_> = extensions.map(CStr::to_owned).collect();
        (
            info,
            *info.p_queue_create_infos,
            *info.p_enabled_features,
            extensions,
        )
    };
    OPENED.set(Some(Opened {
        family: queues.queue_family_index,
        queues: queues.queue_count,
        extensions,
        is_sparse: features.sparse_binding != 0 && features.sparse_residency_buffer != 0,
        has_numbers: [features.shader_int64 != 0, features.shader_float64 != 0],
    }));
    // What the real one has.
    (queues.queue_family_index, queues.queue_count) = (0, 1);
    (features.sparse_binding, features.sparse_residency_buffer) = (0, 0);
    let names = [ash::ext::external_memory_host::NAME.as_ptr()];
    (info.p_queue_create_infos, info.p_enabled_features) = (&raw const queues, &raw const features);
    (
        info.enabled_extension_count,
        info.pp_enabled_extension_names,
    ) = (1, names.as_ptr());
    // SAFETY: The caller's promises are those of the function itself.
    unsafe {
        (REAL_INSTANCE.get().unwrap().create_device)(physical, &raw const info, callbacks, device)
    }
}

unsafe extern "system" fn get_device_proc_addr(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: The caller gives the name of a function, and calls it by its type.
    unsafe {
        let own: *const () = match CStr::from_ptr(name).to_bytes() {
            b"vkDestroyDevice" => destroy_device as *const (),
            b"vkGetDeviceQueue" => get_device_queue as *const (),
            b"vkCreateCommandPool" => create_command_pool as *const (),
            b"vkCreateBuffer" => create_buffer as *const (),
            b"vkDestroyBuffer" => destroy_buffer as *const (),
            b"vkGetBufferMemoryRequirements" => get_requirements as *const (),
            b"vkAllocateMemory" => allocate_memory as *const (),
            b"vkFreeMemory" => free_memory as *const (),
            b"vkQueueBindSparse" => bind_sparse as *const (),
            b"vkWaitForFences" => wait_for_fences as *const (),
            _ => return (REAL_INSTANCE.get().unwrap().get_device_proc_addr)(device, name),
        };
        std::mem::transmute::<*const (), vk::PFN_vkVoidFunction>(own)
    }
}

/// Devices are left to the process, as in the other tests: the layer is shared with threads that use other devices.
unsafe extern "system" fn destroy_device(
    _device: vk::Device,
    _callbacks: *const vk::AllocationCallbacks<'_>,
) {
}

unsafe extern "system" fn get_device_queue(
    device: vk::Device,
    _family: u32,
    _index: u32,
    queue: *mut vk::Queue,
) {
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real().get_device_queue)(device, 0, 0, queue) };
}

unsafe extern "system" fn create_command_pool(
    device: vk::Device,
    info: *const vk::CommandPoolCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    pool: *mut vk::CommandPool,
) -> vk::Result {
    // SAFETY: The caller gives a struct that lives.
    let info = unsafe { *info }.queue_family_index(0);
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real().create_command_pool)(device, &raw const info, callbacks, pool) }
}

/// A sparse buffer.
struct Sparse {
    start: usize,
    bytes: usize,
    memory: vk::DeviceMemory,
    /// The pages where something is bound, by offset.
    bound: BTreeSet<usize>,
}

static SPARSE: Mutex<Option<HashMap<vk::Buffer, Sparse>>> = Mutex::new(None);

fn all_sparse<T>(work: impl FnOnce(&mut HashMap<vk::Buffer, Sparse>) -> T) -> T {
    work(SPARSE.lock().get_or_insert_default())
}

/// Memory of the second type: files, by handles that are larger than those of the driver.
static FILES: Mutex<Option<HashMap<vk::DeviceMemory, (i32, u64)>>> = Mutex::new(None);

fn all_files<T>(work: impl FnOnce(&mut HashMap<vk::DeviceMemory, (i32, u64)>) -> T) -> T {
    work(FILES.lock().get_or_insert_default())
}

/// Maps a file from an offset on, or memory without contents, to addresses of the process.
unsafe fn map(at: usize, bytes: usize, file: Option<(i32, u64)>) -> usize {
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED };
    let (kind, (file, offset)) = match file {
        Some(file) => (libc::MAP_SHARED, file),
        None => (
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            (-1, 0),
        ),
    };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let at = ptr::without_provenance_mut(at);
    let offset = libc::off_t::try_from(offset).unwrap();
    // SAFETY: The caller's addresses are those of a sparse buffer, or none.
    let mapped = unsafe { libc::mmap(at, bytes, access, kind | fixed, file, offset) };
    assert_ne!(mapped, libc::MAP_FAILED);
    mapped.expose_provenance()
}

unsafe extern "system" fn create_buffer(
    device: vk::Device,
    info: *const vk::BufferCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    buffer: *mut vk::Buffer,
) -> vk::Result {
    let kind = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;
    // SAFETY: The caller gives a struct that lives.
    let mut info = unsafe { *info };
    if !info.flags.contains(vk::BufferCreateFlags::SPARSE_BINDING) {
        // SAFETY: The caller's promises are those of the function itself.
        return unsafe { (real().create_buffer)(device, &raw const info, callbacks, buffer) };
    }
    assert!(info.flags.contains(vk::BufferCreateFlags::SPARSE_RESIDENCY));
    let failure = FAILURE.get();
    if failure != vk::Result::SUCCESS {
        return failure;
    }
    let bytes = usize::try_from(info.size).unwrap().next_multiple_of(PAGE);
    let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(kind);
    info.flags = vk::BufferCreateFlags::empty();
    info.p_next = (&raw mut external).cast();
    // SAFETY: The addresses are new, and are unmapped with the buffer.
    unsafe {
        let start = map(0, bytes, None);
        let mut flags =
            vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let mut import = vk::ImportMemoryHostPointerInfoEXT::default()
            .handle_type(kind)
            .host_pointer(ptr::with_exposed_provenance_mut(start));
        let of_host = vk::MemoryAllocateInfo::default()
            .allocation_size(bytes as u64)
            .push_next(&mut import)
            .push_next(&mut flags);
        let mut memory = vk::DeviceMemory::null();
        let imported =
            (real().allocate_memory)(device, &raw const of_host, callbacks, &raw mut memory);
        assert_eq!(imported, vk::Result::SUCCESS);
        let made = (real().create_buffer)(device, &raw const info, callbacks, buffer);
        assert_eq!(made, vk::Result::SUCCESS);
        let bound = (real().bind_buffer_memory)(device, *buffer, memory, 0);
        assert_eq!(bound, vk::Result::SUCCESS);
        let sparse = Sparse {
            start,
            bytes,
            memory,
            bound: BTreeSet::new(),
        };
        all_sparse(|all| all.insert(*buffer, sparse));
    }
    vk::Result::SUCCESS
}

unsafe extern "system" fn destroy_buffer(
    device: vk::Device,
    buffer: vk::Buffer,
    callbacks: *const vk::AllocationCallbacks<'_>,
) {
    let sparse = all_sparse(|all| all.remove(&buffer));
    // SAFETY: The caller's promises are those of the function itself; no command uses the addresses.
    unsafe {
        (real().destroy_buffer)(device, buffer, callbacks);
        if let Some(sparse) = sparse {
            (real().free_memory)(device, sparse.memory, callbacks);
            let start = ptr::with_exposed_provenance_mut(sparse.start);
            assert_eq!(libc::munmap(start, sparse.bytes), 0);
        }
    }
}

unsafe extern "system" fn get_requirements(
    device: vk::Device,
    buffer: vk::Buffer,
    needs: *mut vk::MemoryRequirements,
) {
    let sparse = all_sparse(|all| all.get(&buffer).map(|sparse| sparse.bytes));
    // SAFETY: The caller's promises are those of the function itself.
    unsafe {
        (real().get_buffer_memory_requirements)(device, buffer, needs);
        if let Some(bytes) = sparse {
            (*needs).size = bytes as u64;
            (*needs).alignment = ALIGNMENT.get() as u64;
            (*needs).memory_type_bits = 0b10;
        } else {
            (*needs).memory_type_bits = 0b01;
        }
    }
}

unsafe extern "system" fn allocate_memory(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    memory: *mut vk::DeviceMemory,
) -> vk::Result {
    // SAFETY: The caller's promises are those of the function itself.
    unsafe {
        if (*info).memory_type_index == 0 {
            return (real().allocate_memory)(device, info, callbacks, memory);
        }
        let failure = FAILURE.get();
        if failure != vk::Result::SUCCESS {
            return failure;
        }
        let bytes = (*info).allocation_size;
        let file = libc::memfd_create(c"pages".as_ptr(), libc::MFD_CLOEXEC);
        assert_eq!(
            libc::ftruncate(file, libc::off_t::try_from(bytes).unwrap()),
            0
        );
        *memory = vk::DeviceMemory::from_raw(u64::MAX - u64::from(file.unsigned_abs()));
        all_files(|all| all.insert(*memory, (file, bytes)));
    }
    vk::Result::SUCCESS
}

unsafe extern "system" fn free_memory(
    device: vk::Device,
    memory: vk::DeviceMemory,
    callbacks: *const vk::AllocationCallbacks<'_>,
) {
    let file = all_files(|all| all.remove(&memory));
    // SAFETY: The caller's promises are those of the function itself; what is mapped of a file keeps its pages.
    unsafe {
        match file {
            Some((file, _)) => assert_eq!(libc::close(file), 0),
            None => (real().free_memory)(device, memory, callbacks),
        }
    }
}

/// A bind that is asked for: addresses, and what they are to have.
type Bind = (usize, usize, Option<(i32, u64)>);

/// Those that no fence was waited for yet. A device may take as long.
static BINDS: Mutex<Option<HashMap<vk::Fence, Bind>>> = Mutex::new(None);

unsafe extern "system" fn wait_for_fences(
    device: vk::Device,
    count: u32,
    fences: *const vk::Fence,
    all: vk::Bool32,
    timeout: u64,
) -> vk::Result {
    // SAFETY: The caller's promises are those of the function itself.
    unsafe {
        assert_eq!((count, all), (1, vk::TRUE));
        let bind = BINDS.lock().get_or_insert_default().remove(&*fences);
        if let Some((start, bytes, file)) = bind {
            map(start, bytes, file);
        }
        (real().wait_for_fences)(device, count, fences, all, timeout)
    }
}

unsafe extern "system" fn bind_sparse(
    queue: vk::Queue,
    count: u32,
    infos: *const vk::BindSparseInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    assert_eq!(count, 1);
    let failure = FAILURE.get();
    if failure != vk::Result::SUCCESS {
        return failure;
    }
    // SAFETY: The caller gives structs that live, and their numbers. No command uses the region.
    unsafe {
        let info = *infos;
        assert_eq!(
            (info.buffer_bind_count, (*info.p_buffer_binds).bind_count),
            (1, 1)
        );
        let (buffer, bind) = (
            (*info.p_buffer_binds).buffer,
            *(*info.p_buffer_binds).p_binds,
        );
        let [offset, bytes] =
            [bind.resource_offset, bind.size].map(|number| usize::try_from(number).unwrap());
        assert!(offset.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE) && bytes > 0);
        let start = all_sparse(|all| {
            let sparse = all.get_mut(&buffer).unwrap();
            assert!(
                offset + bytes <= sparse.bytes,
                "the region lies inside the buffer"
            );
            for page in (offset..offset + bytes).step_by(PAGE) {
                let is_bound = if bind.memory.is_null() {
                    !sparse.bound.remove(&page)
                } else {
                    !sparse.bound.insert(page)
                };
                assert!(!is_bound, "it is bound once, and unbound once");
            }
            sparse.start
        });
        let file = (!bind.memory.is_null()).then(|| {
            let (file, size) = all_files(|all| all[&bind.memory]);
            assert!(
                bind.memory_offset + bind.size <= size,
                "and inside the memory"
            );
            (file, bind.memory_offset)
        });
        let bind = (start + offset, bytes, file);
        BINDS.lock().get_or_insert_default().insert(fence, bind);
        (real().queue_submit)(queue, 0, ptr::null(), fence)
    }
}
