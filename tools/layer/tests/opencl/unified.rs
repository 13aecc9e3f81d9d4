//! Intel's unified shared memory, whose functions a program looks up by name.

use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

use opencl_sys::{
    CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES, CL_SUCCESS, cl_context, cl_device_id,
    cl_int, cl_uint,
};

use crate::{
    child::{limited, pooled, recorded},
    driver::{CONTEXT, DEVICE, Device},
    queue_driver::load_with,
};

type OfHost =
    unsafe extern "C" fn(cl_context, *const u64, usize, cl_uint, *mut cl_int) -> *mut c_void;
type OnDevice = unsafe extern "C" fn(
    cl_context,
    cl_device_id,
    *const u64,
    usize,
    cl_uint,
    *mut cl_int,
) -> *mut c_void;
type Free = unsafe extern "C" fn(cl_context, *mut c_void) -> cl_int;

/// Gives an address, but for 13 bytes, for which there is no memory.
unsafe extern "C" fn of_host(
    _: cl_context,
    _: *const u64,
    bytes: usize,
    _: cl_uint,
    status: *mut cl_int,
) -> *mut c_void {
    static NEXT: AtomicUsize = AtomicUsize::new(1 << 20);
    let code = if bytes == 13 {
        CL_OUT_OF_RESOURCES
    } else {
        CL_SUCCESS
    };
    unsafe { status.write(code) };
    if code == CL_SUCCESS {
        ptr::without_provenance_mut(NEXT.fetch_add(1 << 20, Ordering::Relaxed))
    } else {
        ptr::null_mut()
    }
}

unsafe extern "C" fn on_device(
    context: cl_context,
    device: cl_device_id,
    properties: *const u64,
    bytes: usize,
    alignment: cl_uint,
    status: *mut cl_int,
) -> *mut c_void {
    assert_eq!(device.addr(), DEVICE);
    unsafe { of_host(context, properties, bytes, alignment, status) }
}

unsafe extern "C" fn free(_: cl_context, _: *mut c_void) -> cl_int {
    7
}

/// Another driver's.
unsafe extern "C" fn other_free(_: cl_context, _: *mut c_void) -> cl_int {
    8
}

unsafe extern "C" fn find(name: *const c_char) -> *mut c_void {
    match unsafe { CStr::from_ptr(name) }.to_bytes() {
        b"clHostMemAllocINTEL" => of_host as *mut c_void,
        b"clDeviceMemAllocINTEL" | b"clSharedMemAllocINTEL" => on_device as *mut c_void,
        b"clMemFreeINTEL" | b"clMemBlockingFreeINTEL" => free as *mut c_void,
        _ => ptr::null_mut(),
    }
}

unsafe extern "C" fn find_other(_: *mut c_void, _: *const c_char) -> *mut c_void {
    other_free as *mut c_void
}

fn load() -> Device {
    load_with(|functions| {
        functions.clGetExtensionFunctionAddress = Some(find);
        functions.clGetExtensionFunctionAddressForPlatform = Some(find_other);
    })
}

fn address_of(device: Device, name: &CStr) -> *mut c_void {
    let find = device.functions.clGetExtensionFunctionAddress.unwrap();
    unsafe { find(name.as_ptr()) }
}

/// Allocates on the device, for it alone or for the host, too. The error is the status.
fn allocate(device: Device, name: &CStr, bytes: usize) -> Result<usize, cl_int> {
    let function: OnDevice = unsafe { std::mem::transmute(address_of(device, name)) };
    let [context, on] = [CONTEXT, DEVICE].map(ptr::without_provenance_mut);
    let mut status = -1;
    let address = unsafe { function(context, on.cast(), ptr::null(), bytes, 0, &raw mut status) };
    if address.is_null() {
        Err(status)
    } else {
        Ok(address.addr())
    }
}

fn allocate_for_host(device: Device, bytes: usize) -> Result<usize, cl_int> {
    let function: OfHost =
        unsafe { std::mem::transmute(address_of(device, c"clHostMemAllocINTEL")) };
    let mut status = -1;
    let context = ptr::without_provenance_mut(CONTEXT);
    let address = unsafe { function(context, ptr::null(), bytes, 0, &raw mut status) };
    if address.is_null() {
        Err(status)
    } else {
        Ok(address.addr())
    }
}

fn free_by(device: Device, name: &CStr, address: usize) {
    let function: Free = unsafe { std::mem::transmute(address_of(device, name)) };
    let [context, address] = [CONTEXT, address].map(ptr::without_provenance_mut);
    assert_eq!(
        unsafe { function(context, address) },
        7,
        "the driver's answer"
    );
}

#[test]
fn each_kind_of_it_is_recorded_until_it_is_freed() {
    let ran = recorded(|| {
        let device = load();
        let all = [
            allocate_for_host(device, 10),
            allocate(device, c"clDeviceMemAllocINTEL", 20),
            allocate(device, c"clSharedMemAllocINTEL", 30),
        ];
        for (address, free) in all.into_iter().zip([
            c"clMemFreeINTEL",
            c"clMemBlockingFreeINTEL",
            c"clMemFreeINTEL",
        ]) {
            free_by(device, free, address.unwrap());
        }
        assert_eq!(allocate_for_host(device, 13), Err(CL_OUT_OF_RESOURCES));
    });
    if let Some(ran) = ran {
        let recording = ran.recording();
        assert_eq!(recording.sizes(), [10, 20, 30]);
        assert_eq!((recording.count("f "), recording.count("o ")), (3, 1));
        let groups = recording
            .of("g ")
            .map(|line| line.split_once(' ').unwrap().1);
        let kinds: Vec<&str> = groups.map(|name| name.split(',').next().unwrap()).collect();
        let expected = [
            "unified host memory",
            "unified device memory",
            "unified shared memory",
        ];
        assert_eq!(kinds, expected);
    }
}

#[test]
fn it_counts_for_the_limit_and_is_noted_as_not_pooled() {
    let ran = limited("100", || {
        let device = load();
        let held = allocate(device, c"clDeviceMemAllocINTEL", 60).unwrap();
        assert_eq!(allocate_for_host(device, 13), Err(CL_OUT_OF_RESOURCES));
        for _ in 0..2 {
            let refused = allocate_for_host(device, 41);
            assert_eq!(refused, Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
        }
        let rest = allocate_for_host(device, 40).unwrap();
        device.try_create(0, 1).unwrap_err();
        for address in [held, rest] {
            free_by(device, c"clMemFreeINTEL", address);
        }
        device.touch(100);
    });
    if let Some(ran) = ran {
        let recording = ran.recording();
        let passed: Vec<&str> = recording.of("p passed ").collect();
        assert!(
            passed.len() == 2
                && passed[0].ends_with("unified device memory")
                && passed[1].ends_with("unified host memory"),
            "{passed:?}"
        );
    }
}

#[test]
fn memory_is_used_again_at_once_beside_that_of_the_device_and_not_beside_that_of_the_host() {
    pooled(|| {
        let device = load();
        let queue = device.create_queue(0);
        let is_at_once = || {
            let block = device.create(100);
            device.fill_on(queue, block);
            device.release(block);
            device.create(100) == block
        };
        allocate(device, c"clDeviceMemAllocINTEL", 10).unwrap();
        assert!(is_at_once());
        allocate(device, c"clSharedMemAllocINTEL", 10).unwrap();
        assert!(!is_at_once());
    });
}

#[test]
fn functions_of_another_driver_and_those_that_are_not_there_are_as_they_are() {
    recorded(|| {
        let device = load();
        assert_ne!(address_of(device, c"clMemFreeINTEL"), free as *mut c_void);
        let find = device
            .functions
            .clGetExtensionFunctionAddressForPlatform
            .unwrap();
        let other = unsafe { find(ptr::null_mut(), c"clMemFreeINTEL".as_ptr()) };
        assert_eq!(other, other_free as *mut c_void);
        assert!(address_of(device, c"clSetKernelArgMemPointerINTEL").is_null());
    });
}
