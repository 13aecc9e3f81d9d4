//! Measuring what a device costs, on devices whose costs are known.

use std::{cell::Cell, time::Duration};

use binpool_allocators::{Align, DeviceLimits, SvmSupport};
use binpool_mock::{CostModel, CostTable, DeviceProfile, MockDevice};
use binpool_replay::devices::{COST_STEPS, CostEffort, device_costs, device_costs_with_pages};

const EFFORT: CostEffort = CostEffort {
    samples: 3,
    most: Duration::from_secs(60),
};

/// What is measured on a mock device with this profile, on its own clock, and in how many steps.
fn measured(profile: DeviceProfile) -> (DeviceProfile, usize) {
    let device = MockDevice::builder().profile(profile).build();
    let steps = Cell::new(0);
    let clock = || device.device_time();
    let progress = || steps.set(steps.get() + 1);
    let measured = device_costs(&device.backend(), EFFORT, &clock, &progress).unwrap();
    assert_eq!(device.violations(), []);
    assert!(device.leaks().is_empty());
    (measured, steps.get())
}

fn assert_about(measured: f64, real: f64, what: &str) {
    // The mock's clock counts whole nanoseconds.
    assert!((measured - real).abs() < 0.01, "{what}: {measured}, {real}");
}

/// Every cost is another, so that none is taken for another.
fn costs() -> CostModel {
    let mut costs = CostModel::default();
    let by_size = |factor: f64| {
        let points = [(4 << 10, 2.0 * factor), (64 << 20, 50.0 * factor)];
        CostTable::new(&points)
    };
    costs.create_buffer = by_size(1.0);
    costs.commit = by_size(3.0);
    costs.release_deferred = by_size(5.0);
    costs.release_committed = by_size(7.0);
    costs.allocate_svm = by_size(11.0);
    costs.free_svm = by_size(13.0);
    costs.create_sub_region = CostTable::new(&[(1, 0.5), (300, 8.0), (1000, 20.0)]);
    costs.release_sub_region = CostTable::new(&[(1, 0.25), (300, 4.0), (1000, 10.0)]);
    costs.enqueue = 5.0;
    costs.marker = 1.9;
    costs.barrier = 0.7;
    costs.status = 0.3;
    costs.wait = 2.3;
    costs.flush = 0.4;
    costs.finish = 2.9;
    costs.create_queue = 17.0;
    costs.user_event = 0.6;
    costs
}

fn limits() -> DeviceLimits {
    let align = Align::new(512).unwrap();
    let mut limits = DeviceLimits::new("an abacus", 1 << 30, 64 << 20, align);
    limits.svm = SvmSupport {
        coarse: true,
        ..SvmSupport::default()
    };
    limits
}

#[test]
fn what_is_measured_is_what_it_costs() {
    let real = costs();
    let (profile, steps) = measured(DeviceProfile::new(limits(), real.clone()));
    assert_eq!(profile.limits, limits());
    let found = profile.costs;
    for (found, real, what) in [
        (found.enqueue, real.enqueue, "enqueue"),
        (found.marker, real.marker, "marker"),
        (found.barrier, real.barrier, "barrier"),
        (found.status, real.status, "status"),
        (found.wait, real.wait, "wait"),
        (found.flush, real.flush, "flush"),
        (found.finish, real.finish, "finish"),
        (found.create_queue, real.create_queue, "create_queue"),
        (found.user_event, real.user_event, "user_event"),
    ] {
        assert_about(found, real, what);
    }
    for (found, real, what) in [
        (&found.create_buffer, &real.create_buffer, "create_buffer"),
        (&found.commit, &real.commit, "commit"),
        (
            &found.release_deferred,
            &real.release_deferred,
            "release_deferred",
        ),
        (
            &found.release_committed,
            &real.release_committed,
            "release_committed",
        ),
        (&found.allocate_svm, &real.allocate_svm, "allocate_svm"),
        (&found.free_svm, &real.free_svm, "free_svm"),
    ] {
        for size in [4 << 10, 1 << 20, 64 << 20] {
            let what = format!("{what} {size}");
            assert_about(found.micros_at(size), real.micros_at(size), &what);
        }
    }
    for views in [1, 30, 300, 1000] {
        let (found, real) = (&found.create_sub_region, &real.create_sub_region);
        assert_about(found.micros_at(views), real.micros_at(views), "create view");
    }
    for views in [1, 30, 300, 1000] {
        let (found, real) = (&found.release_sub_region, &real.release_sub_region);
        assert_about(found.micros_at(views), real.micros_at(views), "free view");
    }
    // The device has no block of 512 MiB or 4 GiB.
    assert_eq!(steps, COST_STEPS - 3);
}

#[test]
fn what_a_device_does_not_have_costs_nothing() {
    let mut limits = limits();
    limits.svm = SvmSupport::default();
    limits.largest_block_bytes = 1 << 20;
    let (profile, _) = measured(DeviceProfile::new(limits, costs()));
    assert_eq!(profile.costs.allocate_svm, CostTable::default());
    // As much as a block of 1 MiB, since that is the largest.
    let create = &profile.costs.create_buffer;
    assert!(create.micros_at(1 << 20) < costs().create_buffer.micros_at(2 << 20));
}

#[test]
fn sizes_that_there_is_no_memory_for_are_left_out() {
    let device = MockDevice::builder()
        .profile(DeviceProfile::new(limits(), costs()))
        .capacity_bytes(1 << 30)
        .build();
    let backend = device.backend();
    // Other programs have all but 2 MiB.
    let queue = binpool::Backend::create_queue(&backend, binpool::QueueOrder::InOrder).unwrap();
    let mut taken = Vec::new();
    for bytes in [vec![64 << 20; 15], vec![62 << 20]].concat() {
        let flags = binpool::MemoryFlags::empty();
        let memory = binpool::Backend::create_buffer(&backend, bytes, flags).unwrap();
        binpool::Backend::commit(&backend, &queue, &memory).unwrap();
        taken.push(memory);
    }
    let clock = || device.device_time();
    let profile = device_costs(&backend, EFFORT, &clock, &|| {}).unwrap();
    let sizes: Vec<u64> = profile
        .costs
        .commit
        .points()
        .iter()
        .map(|point| point.0)
        .collect();
    assert_eq!(sizes, [4 << 10, 64 << 10, 1 << 20]);
    assert_eq!(taken.len(), 16);
    assert_eq!(device.live_events(), 0);
}

#[test]
fn what_is_measured_of_pages_is_what_they_cost() {
    let mut real = costs();
    let by_size = |factor: f64| CostTable::new(&[(2 << 20, factor), (64 << 20, 3.0 * factor)]);
    real.create_pages = by_size(2.0);
    real.map = by_size(5.0);
    real.unmap = by_size(7.0);
    real.release_pages = by_size(11.0);
    let builder = MockDevice::builder().profile(DeviceProfile::new(limits(), real.clone()));
    let device = builder.virtual_memory(true).build();
    let clock = || device.device_time();
    let profile = device_costs_with_pages(&device.backend(), EFFORT, &clock, &|| {}).unwrap();
    assert_eq!(device.violations(), []);
    assert!(device.leaks().is_empty());
    let found = profile.costs;
    assert_eq!(found.allocate_svm, CostTable::default());
    for (found, real, what) in [
        (&found.create_pages, &real.create_pages, "create_pages"),
        (&found.map, &real.map, "map"),
        (&found.unmap, &real.unmap, "unmap"),
        (&found.release_pages, &real.release_pages, "release_pages"),
        (&found.commit, &real.commit, "commit"),
    ] {
        for size in [2 << 20, 16 << 20, 64 << 20] {
            let what = format!("{what} {size}");
            assert_about(found.micros_at(size), real.micros_at(size), &what);
        }
    }
}
