//! The order of slices over the pool, on the stand-in for the driver, whose streams run late: `LD_LIBRARY_PATH` names a folder where it is
//! `libcuda.so.1`. One test for each process, since the calls of the driver are counted.

use std::{ffi::CString, sync::Arc};

use after::driver::{CudaContext, CudaSlice, CudaStream};

const BYTES: usize = 4096;

/// How often a call of the driver was made.
fn calls(name: &str) -> u64 {
    let name = CString::new(name).unwrap();
    // SAFETY: the stand-in has this function of that type.
    unsafe {
        let library = libloading::Library::new("libcuda.so.1").unwrap();
        let count = library.get::<extern "system" fn(i32, *const std::ffi::c_char) -> u64>(b"stand_in_calls");
        count.unwrap()(0, name.as_ptr())
    }
}

/// Gives a stream much to do.
fn keep_busy(stream: &Arc<CudaStream>) {
    let mut slice = stream.alloc_zeros::<u8>(1 << 20).unwrap();
    for _ in 0..500 {
        stream.memset_zeros(&mut slice).unwrap();
    }
}

fn filled(stream: &Arc<CudaStream>, value: u8) -> CudaSlice<u8> {
    stream.clone_htod(&[value; BYTES]).unwrap()
}

fn address(slice: &CudaSlice<u8>) -> u64 {
    use after::driver::DevicePtr;
    let (address, use_of_it) = slice.device_ptr(slice.stream());
    std::mem::forget(use_of_it); // Its drop would record a use.
    address
}

#[test]
fn one_stream_makes_no_events_and_asks_the_driver_for_memory_once() {
    let context = CudaContext::new(0).unwrap();
    let stream = context.default_stream();
    let first = address(&filled(&stream, 1));
    let names = ["cuEventCreate", "cuEventRecord", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemCreate"];
    let before = names.map(calls);
    for _ in 0..100 {
        let slice = filled(&stream, 2);
        assert_eq!(address(&slice), first);
    }
    assert_eq!(names.map(calls), before);
    assert_eq!(calls("cuMemAllocAsync"), 0);
    assert_eq!(context.check_err(), Ok(()));
}

#[test]
fn the_next_user_of_memory_comes_after_reads_on_other_streams() {
    let context = CudaContext::new(0).unwrap();
    let [own, slow, quick] = [(); 3].map(|()| context.new_stream().unwrap());
    let slice = filled(&own, 1);
    keep_busy(&slow);
    let mut copies = [&slow, &quick].map(|stream| (Arc::clone(stream), stream.alloc_zeros::<u8>(BYTES).unwrap()));
    for (stream, copy) in &mut copies {
        stream.memcpy_dtod(&slice, copy).unwrap();
    }
    let of_slice = address(&slice);
    drop(slice);
    let next = filled(&own, 9);
    assert_eq!(address(&next), of_slice);
    for (stream, copy) in &copies {
        assert_eq!(stream.clone_dtoh(copy).unwrap(), [1; BYTES]);
    }
    assert_eq!(context.check_err(), Ok(()));
}

#[test]
fn a_first_use_on_another_stream_comes_after_the_former_users() {
    let context = CudaContext::new(0).unwrap();
    let [own, other] = [(); 2].map(|()| context.new_stream().unwrap());
    keep_busy(&own);
    let of_former = address(&own.alloc_zeros(BYTES).unwrap()); // Written late.
    // SAFETY: it is written before it is read.
    let mut slice = unsafe { own.alloc::<u8>(BYTES) }.unwrap();
    assert_eq!(address(&slice), of_former);
    other.memcpy_htod(&[2; BYTES], &mut slice).unwrap();
    other.synchronize().unwrap();
    own.synchronize().unwrap();
    assert_eq!(own.clone_dtoh(&slice).unwrap(), [2; BYTES]);
}

#[test]
fn without_events_the_order_is_that_of_the_program() {
    let context = CudaContext::new(0).unwrap();
    // SAFETY: the streams are joined below.
    unsafe { context.disable_event_tracking() };
    let [own, other] = [(); 2].map(|()| context.new_stream().unwrap());
    keep_busy(&other);
    let slice = filled(&own, 1);
    other.join(&own).unwrap();
    let mut copy = other.alloc_zeros::<u8>(BYTES).unwrap();
    let events = calls("cuEventCreate");
    other.memcpy_dtod(&slice, &mut copy).unwrap();
    assert_eq!(calls("cuEventCreate"), events);
    own.join(&other).unwrap();
    drop(slice);
    let _next = filled(&own, 9);
    assert_eq!(other.clone_dtoh(&copy).unwrap(), [1; BYTES]);
}

#[test]
fn memory_of_a_stream_that_is_gone_serves_others() {
    let context = CudaContext::new(0).unwrap();
    let own = context.new_stream().unwrap();
    for value in 0..5 {
        let job = context.new_stream().unwrap();
        keep_busy(&job);
        let slice = filled(&job, value);
        own.join(&job).unwrap();
        assert_eq!(own.clone_dtoh(&slice).unwrap(), [value; BYTES]);
        drop(slice);
        drop(job);
        assert_eq!(own.clone_dtoh(&filled(&own, value + 100)).unwrap(), [value + 100; BYTES]);
    }
    context.synchronize().unwrap();
    assert_eq!(context.check_err(), Ok(()));
    assert_eq!(calls("cuStreamDestroy"), 5);
}

#[test]
fn a_leaked_slice_is_the_pools_again_when_it_is_upgraded() {
    let context = CudaContext::new(0).unwrap();
    let [own, other] = [(); 2].map(|()| context.new_stream().unwrap());
    let leaked = filled(&own, 1).leak();
    own.synchronize().unwrap();
    let next = filled(&own, 2);
    assert_ne!(address(&next), leaked);
    drop(own);
    // SAFETY: a slice of this type and length was leaked.
    let upgraded = unsafe { other.upgrade_device_ptr::<u8>(leaked, BYTES) };
    assert_eq!(other.clone_dtoh(&upgraded).unwrap(), [1; BYTES]);
    drop(upgraded);
    assert_eq!((calls("cuMemFreeAsync"), context.check_err()), (0, Ok(())));
}

#[test]
fn another_thread_may_use_and_drop_what_is_of_the_per_thread_stream() {
    let context = CudaContext::new(0).unwrap();
    let stream = context.per_thread_stream();
    for value in 0..20 {
        let slice = filled(&stream, value);
        stream.synchronize().unwrap();
        let of_thread = Arc::clone(&stream);
        let copy = std::thread::spawn(move || {
            let copy = of_thread.clone_dtod(&slice).unwrap();
            drop(slice); // The copy may still run.
            of_thread.clone_dtoh(&copy).unwrap()
        });
        let next = filled(&stream, value + 100);
        assert_eq!(copy.join().unwrap(), [value; BYTES]);
        assert_eq!(stream.clone_dtoh(&next).unwrap(), [value + 100; BYTES]);
    }
    assert_eq!(context.check_err(), Ok(()));
}
