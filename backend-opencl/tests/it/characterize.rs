//! What a device says that it can do, and which memory suits it.

use binpool::MemoryPool;
use binpool_allocators::{Backend, MemoryKind, QueueOrder, SvmGrain};
use binpool_opencl::{list_devices, testing::on_every_device};

#[test]
fn a_device_says_the_same_from_the_list_and_when_it_is_open() {
    let backend = crate::common::open();
    let open = backend.characterize().unwrap();
    assert_eq!(&open.limits, backend.limits());
    assert_eq!(open.version, backend.version());
    let listed = list_devices().unwrap();
    let listed = listed
        .iter()
        .map(|device| device.characterize().unwrap())
        .filter(|device| *device == open);
    assert!(listed.count() >= 1, "{open:?}");
}

#[test]
fn what_a_device_says_is_sane() {
    on_every_device(|backend| {
        let device = backend.characterize().unwrap();
        let svm = device.limits.svm;
        assert!(svm.coarse || !svm.fine, "{svm:?}");
        assert_eq!(device.limits.svm, backend.limits().svm);
        assert!(device.compute_units > 0);
        assert!(device.work_item_sizes.len() >= 3, "{device:?}");
        assert!(device.work_item_sizes[0] >= device.work_group_size);
        assert!(device.local_memory_bytes >= 1 << 10);
        assert!(!device.platform.is_empty() && !device.driver.is_empty());
        assert!(device.c_version >= (1, 0) && device.c_version <= device.version);
        // Every device since OpenCL 1.1 has these.
        assert!(device.has_extension("cl_khr_byte_addressable_store"));
        assert!(!device.has_extension("cl_khr_byte"));
        assert_eq!(device.images.images, device.images.plane_width > 0);
        assert!(!device.p2p_copies || device.platform.contains("AMD"));
    });
}

#[test]
fn the_table_has_a_row_for_everything_that_is_asked_before_choosing_a_device() {
    let table = crate::common::open().characterize().unwrap().to_string();
    for row in [
        "OpenCL C",
        "coarse-grained SVM",
        "fine-grained SVM",
        "system SVM",
        "largest block",
        "alignment",
        "out-of-order queues",
        "work-group",
        "local memory",
        "images",
        "double",
        "half",
        "peer-to-peer copies",
        "extensions",
    ] {
        let said = table.lines().any(|line| line.starts_with(row));
        assert!(said, "no row {row:?} in\n{table}");
    }
}

#[test]
fn the_preferred_allocator_serves_a_pool_and_says_why() {
    on_every_device(|backend| {
        let device = backend.characterize().unwrap();
        let choice = backend.preferred_allocator().unwrap();
        assert!(choice.reason.contains(&device.limits.device_name));
        assert!(!choice.allocator.is_deferred());
        let shared = device.unified_memory && device.limits.svm.fine;
        let expected = if shared {
            MemoryKind::Svm(SvmGrain::Fine)
        } else {
            MemoryKind::Buffer
        };
        assert_eq!(choice.kind, expected, "{choice}");

        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        let pool = MemoryPool::new(choice.allocator, &queue);
        let block = pool.unwrap().allocate(1000).unwrap();
        block.write(&queue, 0, &[7_u8; 1000]).unwrap();
        assert_eq!(crate::common::contents(&block, &queue), [7; 1000]);
    });
}
