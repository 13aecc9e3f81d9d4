//! The cost model predicts what the table of measurements says.

use std::time::Duration;

use binpool_allocators::{
    Allocator, Backend, Event, ImmediateAllocator, Memory, MemoryFlags, Queue, Region, SvmBackend,
    SvmGrain,
};
use binpool_mock::{CostModel, DeviceProfile, MockDevice};

use crate::common::{KIB, MIB, Rig};

fn rig(profile: DeviceProfile) -> Rig {
    Rig::on(MockDevice::builder().profile(profile))
}

/// Microseconds that `body` would take on the device.
fn micros<R>(rig: &Rig, body: impl FnOnce() -> R) -> f64 {
    let before = rig.device.device_time();
    let result = body();
    let after = rig.device.device_time();
    drop(result);
    (after.as_secs_f64() - before.as_secs_f64()) * 1e6
}

#[track_caller]
fn assert_close(predicted: f64, measured: f64) {
    assert!(
        (predicted - measured).abs() < 0.01,
        "{predicted} us predicted, {measured} us measured"
    );
}

#[test]
fn a_device_without_a_profile_costs_nothing() {
    let rig = Rig::on(MockDevice::builder());
    rig.fill(&rig.buffer(4), 1, &[]);
    assert_eq!(rig.device.device_time(), Duration::ZERO);
}

#[test]
fn h200_buffers() {
    let rig = rig(DeviceProfile::h200());
    let allocator = ImmediateAllocator::new(&rig.backend).unwrap();
    for (bytes, commit, release) in [
        (4 * KIB, 11.2, 5.0),
        (64 * KIB, 11.7, 5.5),
        (MIB, 28.9, 20.8),
        (16 * MIB, 53.5, 51.1),
        (64 * MIB, 65.1, 82.1),
        (512 * MIB, 106.0, 329.0),
        (4096 * MIB, 661.0, 2606.0),
    ] {
        let create = || {
            rig.backend
                .create_buffer(bytes, MemoryFlags::empty())
                .unwrap()
        };
        assert_close(micros(&rig, || drop(create())), 0.8 + 0.7);
        let mut block = None;
        let allocate = || block = Some(allocator.allocate(bytes).unwrap());
        assert_close(micros(&rig, allocate), 0.8 + commit);
        assert_close(micros(&rig, || block = None), release);
    }
}

#[test]
fn h200_svm() {
    let rig = rig(DeviceProfile::h200());
    for (bytes, pair) in [
        (4 * KIB, 561.0 + 322.0),
        (MIB, 568.0 + 327.0),
        (64 * MIB, 25_000.0 + 8230.0),
        (512 * MIB, 208_000.0 + 67_700.0),
    ] {
        let measured = micros(&rig, || {
            drop(
                rig.backend
                    .allocate_svm(bytes, None, SvmGrain::Coarse, None)
                    .unwrap(),
            );
        });
        assert_close(measured, pair);
    }
}

#[test]
fn h200_views_cost_the_same_however_many_there_are() {
    let rig = rig(DeviceProfile::h200());
    let root = rig.buffer(16 * MIB);
    let view = || {
        rig.backend
            .create_sub_region(&root, Region::first(512))
            .unwrap()
    };
    let mut siblings = Vec::new();
    for count in [1, 30, 1000, 10_000] {
        siblings.resize_with(count - 1, view);
        assert_close(micros(&rig, || drop(view())), 0.2 + 0.15);
    }
}

#[test]
fn h200_commands() {
    let rig = rig(DeviceProfile::h200());
    let buffer = rig.buffer(4);
    rig.backend.commit(&rig.queue, &buffer).unwrap();
    let kernel = || {
        rig.backend
            .launch(&rig.queue, "k", &[], &[&buffer], |_, _| {})
            .unwrap()
    };
    assert_close(micros(&rig, kernel), 10.5);
    let marker = || rig.backend.enqueue_marker(&rig.queue).unwrap();
    assert_close(micros(&rig, marker), 3.4);
    let event = marker();
    let barrier = || {
        rig.backend
            .enqueue_barrier(rig.queue.after(std::slice::from_ref(&event)))
            .unwrap()
    };
    assert_close(micros(&rig, || (marker(), barrier())), 3.4 + 2.0);
    assert_close(micros(&rig, || event.status().unwrap()), 0.01);
    assert_close(micros(&rig, || drop(buffer)), 5.0);
}

#[test]
fn pocl_pays_for_waits() {
    let rig = rig(DeviceProfile::pocl());
    let create = || drop(rig.buffer(MIB));
    assert_close(micros(&rig, create), 0.14);
    let root = rig.buffer(MIB);
    assert_close(micros(&rig, || rig.backend.commit(&rig.queue, &root)), 25.0);
    assert_close(
        micros(&rig, || {
            drop(rig.backend.create_sub_region(&root, Region::first(128)));
        }),
        0.14,
    );
    assert_close(
        micros(&rig, || {
            drop(
                rig.backend
                    .allocate_svm(64 * MIB, None, SvmGrain::Fine, None)
                    .unwrap(),
            );
        }),
        7.8,
    );
    assert_close(micros(&rig, || rig.queue.finish()), 22.0);
}

#[test]
fn bandwidth_is_charged_where_the_model_has_it() {
    let mut costs = CostModel::default();
    costs.bytes_per_second = Some(1e9);
    let limits = MockDevice::new().limits().clone();
    let rig = rig(DeviceProfile::new(limits, costs));
    let buffer = rig.buffer(MIB);
    assert_close(micros(&rig, || rig.fill(&buffer, 1, &[])), 1048.576);
}

#[test]
fn a_blocking_transfer_pays_for_its_wait_and_one_that_is_enqueued_for_none() {
    let mut costs = CostModel::default();
    (costs.enqueue, costs.wait, costs.status) = (1.0, 10.0, 100.0);
    costs.bytes_per_second = Some(1e9);
    let limits = MockDevice::new().limits().clone();
    let rig = rig(DeviceProfile::new(limits, costs));
    let (backend, queue, buffer) = (&rig.backend, &rig.queue, rig.buffer(4000));
    rig.fill(&buffer, 1, &[]);
    let write = || backend.write(queue, &buffer, 0, &[1_u8; 4000]).unwrap();
    let read = || {
        let mut bytes = [0_u8; 4000];
        backend.read(queue, &buffer, 0, &mut bytes).unwrap();
    };
    assert_close(micros(&rig, write), 15.0);
    assert_close(micros(&rig, read), 15.0);
    let enqueue_write = || backend.enqueue_write(queue, &buffer, 0, [1; 4000].into());
    let enqueue_read = || backend.enqueue_read(queue, &buffer, Region::first(4000));
    assert_close(micros(&rig, || enqueue_write().unwrap()), 5.0);
    assert_close(micros(&rig, || enqueue_read().unwrap()), 5.0);
    let event = enqueue_write().unwrap();
    assert_close(micros(&rig, || event.wait().unwrap()), 10.0);
}

#[test]
fn profiles_set_the_limits_and_later_calls_override_them() {
    let h200 = DeviceProfile::h200();
    let limits = MockDevice::builder()
        .profile(h200.clone())
        .build()
        .limits()
        .clone();
    assert_eq!(limits, h200.limits);
    assert_eq!(limits.alignment.bytes(), 512);
    assert_eq!(limits.largest_block_bytes, 35 << 30);
    assert_eq!(limits.capacity_bytes, 143_771 << 20);
    let small = |builder: binpool_mock::MockDeviceBuilder| builder.capacity_bytes(12 << 30).build();
    let device = small(MockDevice::builder().profile(h200.clone()));
    assert_eq!(device.limits().largest_block_bytes, 12 << 30);
    let device = small(MockDevice::builder().profile(DeviceProfile::pocl()));
    assert_eq!(device.limits().largest_block_bytes, 2006 << 20);
    let device = MockDevice::builder()
        .largest_block_bytes(1)
        .profile(h200)
        .build();
    assert_eq!(device.limits().largest_block_bytes, 35 << 30);
}

#[test]
fn an_immediate_block_on_the_h200_is_as_large_as_it_gets() {
    let rig = rig(DeviceProfile::h200());
    let allocator = ImmediateAllocator::new(&rig.backend).unwrap();
    let blocks: Vec<_> = (0..4)
        .map(|_| allocator.allocate(35 << 30).unwrap())
        .collect();
    assert_eq!(blocks[3].bytes(), 35 << 30);
    assert!(allocator.allocate(1 << 30).unwrap_err().is_out_of_memory());
}
