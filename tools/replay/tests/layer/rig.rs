//! What the programs of the rules are made of.

use std::{
    ffi::{CString, c_void},
    fs::File,
    os::fd::AsRawFd as _,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use opencl_sys::*;

use crate::{cl::cl, runs::write_line};

/// The kernels of the rules.
const SOURCE: &str = "
    kernel void set(global uchar *to, uchar value) { to[get_global_id(0)] = value; }
    kernel void add(global uchar *to, global const uchar *from) { to[get_global_id(0)] += from[get_global_id(0)]; }
    kernel void keep(global ulong *to, ulong value) { to[get_global_id(0)] = value; }
    kernel void slow(global uchar *to, uint rounds) {
        volatile uint sum = 0;
        for (uint round = 0; round < rounds; round++) sum += round;
        to[get_global_id(0)] = 0xEE;
    }
    kernel void wait(global uchar *to, global volatile uchar *let_go) { while (!*let_go); to[get_global_id(0)] = 0xEE; }
    kernel void is_null(global uchar *to, global const uchar *from) { to[get_global_id(0)] = from == 0; }
    kernel void through(global uchar *to, ulong address) { to[get_global_id(0)] = ((global uchar *)address)[get_global_id(0)]; }
";

/// A program: the first device, a context of it, and an in-order queue.
pub(crate) struct Rig {
    file: File,
    pub(crate) platform: cl_platform_id,
    pub(crate) device: cl_device_id,
    pub(crate) context: cl_context,
    pub(crate) queue: cl_command_queue,
    program: cl_program,
}

/// Writes down what the program sees.
macro_rules! say {
    ($rig:expr, $($text:tt)*) => { $rig.line(&format!($($text)*)) };
}
pub(crate) use say;

/// A command that waits for the host: it holds its queue up until it is [opened](Self::open).
#[derive(Clone, Copy)]
pub(crate) struct Gate(&'static AtomicBool);

/// What a native kernel gets: it waits for the gate, and sets the bytes.
#[repr(C)]
struct Held {
    gate: *const AtomicBool,
    memory: *mut u8,
    bytes: usize,
    value: u8,
}

unsafe extern "C" fn wait_and_set(held: *mut c_void) {
    // SAFETY: the driver passes a copy of what was enqueued.
    let held = unsafe { held.cast::<Held>().read_unaligned() };
    // SAFETY: a gate lives forever.
    let gate = unsafe { &*held.gate };
    while !gate.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(1));
    }
    if !held.memory.is_null() {
        // SAFETY: the driver passes where the buffer of these bytes is.
        unsafe { held.memory.write_bytes(held.value, held.bytes) };
    }
}

impl Gate {
    pub(crate) fn open(self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Rig {
    pub(crate) fn new(file: File) -> Self {
        let mut rig = Self {
            file,
            platform: ptr::null_mut(),
            device: ptr::null_mut(),
            context: ptr::null_mut(),
            queue: ptr::null_mut(),
            program: ptr::null_mut(),
        };
        assert_eq!(
            cl!(clGetPlatformIDs(1, &raw mut rig.platform, ptr::null_mut())),
            CL_SUCCESS
        );
        assert_eq!(
            cl!(clGetDeviceIDs(
                rig.platform,
                CL_DEVICE_TYPE_ALL,
                1,
                &raw mut rig.device,
                ptr::null_mut()
            )),
            CL_SUCCESS
        );
        rig.context = rig.new_context(&[rig.device]);
        rig.queue = rig.new_queue(0);
        rig
    }

    pub(crate) fn line(&mut self, text: &str) {
        write_line(&mut self.file, text);
    }

    /// The number of the transcript's file.
    pub(crate) fn file_number(&self) -> i32 {
        self.file.as_raw_fd()
    }

    // Contexts and queues.

    pub(crate) fn new_context(&self, devices: &[cl_device_id]) -> cl_context {
        let mut status = 0;
        let count = cl_uint::try_from(devices.len()).unwrap();
        let context = cl!(clCreateContext(
            ptr::null(),
            count,
            devices.as_ptr(),
            None,
            ptr::null_mut(),
            &raw mut status
        ));
        assert_eq!(status, CL_SUCCESS);
        context
    }

    pub(crate) fn new_queue(&self, properties: cl_command_queue_properties) -> cl_command_queue {
        self.queue_in(self.context, self.device, properties)
    }

    pub(crate) fn queue_in(
        &self,
        context: cl_context,
        device: cl_device_id,
        properties: cl_command_queue_properties,
    ) -> cl_command_queue {
        let mut status = 0;
        let properties = [
            cl_queue_properties::from(CL_QUEUE_PROPERTIES),
            properties as cl_queue_properties,
            0,
        ];
        let queue = cl!(clCreateCommandQueueWithProperties(
            context,
            device,
            properties.as_ptr(),
            &raw mut status
        ));
        assert_eq!(status, CL_SUCCESS);
        queue
    }

    pub(crate) fn finish(&self, queue: cl_command_queue) {
        assert_eq!(cl!(clFinish(queue)), CL_SUCCESS);
    }

    pub(crate) fn queue_references(&self, queue: cl_command_queue) -> cl_uint {
        let mut count: cl_uint = 0;
        let status = cl!(clGetCommandQueueInfo(
            queue,
            CL_QUEUE_REFERENCE_COUNT,
            size_of::<cl_uint>(),
            (&raw mut count).cast(),
            ptr::null_mut()
        ));
        assert_eq!(status, CL_SUCCESS);
        count
    }

    pub(crate) fn context_references(&self, context: cl_context) -> cl_uint {
        let mut count: cl_uint = 0;
        let status = cl!(clGetContextInfo(
            context,
            CL_CONTEXT_REFERENCE_COUNT,
            size_of::<cl_uint>(),
            (&raw mut count).cast(),
            ptr::null_mut()
        ));
        assert_eq!(status, CL_SUCCESS);
        count
    }

    // Memory.

    pub(crate) fn try_buffer(
        &self,
        flags: cl_mem_flags,
        bytes: usize,
        host: *mut c_void,
    ) -> (cl_mem, cl_int) {
        let mut status = 1234;
        let memory = cl!(clCreateBuffer(
            self.context,
            flags,
            bytes,
            host,
            &raw mut status
        ));
        (memory, status)
    }

    pub(crate) fn buffer(&self, bytes: usize) -> cl_mem {
        self.buffer_with(CL_MEM_READ_WRITE, bytes)
    }

    pub(crate) fn buffer_with(&self, flags: cl_mem_flags, bytes: usize) -> cl_mem {
        let (memory, status) = self.try_buffer(flags, bytes, ptr::null_mut());
        assert_eq!(status, CL_SUCCESS);
        memory
    }

    /// A buffer of `bytes` bytes that was used before, and whose commands have ended.
    pub(crate) fn used_buffer(&self, bytes: usize) -> cl_mem {
        let memory = self.buffer(bytes);
        self.fill(self.queue, memory, 0xEE, bytes);
        self.finish(self.queue);
        self.release(memory);
        self.buffer(bytes)
    }

    pub(crate) fn release(&self, memory: cl_mem) {
        assert_eq!(cl!(clReleaseMemObject(memory)), CL_SUCCESS);
    }

    pub(crate) fn retain(&self, memory: cl_mem) {
        assert_eq!(cl!(clRetainMemObject(memory)), CL_SUCCESS);
    }

    pub(crate) fn sub_buffer(
        &self,
        memory: cl_mem,
        origin: usize,
        size: usize,
    ) -> (cl_mem, cl_int) {
        let region = cl_buffer_region { origin, size };
        let mut status = 1234;
        let part = cl!(clCreateSubBuffer(
            memory,
            0,
            CL_BUFFER_CREATE_TYPE_REGION,
            (&raw const region).cast(),
            &raw mut status
        ));
        (part, status)
    }

    /// What the driver answers about memory.
    pub(crate) fn about<T: Copy>(
        &self,
        memory: cl_mem,
        name: cl_mem_info,
        none: T,
    ) -> Result<T, cl_int> {
        let mut value = none;
        let status = cl!(clGetMemObjectInfo(
            memory,
            name,
            size_of::<T>(),
            (&raw mut value).cast(),
            ptr::null_mut()
        ));
        if status == CL_SUCCESS {
            Ok(value)
        } else {
            Err(status)
        }
    }

    /// The references to memory. A thread of the driver may have one for a moment after a command has ended.
    pub(crate) fn references(&self, memory: cl_mem) -> cl_uint {
        let count = || {
            self.about(memory, CL_MEM_REFERENCE_COUNT, 0_u32)
                .unwrap_or(0)
        };
        let mut least = count();
        for _ in 0..40 {
            if least <= 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            least = least.min(count());
        }
        least
    }

    /// All that the driver says of a memory object, in words.
    pub(crate) fn all_about(&self, memory: cl_mem) -> String {
        let is_context = |context: usize| context == self.context as usize;
        let mut properties = 99_usize;
        let asked = cl!(clGetMemObjectInfo(
            memory,
            CL_MEM_PROPERTIES,
            0,
            ptr::null_mut(),
            &raw mut properties
        ));
        format!(
            "type {:x?}, flags {:x?}, bytes {:?}, no host pointer: {:?}, maps {:?}, references {:?}, own context: {:?}, a part: {:?}, at {:?}, \
             shared: {:?}, properties {asked} {properties}",
            self.about(memory, CL_MEM_TYPE, 0_u32),
            self.about(memory, CL_MEM_FLAGS, 0_u64),
            self.about(memory, CL_MEM_SIZE, 0_usize),
            self.about(memory, CL_MEM_HOST_PTR, 0_usize)
                .map(|pointer| pointer == 0),
            self.about(memory, CL_MEM_MAP_COUNT, 0_u32),
            self.references(memory),
            self.about(memory, CL_MEM_CONTEXT, 0_usize).map(is_context),
            self.about(memory, CL_MEM_ASSOCIATED_MEMOBJECT, 0_usize)
                .map(|whole| whole != 0),
            self.about(memory, CL_MEM_OFFSET, 0_usize),
            self.about(memory, CL_MEM_USES_SVM_POINTER, 0_u32),
        )
    }

    // Commands.

    pub(crate) fn try_read(&self, memory: cl_mem, offset: usize, bytes: usize) -> cl_int {
        let mut to = vec![0_u8; bytes.min(1 << 20)];
        cl!(clEnqueueReadBuffer(
            self.queue,
            memory,
            CL_BLOCKING,
            offset,
            bytes,
            to.as_mut_ptr().cast(),
            0,
            ptr::null(),
            ptr::null_mut()
        ))
    }

    pub(crate) fn copy(
        &self,
        queue: cl_command_queue,
        from: cl_mem,
        to: cl_mem,
        from_offset: usize,
        to_offset: usize,
        bytes: usize,
    ) -> cl_int {
        cl!(clEnqueueCopyBuffer(
            queue,
            from,
            to,
            from_offset,
            to_offset,
            bytes,
            0,
            ptr::null(),
            ptr::null_mut()
        ))
    }

    pub(crate) fn map(
        &self,
        memory: cl_mem,
        flags: cl_map_flags,
        offset: usize,
        bytes: usize,
    ) -> (*mut u8, cl_int) {
        let mut status = 1234;
        let mapped = cl!(clEnqueueMapBuffer(
            self.queue,
            memory,
            CL_BLOCKING,
            flags,
            offset,
            bytes,
            0,
            ptr::null(),
            ptr::null_mut(),
            &raw mut status
        ));
        (mapped.cast(), status)
    }

    pub(crate) fn unmap(&self, memory: cl_mem, mapped: *mut u8) -> cl_int {
        cl!(clEnqueueUnmapMemObject(
            self.queue,
            memory,
            mapped.cast(),
            0,
            ptr::null(),
            ptr::null_mut()
        ))
    }

    /// Reads, and waits.
    pub(crate) fn read(&self, queue: cl_command_queue, memory: cl_mem, bytes: usize) -> Vec<u8> {
        let mut to = vec![0xAA_u8; bytes];
        let status = cl!(clEnqueueReadBuffer(
            queue,
            memory,
            CL_BLOCKING,
            0,
            bytes,
            to.as_mut_ptr().cast(),
            0,
            ptr::null(),
            ptr::null_mut()
        ));
        assert_eq!(status, CL_SUCCESS);
        to
    }

    pub(crate) fn fill(&self, queue: cl_command_queue, memory: cl_mem, value: u8, bytes: usize) {
        let status = self.fill_after(queue, memory, value, bytes, &[]);
        assert_eq!(status, CL_SUCCESS);
    }

    pub(crate) fn fill_after(
        &self,
        queue: cl_command_queue,
        memory: cl_mem,
        value: u8,
        bytes: usize,
        waits: &[cl_event],
    ) -> cl_int {
        let list = if waits.is_empty() {
            ptr::null()
        } else {
            waits.as_ptr()
        };
        cl!(clEnqueueFillBuffer(
            queue,
            memory,
            (&raw const value).cast(),
            1,
            0,
            bytes,
            cl_uint::try_from(waits.len()).unwrap(),
            list,
            ptr::null_mut()
        ))
    }

    /// Enqueues a command that waits until the gate is opened, and sets memory then.
    pub(crate) fn gate(
        &self,
        queue: cl_command_queue,
        memory: Option<(cl_mem, usize, u8)>,
    ) -> Gate {
        let gate: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let (buffer, bytes, value) = memory.unwrap_or((ptr::null_mut(), 0, 0));
        let mut held = Held {
            gate: ptr::from_ref(gate),
            memory: ptr::null_mut(),
            bytes,
            value,
        };
        let mut place: *const c_void = (&raw const held.memory).cast();
        let count = cl_uint::from(!buffer.is_null());
        let (list, places) = if count == 0 {
            (ptr::null(), ptr::null_mut())
        } else {
            (&raw const buffer, &raw mut place)
        };
        let status = cl!(clEnqueueNativeKernel(
            queue,
            Some(wait_and_set),
            (&raw mut held).cast(),
            size_of::<Held>(),
            count,
            list,
            places,
            0,
            ptr::null(),
            ptr::null_mut()
        ));
        assert_eq!(status, CL_SUCCESS);
        cl!(clFlush(queue));
        Gate(gate)
    }

    pub(crate) fn user_event(&self) -> cl_event {
        let mut status = 0;
        let event = cl!(clCreateUserEvent(self.context, &raw mut status));
        assert_eq!(status, CL_SUCCESS);
        event
    }

    pub(crate) fn resolve(&self, event: cl_event, status: cl_int) {
        assert_eq!(cl!(clSetUserEventStatus(event, status)), CL_SUCCESS);
    }

    pub(crate) fn event_status(&self, event: cl_event) -> cl_int {
        let mut value: cl_int = 99;
        let status = cl!(clGetEventInfo(
            event,
            CL_EVENT_COMMAND_EXECUTION_STATUS,
            size_of::<cl_int>(),
            (&raw mut value).cast(),
            ptr::null_mut()
        ));
        assert_eq!(status, CL_SUCCESS);
        value
    }

    // Kernels.

    pub(crate) fn program(&mut self) -> cl_program {
        if self.program.is_null() {
            self.program = self.program_in(self.context);
        }
        self.program
    }

    pub(crate) fn program_in(&self, context: cl_context) -> cl_program {
        let source = CString::new(SOURCE).unwrap();
        let mut text = source.as_ptr();
        let mut status = 0;
        let program = cl!(clCreateProgramWithSource(
            context,
            1,
            &raw mut text,
            ptr::null(),
            &raw mut status
        ));
        assert_eq!(status, CL_SUCCESS);
        let options = CString::new("").unwrap();
        let status = cl!(clBuildProgram(
            program,
            0,
            ptr::null(),
            options.as_ptr(),
            None,
            ptr::null_mut()
        ));
        assert_eq!(status, CL_SUCCESS);
        program
    }

    pub(crate) fn kernel(&mut self, name: &str) -> cl_kernel {
        let program = self.program();
        let name = CString::new(name).unwrap();
        let mut status = 0;
        let kernel = cl!(clCreateKernel(program, name.as_ptr(), &raw mut status));
        assert_eq!(status, CL_SUCCESS);
        kernel
    }

    pub(crate) fn argument<T>(&self, kernel: cl_kernel, index: cl_uint, value: &T) -> cl_int {
        cl!(clSetKernelArg(
            kernel,
            index,
            size_of_val(value),
            ptr::from_ref(value).cast()
        ))
    }

    /// Enqueues a command that sets memory to 0xEE once it has run for a while.
    pub(crate) fn set_slowly(&mut self, queue: cl_command_queue, memory: cl_mem, bytes: usize) {
        let kernel = self.kernel("slow");
        let rounds = 200_000_000_u32 / u32::try_from(bytes).unwrap();
        assert_eq!(self.argument(kernel, 0, &memory), CL_SUCCESS);
        assert_eq!(self.argument(kernel, 1, &rounds), CL_SUCCESS);
        self.launch(queue, kernel, bytes);
        cl!(clFlush(queue));
    }

    pub(crate) fn launch(&self, queue: cl_command_queue, kernel: cl_kernel, items: usize) {
        let status = cl!(clEnqueueNDRangeKernel(
            queue,
            kernel,
            1,
            ptr::null(),
            &raw const items,
            ptr::null(),
            0,
            ptr::null(),
            ptr::null_mut()
        ));
        assert_eq!(status, CL_SUCCESS);
    }
}
