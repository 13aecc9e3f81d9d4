//! The calls of the driver.

#![allow(non_snake_case, reason = "the driver's names")]

use std::{
    ffi::c_char,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use crate::{
    Code, ILLEGAL_ADDRESS, INVALID_VALUE, NOT_READY,
    device::{Device, context_of, device, enter, make_current},
    memory::{PAGE, is_of_device},
};

/// The attributes that devices have: unified addressing, managed memory, virtual memory, memory pools.
const ATTRIBUTES: [i32; 4] = [41, 83, 102, 115];

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

fn host(address: u64) -> Result<*mut u8, Code> {
    let address = usize::try_from(address).map_err(|_| ILLEGAL_ADDRESS)?;
    Ok(std::ptr::with_exposed_provenance_mut(address))
}

fn read(device: &Device, address: u64, count: usize) -> Result<Vec<u8>, Code> {
    let mut bytes = Vec::with_capacity(count);
    if is_of_device(address) {
        let memory = device.memory.lock();
        memory.visit(address, count, |part| bytes.extend_from_slice(part))?;
        return Ok(bytes);
    }
    let start = host(address)?;
    // SAFETY: The program keeps its bytes until the command has ended.
    bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start, count) });
    Ok(bytes)
}

fn write(device: &Device, address: u64, bytes: &[u8]) -> Result<(), Code> {
    if is_of_device(address) {
        let mut rest = bytes;
        let memory = device.memory.lock();
        return memory.visit(address, bytes.len(), |part| {
            let (now, later) = rest.split_at(part.len());
            part.copy_from_slice(now);
            rest = later;
        });
    }
    let start = host(address)?;
    // SAFETY: The program keeps its bytes until the command has ended.
    unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
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
fn set(call: &str, to: u64, stream: usize, bytes: Vec<u8>) -> Result<(), Code> {
    let stream = enter(call)?.stream(stream)?;
    stream.enqueue(move |device| run(device, |device| write(device, to, &bytes)))
}

/// Returns once the word is at least `value`, counted round, or the device is lost.
fn wait_for_word(device: &Device, address: u64, value: u32) -> Result<(), Code> {
    let word = host(address)?.cast();
    // SAFETY: The program keeps the word, which is aligned, until the command has ended.
    let word = unsafe { AtomicU32::from_ptr(word) };
    while word.load(Ordering::Acquire).wrapping_sub(value) > u32::MAX / 2 && !device.is_lost() {
        thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

macro_rules! calls {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        $(
            // SAFETY: A process that loads the stand-in calls these by its handle, and not those of the driver.
            #[unsafe(no_mangle)]
            extern "system" fn $name($($argument: $type),*) -> Code {
                let body = move || -> Result<(), Code> { $body };
                body().err().unwrap_or(0)
            }
        )*
    };
}

calls! {
    fn cuInit(_flags: u32) { Ok(()) }
    fn cuDeviceGetCount(count: *mut i32) { put(count, 2) }
    fn cuDeviceGet(number: *mut i32, ordinal: i32) {
        device(ordinal)?;
        put(number, ordinal)
    }
    fn cuDeviceGetName(name: *mut c_char, length: i32, _device: i32) {
        let text = b"stand-in\0";
        if usize::try_from(length).unwrap_or(0) < text.len() {
            return Err(INVALID_VALUE);
        }
        for (offset, byte) in text.iter().enumerate() {
            put(name.cast::<u8>().wrapping_add(offset), *byte)?;
        }
        Ok(())
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, number: i32) {
        put(bytes, device(number)?.capacity.load(Ordering::SeqCst))
    }
    fn cuDeviceGetAttribute(value: *mut i32, attribute: i32, _device: i32) {
        put(value, i32::from(ATTRIBUTES.contains(&attribute)))
    }
    fn cuDevicePrimaryCtxRetain(context: *mut usize, number: i32) {
        device(number)?.retain();
        put(context, context_of(number))
    }
    fn cuDevicePrimaryCtxRelease_v2(number: i32) {
        device(number)?.release();
        Ok(())
    }
    fn cuCtxSetCurrent(context: usize) {
        make_current(context);
        Ok(())
    }
    fn cuCtxSynchronize() { enter("cuCtxSynchronize")?.synchronize() }
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let device = enter("cuMemGetInfo")?;
        let capacity = device.capacity.load(Ordering::SeqCst);
        let used = device.memory.lock().used();
        put(total, capacity)?;
        put(free, capacity.saturating_sub(used))
    }

    fn cuMemAlloc_v2(address: *mut u64, bytes: usize) {
        put(address, enter("cuMemAlloc")?.allocate(bytes)?)
    }
    fn cuMemFree_v2(address: u64) {
        let device = enter("cuMemFree")?;
        device.synchronize()?;
        device.memory.lock().free(address)
    }
    fn cuMemHostAlloc(address: *mut usize, bytes: usize, _flags: u32) {
        put(address, enter("cuMemHostAlloc")?.allocate_host(bytes))
    }
    fn cuMemFreeHost(address: usize) {
        let device = enter("cuMemFreeHost")?;
        device.synchronize()?;
        device.free_host(address)
    }
    fn cuMemAllocManaged(address: *mut u64, bytes: usize, _flags: u32) {
        put(address, enter("cuMemAllocManaged")?.allocate(bytes)?)
    }
    fn cuMemPoolCreate(pool: *mut usize, _properties: usize) {
        put(pool, enter("cuMemPoolCreate")?.create_pool())
    }
    fn cuMemPoolDestroy(pool: usize) { enter("cuMemPoolDestroy")?.destroy_pool(pool) }
    fn cuMemPoolSetAttribute(_pool: usize, _attribute: i32, _value: usize) {
        enter("cuMemPoolSetAttribute").map(drop)
    }
    fn cuMemPoolGetAttribute(_pool: usize, attribute: i32, value: *mut u64) {
        let device = enter("cuMemPoolGetAttribute")?;
        let memory = device.memory.lock();
        match attribute {
            POOL_RESERVED_HIGH | POOL_USED_HIGH => put(value, memory.most_used() as u64),
            _ => Err(INVALID_VALUE),
        }
    }
    fn cuMemPoolTrimTo(_pool: usize, _bytes: usize) { enter("cuMemPoolTrimTo").map(drop) }
    fn cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, _pool: usize, stream: usize) {
        let device = enter("cuMemAllocFromPoolAsync")?;
        device.stream(stream)?;
        put(address, device.allocate(bytes)?)
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

    fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: usize) {
        let stream = enter("cuMemcpyAsync")?.stream(stream)?;
        stream.enqueue(move |device| {
            run(device, |device| write(device, to, &read(device, from, bytes)?));
        })
    }
    fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: usize) {
        set("cuMemsetD8Async", to, stream, vec![value; count])
    }
    fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: usize) {
        set("cuMemsetD16Async", to, stream, value.to_ne_bytes().repeat(count))
    }
    fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: usize) {
        set("cuMemsetD32Async", to, stream, value.to_ne_bytes().repeat(count))
    }

    fn cuStreamCreate(stream: *mut usize, _flags: u32) {
        put(stream, enter("cuStreamCreate")?.create_stream())
    }
    fn cuStreamDestroy_v2(stream: usize) { enter("cuStreamDestroy")?.destroy_stream(stream) }
    fn cuStreamSynchronize(stream: usize) {
        let device = enter("cuStreamSynchronize")?;
        device.stream(stream)?.progress().wait(&device);
        device.check()
    }
    fn cuStreamWaitEvent(stream: usize, event: usize, _flags: u32) {
        let device = enter("cuStreamWaitEvent")?;
        let event = device.event(event)?;
        let last = event.last();
        device.stream(stream)?.enqueue(move |device| event.wait(last, device))
    }
    fn cuStreamWaitValue32_v2(stream: usize, address: u64, value: u32, _flags: u32) {
        let stream = enter("cuStreamWaitValue32")?.stream(stream)?;
        stream.enqueue(move |device| run(device, |device| wait_for_word(device, address, value)))
    }

    fn cuEventCreate(event: *mut usize, _flags: u32) {
        put(event, enter("cuEventCreate")?.create_event())
    }
    fn cuEventDestroy_v2(event: usize) { enter("cuEventDestroy")?.destroy_event(event) }
    fn cuEventRecord(event: usize, stream: usize) {
        let device = enter("cuEventRecord")?;
        let (event, stream) = (device.event(event)?, device.stream(stream)?);
        let record = event.record();
        stream.enqueue(move |_| event.end(record))
    }
    fn cuEventQuery(event: usize) {
        let has_ended = enter("cuEventQuery")?.event(event)?.has_ended();
        has_ended.then_some(()).ok_or(NOT_READY)
    }
    fn cuEventSynchronize(event: usize) {
        let device = enter("cuEventSynchronize")?;
        let event = device.event(event)?;
        event.wait(event.last(), &device);
        device.check()
    }

    fn cuMemGetAllocationGranularity(bytes: *mut usize, _properties: usize, _option: i32) {
        put(bytes, PAGE)
    }
    fn cuMemAddressReserve(address: *mut u64, bytes: usize, _alignment: usize, _wanted: u64, _flags: u64) {
        let device = enter("cuMemAddressReserve")?;
        let reserved = device.memory.lock().reserve(bytes)?;
        put(address, reserved)
    }
    fn cuMemAddressFree(address: u64, bytes: usize) {
        let device = enter("cuMemAddressFree")?;
        device.memory.lock().free_addresses(address, bytes)
    }
    fn cuMemCreate(pages: *mut u64, bytes: usize, _properties: usize, _flags: u64) {
        let device = enter("cuMemCreate")?;
        let capacity = device.capacity.load(Ordering::SeqCst);
        let created = device.memory.lock().create_pages(bytes, capacity)?;
        put(pages, created)
    }
    fn cuMemRelease(pages: u64) {
        let device = enter("cuMemRelease")?;
        device.memory.lock().release_pages(pages)
    }
    fn cuMemMap(address: u64, bytes: usize, _offset: usize, pages: u64, _flags: u64) {
        let device = enter("cuMemMap")?;
        device.memory.lock().map(address, bytes, pages)
    }
    fn cuMemUnmap(address: u64, bytes: usize) {
        let device = enter("cuMemUnmap")?;
        device.memory.lock().unmap(address, bytes)
    }
    fn cuMemSetAccess(address: u64, bytes: usize, _access: usize, _count: usize) {
        let device = enter("cuMemSetAccess")?;
        device.memory.lock().allow(address, bytes)
    }
}
