//! Pooled slices in the calls of cudarc.
//!
//! cudarc loads the driver by its name, so these tests run in a process of their own, which finds the stand-in under that name.

use std::{env, fs, os::unix::fs::symlink, path::PathBuf, process::Command, sync::Arc};

use binpool::{ImmediateAllocator, MemoryPool, PoolOptions};
use binpool_allocators::{Backend, Error, InvalidRequest, MemoryFlags, ObjectKind, Queue, Region};
use binpool_cuda::{CudaBackend, CudaDevice, PooledCudaSlice, PooledStream};
use cudarc::{
    driver::{
        CudaContext, CudaFunction, CudaStream, DevicePtr, DeviceRepr, DriverError, LaunchConfig,
        PushKernelArg, ValidAsZeroBits,
        sys::{CUgraphInstantiate_flags, CUresult, CUstreamCaptureMode},
    },
    nvrtc::Ptx,
};

use crate::common::{Device, build, bytes, logged};

/// Runs the ignored tests of this file where the stand-in is the driver.
#[test]
fn over_the_stand_in() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("driver");
    fs::create_dir_all(&folder).unwrap();
    for name in ["libcuda.so", "libcuda.so.1"] {
        let link = folder.join(name);
        let _ = fs::remove_file(&link);
        symlink(build(), link).unwrap();
    }
    let status = Command::new(env::current_exe().unwrap())
        .args(["cudarc::", "--ignored"])
        .env("LD_LIBRARY_PATH", folder)
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn the_devices_of_the_installed_driver_are_listed() {
    assert_eq!(CudaDevice::all().unwrap().len(), 2);
}

type Slice = PooledCudaSlice<f32>;

const LENGTH: usize = 256;

struct Setup {
    device: Device,
    backend: CudaBackend,
    context: Arc<CudaContext>,
    pool: MemoryPool<CudaBackend>,
    pooled: PooledStream,
    /// The stream of the slices.
    home: Arc<CudaStream>,
    other: Arc<CudaStream>,
    add_to: CudaFunction,
}

impl Setup {
    fn new() -> Self {
        Self::on(|context| context.new_stream().unwrap())
    }

    fn on(stream: impl Fn(&Arc<CudaContext>) -> Arc<CudaStream>) -> Self {
        let device = Device::new(1 << 28);
        let backend = device.backend();
        let context = CudaContext::new(device.ordinal().try_into().unwrap()).unwrap();
        let [home, other] = [stream(&context), context.new_stream().unwrap()];
        let queue = backend.wrap_cudarc_stream(&home).unwrap();
        let allocator = ImmediateAllocator::new(&backend).unwrap();
        let pool = PoolOptions::new().build(allocator, &queue).unwrap();
        let text = Ptx::from_src(".version 6.4\n.visible .entry add_to(");
        let module = context.load_module(text).unwrap();
        Self {
            pooled: PooledStream::new(&pool, &home).unwrap(),
            add_to: module.load_function("add_to").unwrap(),
            device,
            backend,
            context,
            pool,
            home,
            other,
        }
    }

    fn slice(&self, value: f32) -> Slice {
        self.pooled.clone_htod(&[value; LENGTH]).unwrap()
    }

    /// Enqueues commands for a few milliseconds.
    fn busy(&self, stream: &Arc<CudaStream>) {
        let mut scratch = self.context.default_stream().alloc_zeros::<u8>(1).unwrap();
        for _ in 0..200 {
            stream.memset_zeros(&mut scratch).unwrap();
        }
        std::mem::forget(scratch);
    }

    /// Enqueues `result += operand`.
    fn add(&self, stream: &CudaStream, result: &mut Slice, operand: &Slice) {
        let count = LENGTH as u64;
        let mut launch = stream.launch_builder(&self.add_to);
        launch.arg(result).arg(operand).arg(&count);
        // SAFETY: These are the parameters of the kernel.
        unsafe { launch.launch(LaunchConfig::for_num_elems(256)) }.unwrap();
    }

    fn check(&self, slice: &Slice, value: f32) {
        assert_eq!(self.home.clone_dtoh(slice).unwrap(), [value; LENGTH]);
    }

    /// Drops a slice while a launch on another stream that reads it is yet to run, uses its memory again, and checks that the launch has read
    /// what was there.
    fn drop_after_a_launch(&self, stream: Arc<CudaStream>, before_the_drop: impl FnOnce()) {
        let (mut sum, operand) = (self.slice(1.0), self.slice(2.0));
        let (address, recorded) = operand.device_ptr(&self.home);
        drop(recorded);
        self.busy(&stream);
        self.add(&stream, &mut sum, &operand);
        drop(stream);
        before_the_drop();
        drop(operand);
        let _kept = self.context.check_err();
        let next = self.slice(5.0);
        assert_eq!(next.device_ptr(&self.home).0, address);
        self.context.synchronize().unwrap();
        self.check(&sum, 3.0);
        self.check(&next, 5.0);
    }
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn slices_go_into_copies_fills_and_launches() {
    let setup = Setup::new();
    let Setup { pooled, home, .. } = &setup;
    let (operand, mut sum) = (setup.slice(2.0), pooled.alloc_zeros(LENGTH).unwrap());
    assert!(!sum.is_empty());
    setup.check(&sum, 0.0);
    setup.add(home, &mut sum, &operand);
    setup.check(&sum, 2.0);
    home.memcpy_dtod(&sum, &mut setup.slice(0.0)).unwrap();
    home.memset_zeros(&mut sum.as_view_mut().slice_mut(..10))
        .unwrap();
    let around = home.clone_dtoh(&sum.as_slice().slice(9..11)).unwrap();
    assert_eq!(around, [0.0, 2.0]);
    assert_eq!(home.clone_dtoh(sum.as_slice()).unwrap().len(), sum.len());
    let empty = pooled.alloc_zeros::<f32>(0).unwrap();
    assert!(empty.is_empty() && home.clone_dtoh(&empty).unwrap().is_empty());
    assert!(pooled.alloc_zeros::<f32>(usize::MAX).is_err());
}

/// Its elements are aligned as blocks are.
#[derive(Clone, Copy)]
#[repr(align(256))]
struct Aligned(#[expect(dead_code, reason = "it has a size")] [u8; 256]);

/// Its elements are aligned to more than blocks are.
#[derive(Clone, Copy)]
#[repr(align(512))]
struct Wide(#[expect(dead_code, reason = "it has a size")] [u8; 512]);

// SAFETY: It consists of bytes.
unsafe impl DeviceRepr for Aligned {}

// SAFETY: Any bytes are one, zeros too.
unsafe impl ValidAsZeroBits for Aligned {}

// SAFETY: It consists of bytes.
unsafe impl DeviceRepr for Wide {}

// SAFETY: Any bytes are one, zeros too.
unsafe impl ValidAsZeroBits for Wide {}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn elements_that_a_block_cannot_align_are_refused() {
    let setup = Setup::new();
    setup.pooled.alloc_zeros::<Aligned>(1).unwrap();
    let refused = setup.pooled.alloc_zeros::<Wide>(1).map(drop);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("aligned to 512 bytes")
    );
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn a_slice_may_be_dropped_right_after_a_launch_on_another_stream() {
    let setup = Setup::new();
    setup.drop_after_a_launch(Arc::clone(&setup.other), || {});
    assert!(setup.pool.statistics().hits > 0);
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn uses_on_a_stream_that_is_gone_count() {
    let mut setup = Setup::on(CudaContext::default_stream);
    let other = std::mem::replace(&mut setup.other, Arc::clone(&setup.home));
    setup.drop_after_a_launch(other, || {});
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn where_cudarc_has_kept_an_error_the_host_waits_and_the_error_stays() {
    let setup = Setup::new();
    let error = DriverError(CUresult::CUDA_ERROR_ASSERT);
    let context = &setup.context;
    let before = || context.record_err(Err::<(), _>(error));
    let (mut sum, operand) = (setup.slice(1.0), setup.slice(2.0));
    setup.busy(&setup.other);
    setup.add(&setup.other, &mut sum, &operand);
    before();
    drop(operand);
    assert_eq!(context.check_err(), Err(error));
    let _next = setup.slice(5.0);
    context.synchronize().unwrap();
    setup.check(&sum, 3.0);
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn where_the_stream_cannot_wait_the_host_does() {
    let setup = Setup::new();
    let fail = || setup.device.fail("cuStreamWaitEvent", 0, 1, 1);
    setup.drop_after_a_launch(Arc::clone(&setup.other), fail);
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn a_first_use_on_another_stream_comes_after_the_former_users() {
    let setup = Setup::new();
    let mut former = setup.slice(1.0);
    setup.busy(&setup.home);
    setup.home.memset_zeros(&mut former).unwrap();
    drop(former);
    // SAFETY: It is written first.
    let mut slice = unsafe { setup.pooled.alloc(LENGTH) }.unwrap();
    setup.other.memcpy_htod(&[7.0; LENGTH], &mut slice).unwrap();
    setup.check(&slice, 7.0);
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn uses_on_two_streams_are_in_order() {
    let setup = Setup::new();
    let Setup { home, other, .. } = &setup;
    let (mut sum, mut operand) = (setup.slice(1.0), setup.slice(2.0));
    setup.busy(other);
    setup.add(other, &mut sum, &operand);
    setup.check(&sum, 3.0); // After the launch has written it.
    setup.busy(other);
    setup.add(other, &mut sum, &operand);
    home.memset_zeros(&mut operand).unwrap(); // After the launch has read it.
    setup.check(&sum, 5.0);
    setup.busy(home);
    home.memcpy_htod(&[4.0; LENGTH], &mut operand).unwrap();
    setup.add(other, &mut sum, &operand); // After the copy.
    setup.check(&sum, 9.0);
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn copies_on_two_streams_both_count_as_reads() {
    let setup = Setup::new();
    let Setup { home, other, .. } = &setup;
    for is_dropped in [false, true] {
        let [mut first, mut second] = [0, 1].map(|_| setup.slice(0.0));
        let mut operand = setup.slice(2.0);
        setup.context.synchronize().unwrap();
        setup.busy(other);
        other.memcpy_dtod(&operand, &mut first).unwrap();
        home.memcpy_dtod(&operand, &mut second).unwrap();
        if is_dropped {
            drop(operand);
            operand = setup.slice(5.0);
        } else {
            home.memcpy_htod(&[5.0; LENGTH], &mut operand).unwrap();
        }
        for (slice, value) in [(&first, 2.0), (&second, 2.0), (&operand, 5.0)] {
            setup.check(slice, value);
        }
    }
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn the_host_waits_where_another_error_comes_meanwhile() {
    let setup = Setup::new();
    let error = DriverError(CUresult::CUDA_ERROR_ASSERT);
    let (mut sum, operand) = (setup.slice(1.0), setup.slice(2.0));
    setup.busy(&setup.other);
    setup.add(&setup.other, &mut sum, &operand);
    setup.context.record_err(Err::<(), _>(error));
    // As another thread does between the calls of the drop: it logs before it waits.
    let context = Arc::clone(&setup.context);
    let another = move || context.record_err(Err::<(), _>(error));
    logged(another, || drop(operand));
    assert_eq!(setup.context.check_err(), Err(error));
    let _next = setup.slice(5.0);
    setup.context.synchronize().unwrap();
    setup.check(&sum, 3.0);
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn streams_of_other_contexts_are_refused() {
    let (setup, foreign) = (Setup::new(), Setup::new());
    let kind = ObjectKind::Queue;
    let refused = setup.backend.wrap_cudarc_stream(&foreign.home);
    assert!(matches!(
        refused,
        Err(Error::InvalidRequest(InvalidRequest::ForeignObject { kind: k })) if k == kind
    ));
    assert!(PooledStream::new(&setup.pool, &foreign.home).is_err());
    let mut slice = setup.slice(3.0);
    assert!(foreign.home.memset_zeros(&mut slice).is_err());
    let error = DriverError(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(foreign.context.check_err(), Err(error));
    assert!(foreign.home.clone_dtoh(&slice).is_err());
    setup.check(&slice, 3.0);
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn a_per_thread_default_stream_is_refused() {
    let setup = Setup::new();
    let refused = PooledStream::new(&setup.pool, &setup.context.per_thread_stream());
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn events_that_cannot_be_made_are_an_error_and_the_block_goes_back() {
    let setup = Setup::new();
    for before in [0, 1] {
        setup.device.fail("cuEventCreate", before, 1, 2);
        assert!(setup.pooled.alloc_zeros::<f32>(LENGTH).is_err());
    }
    setup.device.fail("cuEventRecord", 0, 1, 1);
    assert!(setup.pooled.alloc_zeros::<f32>(LENGTH).is_err());
    assert_eq!(setup.pool.statistics().active_blocks, 0);
    setup.check(&setup.slice(1.0), 1.0);
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn a_graph_of_pooled_slices_is_launched_with_other_input() {
    let setup = Setup::new();
    let Setup { pooled, home, .. } = &setup;
    // SAFETY: All commands are of one stream.
    unsafe { setup.context.disable_event_tracking() };
    let mut input = home.alloc_zeros(LENGTH).unwrap();
    let mut output = home.alloc_zeros(LENGTH).unwrap();
    let mut step = || {
        let copy = |source: &Slice| {
            let mut copy = pooled.alloc_zeros(LENGTH).unwrap();
            home.memcpy_dtod(source, &mut copy).unwrap();
            copy
        };
        let mut first = pooled.alloc_zeros(LENGTH).unwrap();
        home.memcpy_dtod(&input, &mut first).unwrap();
        let mut second = copy(&first);
        setup.add(home, &mut second, &first);
        drop(first);
        let mut third = copy(&second);
        setup.add(home, &mut third, &second);
        home.memcpy_dtod(&third, &mut output).unwrap();
    };
    step(); // The pool has the memory afterwards.
    home.synchronize().unwrap();
    let kept = setup.pool.keep_addresses();
    let allocations = setup.device.calls("cuMemAlloc");
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    home.begin_capture(mode).unwrap();
    step();
    let graph = home.end_capture(CUgraphInstantiate_flags(0));
    let graph = graph.unwrap().unwrap();
    assert_eq!(setup.device.calls("cuMemAlloc"), allocations);
    for value in [1.0, 2.0, 5.0] {
        home.memcpy_htod(&[value; LENGTH], &mut input).unwrap();
        assert_eq!(setup.pool.free_held(), 0);
        graph.launch().unwrap();
        assert_eq!(home.clone_dtoh(&output).unwrap(), [4.0 * value; LENGTH]);
    }
    drop(graph);
    drop(kept);
}

#[test]
#[ignore = "run by `over_the_stand_in`"]
fn the_queue_keeps_the_stream_and_all_is_destroyed_in_the_end() {
    let device = Device::new(1 << 24);
    let backend = device.backend();
    let context = CudaContext::new(device.ordinal().try_into().unwrap()).unwrap();
    let stream = context.new_stream().unwrap();
    let queue = backend.wrap_cudarc_stream(&stream).unwrap();
    assert_eq!(backend.wrap_cudarc_stream(&stream).unwrap(), queue);
    drop((stream, context));
    let block = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    let fill = backend.enqueue_fill(&queue, &block, Region::first(64), &[7_u8]);
    fill.unwrap();
    queue.finish().unwrap();
    assert_eq!(bytes(&backend, &queue, &block), [7; 64]);
    drop((queue, block, backend));
    assert_eq!((device.objects(), device.used()), (0, 0));

    let setup = Setup::new();
    let slice = setup.slice(1.0);
    drop(slice);
    let Setup {
        device,
        backend,
        context,
        pool,
        pooled,
        home,
        other,
        add_to,
    } = setup;
    drop((backend, context, pool, pooled, home, other, add_to));
    assert_eq!((device.objects(), device.used()), (0, 0));
}
