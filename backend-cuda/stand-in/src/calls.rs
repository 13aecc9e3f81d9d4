//! The calls of the driver.

#![allow(non_snake_case, reason = "the driver's names")]

use std::{
    cell::RefCell,
    ffi::{CStr, c_char, c_void},
    fs::File,
    os::fd::{BorrowedFd, IntoRawFd},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    CAPTURE_INVALIDATED, CAPTURE_ISOLATION, CAPTURE_UNSUPPORTED, Code, INVALID_HANDLE,
    INVALID_VALUE, NOT_FOUND, NOT_READY, capture,
    context::{
        Context, context, context_of, context_of_handle, current, enter, enter_unless_captured,
        handle_of_context, make_current,
    },
    cupti,
    device::Device,
    kernels::{self, Launch},
    memory::{Memory, PAGE, Users, is_of_device},
    stream::PER_THREAD,
    transfer::{host, read, write},
};

/// The attributes that devices have: unified addressing, managed memory, virtual memory, pages that are shared by descriptors and by RDMA,
/// memory pools.
const ATTRIBUTES: [i32; 6] = [41, 83, 102, 103, 110, 115];
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: i32 = 1;
/// Pinned for all contexts.
const PORTABLE: u32 = 1;

/// The attributes of an address.
const RANGE_START: i32 = 11;
const RANGE_BYTES: i32 = 12;
const MAPPING_BYTES: i32 = 18;
const MAPPING_START: i32 = 19;

/// A pool has what all of the device has.
const POOL_RESERVED_HIGH: i32 = 6;
const POOL_USED_HIGH: i32 = 8;

/// Stores a result.
fn put<T>(place: *mut T, value: T) -> Result<(), Code> {
    if place.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: The program passes a place for the result.
    unsafe { place.write(value) };
    Ok(())
}

/// Stores a text with its zero.
fn put_text(place: *mut c_char, length: i32, text: &[u8]) -> Result<(), Code> {
    if usize::try_from(length).unwrap_or(0) < text.len() {
        return Err(INVALID_VALUE);
    }
    for (offset, byte) in text.iter().enumerate() {
        put(place.cast::<u8>().wrapping_add(offset), *byte)?;
    }
    Ok(())
}

thread_local! {
    /// The contexts that were current before others were pushed.
    static PUSHED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Refuses null pointers, as the driver does when a command is enqueued.
fn check(addresses: &[u64], bytes: usize) -> Result<(), Code> {
    if bytes > 0 && addresses.contains(&0) {
        return Err(INVALID_VALUE);
    }
    Ok(())
}

/// Refuses an address that is not aligned for values of this size, as fills with them do.
fn check_aligned(address: u64, bytes: u64) -> Result<(), Code> {
    let is_aligned = address.is_multiple_of(bytes);
    is_aligned.then_some(()).ok_or(INVALID_VALUE)
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Access {
    location_kind: i32,
    device: i32,
    rights: i32,
}

/// The devices that get the right to read and write.
fn devices_of(access: *const Access, count: usize) -> Result<Vec<i32>, Code> {
    if access.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: The program passes this many of them.
    let access = unsafe { std::slice::from_raw_parts(access, count) };
    let is_good = |access: &Access| access.location_kind == 1 && access.rights == 3;
    let devices = access
        .iter()
        .map(|access| is_good(access).then_some(access.device));
    devices.collect::<Option<_>>().ok_or(INVALID_VALUE)
}

/// Returns the device at whose address a copy reads or writes, whose context the program names.
fn peer(context: usize, address: u64) -> Result<Arc<Context>, Code> {
    let device = context_of(context)?;
    let is_its = is_of_device(address) && Memory::owner(address) == device.ordinal;
    is_its.then_some(device).ok_or(INVALID_VALUE)
}

/// Runs a command, unless the device is lost. One that fails loses it.
fn run(device: &Device, command: impl FnOnce(&Device) -> Result<(), Code>) {
    if device.is_lost() {
        return;
    }
    if let Err(code) = command(device) {
        device.lose(code);
    }
}

/// Enqueues a command that writes `bytes` to an address.
fn set(context: &Arc<Context>, to: u64, stream: usize, bytes: Vec<u8>) -> Result<(), Code> {
    check(&[to], bytes.len())?;
    context
        .stream(stream)?
        .enqueue(move |device| run(device, |device| write(device, to, &bytes)))
}

/// Enqueues a copy.
fn copy(
    context: &Arc<Context>,
    to: u64,
    from: u64,
    bytes: usize,
    stream: usize,
) -> Result<(), Code> {
    check(&[to, from], bytes)?;
    context.stream(stream)?.enqueue(move |device| {
        run(device, |device| {
            write(device, to, &read(device, from, bytes)?)
        });
    })
}

fn text(text: *const c_char) -> Result<String, Code> {
    if text.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: The program passes a string that ends with a zero.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(text.to_string_lossy().into_owned())
}

/// The answer of another call.
fn answer(code: Code) -> Result<(), Code> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// The stream that a handle means to the functions for which 0 is the default stream of the thread.
fn of_thread(stream: usize) -> usize {
    if stream == 0 { PER_THREAD } else { stream }
}

/// Returns once the word is at least `value`, counted round, or the device is lost.
fn wait_for_word(device: &Device, address: u64, value: u32) -> Result<(), Code> {
    let word = host(device, address)?.cast();
    // SAFETY: The program keeps the word, which is aligned, until the command has ended.
    let word = unsafe { AtomicU32::from_ptr(word) };
    while word.load(Ordering::Acquire).wrapping_sub(value) > u32::MAX / 2 && !device.is_lost() {
        thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

/// An argument, as CUPTI shows it.
trait AsWord {
    fn as_word(&self) -> usize;
}

impl<T> AsWord for *mut T {
    fn as_word(&self) -> usize {
        self.expose_provenance()
    }
}

impl<T> AsWord for *const T {
    fn as_word(&self) -> usize {
        self.expose_provenance()
    }
}

impl AsWord for capture::Destroy {
    fn as_word(&self) -> usize {
        (*self as *const ()).expose_provenance()
    }
}

macro_rules! numbers_as_words {
    ($($type:ty)*) => {$(
        impl AsWord for $type {
            fn as_word(&self) -> usize {
                usize::try_from(*self).unwrap_or(0)
            }
        }
    )*};
}

numbers_as_words!(u8 u16 i32 u32 u64 usize);

macro_rules! calls {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        /// The names of the calls.
        pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(
            // SAFETY: A process that loads the stand-in calls these by its handle, and not those of the driver.
            #[unsafe(no_mangle)]
            extern "system" fn $name($($argument: $type),*) -> Code {
                let arguments: &[usize] = &[$($argument.as_word()),*];
                let body = move || -> Result<(), Code> { $body };
                cupti::around(stringify!($name), arguments, || body().err().unwrap_or(0))
            }
        )*
    };
}

calls! {
    fn cuInit(flags: u32) { if flags == 0 { Ok(()) } else { Err(INVALID_VALUE) } }
    fn cuDeviceGetCount(count: *mut i32) { put(count, 2) }
    fn cuDeviceGet(number: *mut i32, ordinal: i32) {
        context(ordinal)?;
        put(number, ordinal)
    }
    fn cuDeviceGetName(name: *mut c_char, length: i32, _device: i32) {
        put_text(name, length, b"stand-in\0")
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, number: i32) {
        put(bytes, context(number)?.capacity.load(Ordering::SeqCst))
    }
    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, _device: i32) {
        put(value, i32::from(ATTRIBUTES.contains(&attribute)))
    }
    fn cuDevicePrimaryCtxRetain(place: *mut usize, number: i32) {
        context(number)?.faults.lock().call("cuDevicePrimaryCtxRetain")?;
        context(number)?.retain();
        put(place, handle_of_context(number))
    }
    fn cuDevicePrimaryCtxRelease_v2(number: i32) {
        context(number)?.release();
        Ok(())
    }
    fn cuDevicePrimaryCtxReset_v2(number: i32) {
        let device = context(number)?;
        device.faults.lock().call("cuDevicePrimaryCtxReset")?;
        device.memory.lock().reset();
        device.reset();
        Ok(())
    }
    fn cuCtxDestroy_v2(context: usize) {
        let device = context_of(context)?;
        device.faults.lock().call("cuCtxDestroy")?;
        device.memory.lock().reset();
        Ok(())
    }
    fn cuCtxGetCurrent(context: *mut usize) {
        if current() != 0 {
            context_of(current())?.faults.lock().call("cuCtxGetCurrent")?;
        }
        put(context, current())
    }
    fn cuCtxSetCurrent(context: usize) { make_current(context) }
    fn cuCtxPushCurrent_v2(context: usize) {
        let before = current();
        make_current(context)?;
        PUSHED.with_borrow_mut(|pushed| pushed.push(before));
        Ok(())
    }
    fn cuCtxPopCurrent_v2(popped: *mut usize) {
        let before = PUSHED.with_borrow_mut(Vec::pop).ok_or(INVALID_VALUE)?;
        put(popped, current())?;
        make_current(before)
    }
    fn cuCtxGetDevice(number: *mut i32) { put(number, enter("cuCtxGetDevice")?.ordinal) }
    fn cuDevicePrimaryCtxGetState(number: i32, flags: *mut u32, is_active: *mut i32) {
        put(flags, 0)?;
        put(is_active, i32::from(context(number)?.is_active()))
    }
    fn cuDeviceGetPCIBusId(text: *mut c_char, length: i32, device: i32) {
        put_text(text, length, format!("0000:00:{device:02x}.0\0").as_bytes())
    }
    fn cuDeviceCanAccessPeer(can: *mut i32, number: i32, peer: i32) {
        context(number)?.faults.lock().call("cuDeviceCanAccessPeer")?;
        put(can, i32::from(context(number)?.can_use_memory_of(&*context(peer)?)))
    }
    fn cuCtxEnablePeerAccess(context: usize, _flags: u32) {
        enter("cuCtxEnablePeerAccess")?.enable_peer(&*context_of(context)?)
    }
    fn cuCtxSynchronize() {
        let device = enter_unless_captured("cuCtxSynchronize")?;
        capture::check_wait_for_device(&device)?;
        device.synchronize()
    }
    fn cuCtxRecordEvent(context: usize, event: usize) {
        let device = enter("cuCtxRecordEvent")?;
        if handle_of_context(device.ordinal) != context {
            return Err(INVALID_HANDLE);
        }
        let event = device.events.get(event)?;
        capture::check_wait_for_device(&device)?;
        device.record_all(&event);
        Ok(())
    }
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let device = enter("cuMemGetInfo")?;
        let capacity = device.capacity.load(Ordering::SeqCst);
        let used = device.memory.lock().used();
        put(total, capacity)?;
        put(free, capacity.saturating_sub(used))
    }

    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        put(address, enter_unless_captured("cuMemAlloc")?.allocate(bytes, Users::Peers)?)
    }
    fn cuMemAllocPitch_v2(address: *mut u64, pitch: *mut usize, width: usize, height: usize, _element: u32) {
        let row = width.next_multiple_of(512);
        put(pitch, row)?;
        put(address, enter_unless_captured("cuMemAllocPitch")?.allocate(row * height, Users::Peers)?)
    }
    fn cuMemFree_v2(address: u64) {
        let device = enter_unless_captured("cuMemFree")?;
        device.synchronize()?;
        device.memory.lock().free(address)
    }
    fn cuMemHostAlloc(address: *mut usize, bytes: usize, flags: u32) {
        put(address, enter_unless_captured("cuMemHostAlloc")?.allocate_host(bytes, flags & PORTABLE != 0))
    }
    fn cuMemFreeHost(address: usize) {
        let device = enter_unless_captured("cuMemFreeHost")?;
        device.synchronize()?;
        device.free_host(address)
    }
    fn cuMemAllocManaged(address: *mut u64, bytes: usize, _flags: u32) {
        put(address, enter_unless_captured("cuMemAllocManaged")?.allocate(bytes, Users::All)?)
    }
    fn cuMemPoolCreate(pool: *mut usize, _properties: *const c_void) {
        let device = enter("cuMemPoolCreate")?;
        put(pool, device.pools.add(vec![device.ordinal]))
    }
    fn cuMemPoolDestroy(pool: usize) { enter("cuMemPoolDestroy")?.pools.destroy(pool) }
    fn cuMemPoolSetAttribute(_pool: usize, _attribute: i32, _value: *const u64) {
        enter_unless_captured("cuMemPoolSetAttribute").map(drop)
    }
    fn cuMemPoolGetAttribute(_pool: usize, attribute: i32, value: *mut u64) {
        let device = enter_unless_captured("cuMemPoolGetAttribute")?;
        let memory = device.memory.lock();
        match attribute {
            POOL_RESERVED_HIGH | POOL_USED_HIGH => put(value, memory.most_used() as u64),
            _ => Err(INVALID_VALUE),
        }
    }
    fn cuDeviceGetMemPool(pool: *mut usize, number: i32) { put(pool, context(number)?.default_pool()) }
    fn cuDeviceGetDefaultMemPool(pool: *mut usize, number: i32) { put(pool, context(number)?.default_pool()) }
    fn cuMemPoolSetAccess(pool: usize, access: *const Access, count: usize) {
        let users = devices_of(access, count)?;
        enter("cuMemPoolSetAccess")?.pools.change(pool, |all| all.extend(users))
    }
    fn cuMemPoolTrimTo(_pool: usize, _bytes: usize) { enter_unless_captured("cuMemPoolTrimTo").map(drop) }
    fn cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: usize, stream: usize) {
        let device = enter("cuMemAllocFromPoolAsync")?;
        device.stream(stream)?;
        let users = Users::Some(device.pools.get(pool)?);
        put(address, device.allocate(bytes, users)?)
    }
    fn cuMemAllocFromPoolAsync_ptsz(address: *mut u64, bytes: usize, pool: usize, stream: usize) {
        answer(cuMemAllocFromPoolAsync(address, bytes, pool, of_thread(stream)))
    }
    fn cuMemAllocAsync(address: *mut u64, bytes: usize, stream: usize) {
        let device = enter("cuMemAllocAsync")?;
        device.stream(stream)?;
        put(address, device.allocate(bytes, Users::Some(vec![device.ordinal]))?)
    }
    fn cuMemAllocAsync_ptsz(address: *mut u64, bytes: usize, stream: usize) {
        answer(cuMemAllocAsync(address, bytes, of_thread(stream)))
    }
    fn cuMemGetAddressRange_v2(start: *mut u64, bytes: *mut usize, address: u64) {
        let (first, length) = enter("cuMemGetAddressRange")?.memory.lock().range(address)?;
        // The program may ask for one of them.
        if !start.is_null() {
            put(start, first)?;
        }
        if bytes.is_null() { Ok(()) } else { put(bytes, length) }
    }
    fn cuPointerGetAttribute(value: *mut u64, attribute: i32, address: u64) {
        let (first, length) = enter("cuPointerGetAttribute")?.memory.lock().range(address)?;
        match attribute {
            RANGE_START | MAPPING_START => put(value, first),
            RANGE_BYTES | MAPPING_BYTES => put(value, length as u64),
            _ => Err(INVALID_VALUE),
        }
    }
    fn cuPointerGetAttributes(count: u32, attributes: *const i32, values: *const *mut u64, address: u64) {
        for index in 0..count as usize {
            let (attribute, value) = (attributes.wrapping_add(index), values.wrapping_add(index));
            // SAFETY: The program passes `count` numbers.
            let attribute = unsafe { attribute.read() };
            // SAFETY: The program passes `count` places.
            let value = unsafe { value.read() };
            answer(cuPointerGetAttribute(value, attribute, address))?;
        }
        Ok(())
    }
    fn cuGetProcAddress_v2(name: *const c_char, function: *mut usize, _version: i32, _flags: u64, _status: *mut i32) {
        let found = match text(name)?.as_str() {
            "cuMemAllocAsync" => cuMemAllocAsync as *const c_void,
            "cuMemGetInfo" => cuMemGetInfo_v2 as *const c_void,
            "cuMemsetD8Async" => cuMemsetD8Async as *const c_void,
            _ => return Err(NOT_FOUND),
        };
        put(function, found.expose_provenance())
    }
    fn cuMemFreeAsync(address: u64, stream: usize) {
        let device = enter("cuMemFreeAsync")?;
        let stream = device.stream(stream)?;
        if !stream.progress().is_idle() {
            return stream.enqueue(move |device| run(device, |device| device.memory.lock().free(address)));
        }
        // At once, so that a command of another stream which still uses it is found out.
        device.memory.lock().free(address)
    }

    fn cuMemFreeAsync_ptsz(address: u64, stream: usize) { answer(cuMemFreeAsync(address, of_thread(stream))) }

    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: usize) {
        copy(&enter("cuMemcpyAsync")?, to, from, bytes, stream)
    }
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) {
        copy(&enter("cuMemcpyDtoDAsync")?, to, from, bytes, stream)
    }
    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) {
        // The host's bytes are read before the call returns, as the driver does where they are not pinned.
        let device = enter("cuMemcpyHtoDAsync")?;
        check(&[from], bytes)?;
        let bytes = read(&device, from, bytes)?;
        set(&device, to, stream, bytes)
    }
    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) {
        let device = enter("cuMemcpyDtoHAsync")?;
        copy(&device, to, from, bytes, stream)?;
        // As above.
        device.stream(stream)?.progress().wait(&device);
        device.check()
    }
    fn cuMemcpyPeerAsync(to: u64, there: usize, from: u64, here: usize, bytes: usize, stream: usize) {
        let stream = enter("cuMemcpyPeerAsync")?.stream(stream)?;
        let (there, here) = (peer(there, to)?, peer(here, from)?);
        stream.enqueue(move |device| {
            run(device, |_| write(&there, to, &read(&here, from, bytes)?));
        })
    }
    fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: usize) {
        set(&enter("cuMemsetD8Async")?, to, stream, vec![value; count])
    }
    fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: usize) {
        check_aligned(to, 2)?;
        set(&enter("cuMemsetD16Async")?, to, stream, value.to_ne_bytes().repeat(count))
    }
    fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: usize) {
        check_aligned(to, 4)?;
        set(&enter("cuMemsetD32Async")?, to, stream, value.to_ne_bytes().repeat(count))
    }

    fn cuStreamCreate(stream: *mut usize, _flags: u32) {
        put(stream, enter("cuStreamCreate")?.create_stream())
    }
    fn cuStreamDestroy_v2(stream: usize) {
        enter("cuStreamDestroy")?.streams.destroy(stream)?;
        // A capture ends with its stream.
        let _graph = capture::end(stream);
        Ok(())
    }
    fn cuStreamGetCtx(stream: usize, context: *mut usize) {
        let owner = match stream {
            // A default stream is that of the current context.
            0..=PER_THREAD => context_of(current())?,
            _ => context_of_handle(stream)?,
        };
        owner.stream(stream)?;
        put(context, handle_of_context(owner.ordinal))
    }
    fn cuStreamSynchronize(stream: usize) {
        let device = enter_unless_captured("cuStreamSynchronize")?;
        if capture::status(stream) != 0 {
            return Err(capture::spoil(stream, CAPTURE_UNSUPPORTED));
        }
        device.stream(stream)?.progress().wait(&device);
        device.check()
    }
    fn cuStreamWaitEvent(stream: usize, event: usize, _flags: u32) {
        let target = enter("cuStreamWaitEvent")?.stream(stream)?;
        let owner = context_of_handle(event)?;
        let event = owner.events.get(event)?;
        let last = event.last();
        match event.captured() {
            Some(captured) if captured == stream => return Ok(()),
            Some(captured) => return Err(capture::spoil(captured, CAPTURE_UNSUPPORTED)),
            None if last == 0 => return Ok(()),
            None if capture::status(stream) != 0 => return Err(capture::spoil(stream, CAPTURE_ISOLATION)),
            None => {}
        }
        target.enqueue(move |device| event.wait(last, [device, &owner]))
    }
    fn cuStreamWaitValue32_v2(stream: usize, address: u64, value: u32, _flags: u32) {
        let stream = enter("cuStreamWaitValue32")?.stream(stream)?;
        stream.enqueue(move |device| run(device, |device| wait_for_word(device, address, value)))
    }

    fn cuLaunchHostFunc(stream: usize, function: capture::Destroy, argument: *mut c_void) {
        let stream = enter("cuLaunchHostFunc")?.stream(stream)?;
        let argument = argument.expose_provenance();
        stream.enqueue(move |_| {
            // SAFETY: The program passes both for this call.
            unsafe { function(std::ptr::with_exposed_provenance_mut(argument)) };
        })
    }

    fn cuStreamBeginCapture_v2(stream: usize, mode: u32) {
        let device = enter("cuStreamBeginCapture")?;
        device.stream(stream)?;
        if stream <= PER_THREAD {
            return Err(INVALID_VALUE);
        }
        capture::begin(&device, stream, mode, || {
            let graph = capture::Graph::default();
            (device.graphs.add(Arc::clone(&graph)), graph)
        })
    }
    fn cuStreamGetCaptureInfo_v2(
        stream: usize, status: *mut i32, number: *mut u64, graph: *mut usize, _nodes: usize, _count: usize
    ) {
        let device = enter("cuStreamGetCaptureInfo")?;
        device.stream(stream)?;
        put(status, capture::status(stream))?;
        let Some(handle) = capture::graph_of(stream) else {
            return Ok(());
        };
        put(number, handle as u64)?;
        put(graph, handle)
    }
    fn cuUserObjectCreate(
        object: *mut usize, pointer: *mut c_void, destroy: capture::Destroy, references: u32, flags: u32
    ) {
        enter("cuUserObjectCreate")?;
        if (references, flags) != (1, 1) {
            return Err(INVALID_VALUE);
        }
        put(object, capture::make_object(pointer, destroy))
    }
    fn cuUserObjectRelease(object: usize, _references: u32) {
        enter("cuUserObjectRelease").and_then(|_| capture::take_object(object)).map(drop)
    }
    fn cuGraphRetainUserObject(graph: usize, object: usize, references: u32, flags: u32) {
        let device = enter("cuGraphRetainUserObject")?;
        if (references, flags) != (1, 1) {
            return Err(INVALID_VALUE);
        }
        let graph = device.graphs.get(graph)?;
        let object = capture::take_object(object)?;
        graph.kept.lock().push(object);
        Ok(())
    }
    fn cuStreamIsCapturing(stream: usize, status: *mut i32) {
        let device = enter("cuStreamIsCapturing")?;
        device.stream(stream)?;
        put(status, capture::status(stream))
    }
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) {
        if current() != 0 {
            context_of(current())?.faults.lock().call("cuThreadExchangeStreamCaptureMode")?;
        }
        if mode.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: The program passes a mode, and a place for the one before.
        put(mode, capture::exchange_mode(unsafe { mode.read() })?)
    }
    fn cuStreamEndCapture(stream: usize, graph: *mut usize) {
        let device = enter("cuStreamEndCapture")?;
        put(graph, 0)?;
        match capture::end(stream)? {
            Ok(handle) => put(graph, handle),
            Err(spoilt) => device.graphs.destroy(spoilt).and(Err(CAPTURE_INVALIDATED)),
        }
    }
    fn cuGraphInstantiateWithFlags(executable: *mut usize, graph: usize, _flags: u64) {
        let device = enter("cuGraphInstantiateWithFlags")?;
        put(executable, device.graphs.add(device.graphs.get(graph)?))
    }
    fn cuGraphLaunch(executable: usize, stream: usize) {
        let device = enter("cuGraphLaunch")?;
        let (graph, stream) = (device.graphs.get(executable)?, device.stream(stream)?);
        graph.commands.lock().iter().try_for_each(|command| stream.run(Arc::clone(command)))?;
        // A launch keeps what the graph keeps until it has ended.
        stream.run(Arc::new(move |_| drop(Arc::clone(&graph))))
    }
    fn cuGraphExecDestroy(executable: usize) { enter("cuGraphExecDestroy")?.graphs.destroy(executable) }
    fn cuGraphDestroy(graph: usize) { enter("cuGraphDestroy")?.graphs.destroy(graph) }

    fn cuEventCreate(event: *mut usize, _flags: u32) {
        put(event, enter("cuEventCreate")?.events.add(Arc::default()))
    }
    fn cuEventDestroy_v2(event: usize) { enter("cuEventDestroy")?.events.destroy(event) }
    fn cuEventRecord(event: usize, stream: usize) {
        let device = enter("cuEventRecord")?;
        let (event, target) = (device.events.get(event)?, device.stream(stream)?);
        if capture::status(stream) != 0 {
            event.capture(stream);
            return Ok(());
        }
        let record = event.record();
        target.enqueue(move |_| event.end(record))
    }
    fn cuEventQuery(event: usize) {
        let event = enter_unless_captured("cuEventQuery")?.events.get(event)?;
        event.check_host()?;
        event.has_ended().then_some(()).ok_or(NOT_READY)
    }
    fn cuEventSynchronize(event: usize) {
        let device = enter_unless_captured("cuEventSynchronize")?;
        let event = device.events.get(event)?;
        event.check_host()?;
        event.wait(event.last(), [&**device; 2]);
        device.check()
    }

    fn cuModuleLoadData(module: *mut usize, image: *const c_char) {
        put(module, enter("cuModuleLoadData")?.create_module(text(image)?)?)
    }
    fn cuModuleUnload(module: usize) { enter_unless_captured("cuModuleUnload")?.modules.destroy(module) }
    fn cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) {
        let device = enter("cuModuleGetFunction")?;
        put(function, device.function(kernels::find(&device.modules.get(module)?, &text(name)?)?))
    }
    fn cuLaunchKernel(
        function: usize, blocks: u32, _y: u32, _z: u32, threads: u32, _ty: u32, _tz: u32, _shared: u32, stream: usize,
        arguments: *const *const c_void, _extra: usize
    ) {
        let device = enter("cuLaunchKernel")?;
        let stream = device.stream(stream)?;
        let launch = Launch::new(device.kernel(function)?, blocks, threads, arguments)?;
        stream.enqueue(move |device| run(device, |device| launch.run(device)))
    }
    fn cuGetErrorName(_code: Code, name: *mut *const c_char) { put(name, c"an error of the stand-in".as_ptr()) }
    fn cuGetErrorString(_code: Code, text: *mut *const c_char) { put(text, c"see its code".as_ptr()) }

    fn cuMemGetAllocationGranularity(bytes: *mut usize, _properties: *const c_void, _option: i32) {
        put(bytes, PAGE)
    }
    fn cuMemAddressReserve(address: *mut u64, bytes: usize, _alignment: usize, _wanted: u64, _flags: u64) {
        put(address, enter_unless_captured("cuMemAddressReserve")?.memory.lock().reserve(bytes)?)
    }
    fn cuMemAddressFree(address: u64, bytes: usize) { enter_unless_captured("cuMemAddressFree")?.memory.lock().free_addresses(address, bytes) }
    fn cuMemCreate(pages: *mut u64, bytes: usize, properties: *const [i32; 2], _flags: u64) {
        let device = enter("cuMemCreate")?;
        let capacity = device.capacity.load(Ordering::SeqCst);
        // SAFETY: The program passes properties, which begin so.
        let handles = unsafe { properties.as_ref() }.map_or(0, |[_, handles]| *handles);
        let created = device.memory.lock().create_pages(bytes, capacity, handles == DESCRIPTOR)?;
        put(pages, created)
    }
    fn cuMemRetainAllocationHandle(pages: *mut u64, address: u64) {
        put(pages, enter_unless_captured("cuMemRetainAllocationHandle")?.memory.lock().retain_pages(address)?)
    }
    fn cuMemExportToShareableHandle(place: *mut i32, pages: u64, kind: i32, _flags: u64) {
        let device = enter_unless_captured("cuMemExportToShareableHandle")?;
        if kind != DESCRIPTOR {
            return Err(INVALID_VALUE);
        }
        let file = device.memory.lock().export(pages)?;
        put(place, file.into_raw_fd())
    }
    fn cuMemImportFromShareableHandle(pages: *mut u64, descriptor: usize, kind: i32) {
        let device = enter_unless_captured("cuMemImportFromShareableHandle")?;
        let descriptor = i32::try_from(descriptor).map_err(|_| INVALID_VALUE)?;
        if kind != DESCRIPTOR || descriptor < 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: The program passes a descriptor that is open until the call returns.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let file = descriptor.try_clone_to_owned().map_err(|_| INVALID_VALUE)?;
        let imported = device.memory.lock().import(File::from(file))?;
        put(pages, imported)
    }
    fn cuMemRelease(pages: u64) { enter_unless_captured("cuMemRelease")?.memory.lock().release_pages(pages) }
    fn cuMemMap(address: u64, bytes: usize, _offset: usize, pages: u64, _flags: u64) {
        enter_unless_captured("cuMemMap")?.memory.lock().map(address, bytes, pages)
    }
    fn cuMemUnmap(address: u64, bytes: usize) { enter_unless_captured("cuMemUnmap")?.memory.lock().unmap(address, bytes) }
    fn cuMemSetAccess(address: u64, bytes: usize, access: *const Access, count: usize) {
        let device = enter_unless_captured("cuMemSetAccess")?;
        let devices = devices_of(access, count)?;
        device.memory.lock().allow(address, bytes, &devices)
    }
}
