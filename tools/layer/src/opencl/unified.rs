//! Intel's unified shared memory (`cl_intel_unified_shared_memory`), whose functions programs look up by name: it is recorded, and not pooled.

use std::{
    ffi::{CStr, c_void},
    ptr,
    sync::OnceLock,
};

use opencl_sys::{
    CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_SUCCESS, cl_context, cl_device_id, cl_int, cl_kernel,
    cl_uint,
};

use super::{
    layer::layer,
    memory::{svm_of_driver, with_status},
    objects::Handle,
};
use crate::recording::{Call, contained};

/// A function, of the driver that the program has first found it in. Calls to another driver's are not recorded.
struct Driver<F> {
    function: OnceLock<F>,
    call: Call,
}

impl<F: Copy> Driver<F> {
    const fn new(name: &'static str) -> Self {
        Self {
            function: OnceLock::new(),
            call: Call::new(name),
        }
    }

    /// Calls the function, which the program has looked up before.
    fn call<T>(&'static self, missing: T, call: impl FnOnce(F) -> T) -> T {
        match self.function.get() {
            Some(function) => self.call.time(|| call(*function)),
            None => missing,
        }
    }
}

type AllocateFunction =
    unsafe extern "C" fn(cl_context, *const u64, usize, cl_uint, *mut cl_int) -> *mut c_void;
type AllocateOnDeviceFunction = unsafe extern "C" fn(
    cl_context,
    cl_device_id,
    *const u64,
    usize,
    cl_uint,
    *mut cl_int,
) -> *mut c_void;
type FreeFunction = unsafe extern "C" fn(cl_context, *mut c_void) -> cl_int;
type SetArgumentFunction = unsafe extern "C" fn(cl_kernel, cl_uint, *const c_void) -> cl_int;

static HOST: Driver<AllocateFunction> = Driver::new("clHostMemAllocINTEL");
static DEVICE: Driver<AllocateOnDeviceFunction> = Driver::new("clDeviceMemAllocINTEL");
static SHARED: Driver<AllocateOnDeviceFunction> = Driver::new("clSharedMemAllocINTEL");
static FREE: Driver<FreeFunction> = Driver::new("clMemFreeINTEL");
static BLOCKING_FREE: Driver<FreeFunction> = Driver::new("clMemBlockingFreeINTEL");
static SET_ARGUMENT: Driver<SetArgumentFunction> = Driver::new("clSetKernelArgMemPointerINTEL");

/// Memory that the host cannot write to while a kernel waits for it.
const DEVICE_MEMORY: &str = "unified device memory";

/// Returns the layer's function in the place of one that the driver has under this name.
pub(super) fn in_place_of(name: &CStr, function: *mut c_void) -> *mut c_void {
    macro_rules! replace {
        ($driver:ident: $type:ty, $own:ident) => {{
            // SAFETY: the driver's function of this name has this type.
            let function = unsafe { std::mem::transmute::<*mut c_void, $type>(function) };
            let known = *$driver.function.get_or_init(|| function);
            if std::ptr::fn_addr_eq(known, function) {
                $own as *mut c_void
            } else {
                function as *mut c_void
            }
        }};
    }
    match name.to_bytes() {
        _ if function.is_null() => function,
        b"clHostMemAllocINTEL" => replace!(HOST: AllocateFunction, allocate_host),
        b"clDeviceMemAllocINTEL" => replace!(DEVICE: AllocateOnDeviceFunction, allocate_device),
        b"clSharedMemAllocINTEL" => replace!(SHARED: AllocateOnDeviceFunction, allocate_shared),
        b"clMemFreeINTEL" => replace!(FREE: FreeFunction, free),
        b"clMemBlockingFreeINTEL" => replace!(BLOCKING_FREE: FreeFunction, blocking_free),
        b"clSetKernelArgMemPointerINTEL" => {
            replace!(SET_ARGUMENT: SetArgumentFunction, set_argument)
        }
        _ => function,
    }
}

/// Allocates by `create`, which gets a place for its status. Returns the address and the status.
fn allocate(
    context: cl_context,
    kind: &'static str,
    bytes: usize,
    create: impl FnOnce(*mut cl_int) -> *mut c_void,
) -> (*mut c_void, cl_int) {
    let context = context as Handle;
    if kind != DEVICE_MEMORY {
        contained(|| layer().may_wait_unseen());
    }
    if !contained(|| layer().take(bytes)) {
        contained(|| layer().refused(context, kind, bytes));
        return (ptr::null_mut(), CL_MEM_OBJECT_ALLOCATION_FAILURE);
    }
    let mut status = CL_SUCCESS;
    let address = create(&raw mut status);
    svm_of_driver(address, context, kind, bytes, status);
    if !address.is_null() {
        contained(|| layer().passed(bytes, kind));
    }
    (address, status)
}

/// Functions in the place of those that allocate, for the host or on a device.
macro_rules! allocates {
    ($($name:ident $driver:ident $kind:tt ($($device:ident: $type:ty)?);)*) => {$(
        unsafe extern "C" fn $name(
            context: cl_context,
            $($device: $type,)?
            properties: *const u64,
            size: usize,
            alignment: cl_uint,
            errcode_ret: *mut cl_int,
        ) -> *mut c_void {
            let made = allocate(context, $kind, size, |status| {
                $driver.call(ptr::null_mut(), |function| {
                    // SAFETY: the program's arguments.
                    unsafe { function(context, $($device,)? properties, size, alignment, status) }
                })
            });
            // SAFETY: the program's place for a status.
            unsafe { with_status(errcode_ret, made) }
        }
    )*};
}

allocates! {
    allocate_host HOST "unified host memory" ();
    allocate_device DEVICE DEVICE_MEMORY (device: cl_device_id);
    allocate_shared SHARED "unified shared memory" (device: cl_device_id);
}

macro_rules! frees {
    ($($name:ident $driver:ident)*) => {$(
        unsafe extern "C" fn $name(context: cl_context, address: *mut c_void) -> cl_int {
            // Before the driver's call, after which another thread may be given the address.
            contained(|| layer().free_svm(address.addr(), false));
            // SAFETY: the program's arguments.
            $driver.call(CL_SUCCESS, |function| unsafe { function(context, address) })
        }
    )*};
}

frees! {
    free FREE
    blocking_free BLOCKING_FREE
}

/// In the place of `clSetKernelArgMemPointerINTEL`.
///
/// # Safety
///
/// As for that.
unsafe extern "C" fn set_argument(
    kernel: cl_kernel,
    index: cl_uint,
    address: *const c_void,
) -> cl_int {
    // SAFETY: the program's arguments.
    let status = SET_ARGUMENT.call(CL_SUCCESS, |function| unsafe {
        function(kernel, index, address)
    });
    if status == CL_SUCCESS {
        contained(|| {
            layer()
                .change(|known| known.set_argument(kernel as Handle, index, Some(address.addr())));
        });
    }
    status
}
