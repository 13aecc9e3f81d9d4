//! What a device is opened with: its family, queues, features and extensions.

use ash::vk::{self, MemoryPropertyFlags as Flags, QueueFlags};
use binpool_allocators::{Backend as _, MemoryFlags, QueueOrder};

use super::{
    common::other::Other,
    driver::{self, Opened},
};

fn of_families(families: &[(QueueFlags, u32)]) -> Other {
    let mut other =
        Other::of_types(&[Flags::DEVICE_LOCAL | Flags::HOST_VISIBLE | Flags::HOST_COHERENT]);
    other.families = families.to_vec();
    other
}

fn computes() -> QueueFlags {
    QueueFlags::COMPUTE | QueueFlags::TRANSFER
}

fn opened(other: Other) -> Opened {
    driver::device(other).open().unwrap();
    driver::opened().unwrap()
}

#[test]
fn queues_are_those_of_the_first_family_that_computes() {
    let copies = QueueFlags::TRANSFER | QueueFlags::SPARSE_BINDING;
    for (families, family, queues) in [
        (&[(computes(), 1)][..], 0, 1),
        (
            &[(computes() | QueueFlags::GRAPHICS, 16), (computes(), 8)],
            0,
            4,
        ),
        (
            &[(copies, 2), (QueueFlags::GRAPHICS, 1), (computes(), 3)],
            2,
            3,
        ),
    ] {
        let opened = opened(of_families(families));
        assert_eq!((opened.family, opened.queues), (family, queues));
    }
    let none = driver::device(of_families(&[(copies, 2)])).open();
    let text = none.unwrap_err().to_string();
    assert!(text.contains("no queue for kernels"), "{text}");
    assert_eq!(driver::opened(), None);
}

#[test]
fn queues_of_the_backend_take_those_of_the_device_in_turn() {
    let backend = driver::device(of_families(&[(computes(), 3)]))
        .open()
        .unwrap();
    let queues = [(); 4].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    // The driver has one, which is locked for each.
    let first = queues[0].lock();
    let others = [queues[1].lock(), queues[2].lock()];
    assert!(others.iter().all(|other| **other == *first));
    drop((first, others));
    let shared = backend.shared.device.queues.len();
    assert_eq!(shared, 3);
    let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    for queue in &queues {
        backend.write(queue, &memory, 0, &[1_u8; 64]).unwrap();
    }
}

#[test]
fn a_device_that_lacks_what_is_needed_is_not_opened() {
    for features_12 in [
        (|told| told.timeline_semaphore = 0) as fn(&mut vk::PhysicalDeviceVulkan12Features<'_>),
        |told| told.buffer_device_address = 0,
    ] {
        let mut other = of_families(&[(computes(), 1)]);
        other.features_12 = features_12;
        let text = driver::device(other).open().unwrap_err().to_string();
        assert!(text.contains("update its driver"), "{text}");
    }
    let mut older = of_families(&[(computes(), 1)]);
    older.properties = |told| told.api_version = vk::API_VERSION_1_1;
    assert!(driver::device(older).open().is_err());
    assert_eq!(driver::opened(), None);
}

#[test]
fn a_device_has_the_numbers_and_the_extension_that_it_tells() {
    for (features, expected) in [
        (
            (|told| (told.shader_int64, told.shader_float64) = (1, 0))
                as fn(&mut vk::PhysicalDeviceFeatures),
            [true, false],
        ),
        (
            |told| (told.shader_int64, told.shader_float64) = (0, 1),
            [false, true],
        ),
    ] {
        let mut other = of_families(&[(computes(), 1)]);
        other.features = features;
        let told = opened(other.clone());
        assert_eq!((told.has_numbers, told.extensions), (expected, vec![]));
        other.budget = vec![[0, 1000]];
        let told = opened(other);
        assert_eq!(told.extensions, [ash::ext::memory_budget::NAME.to_owned()]);
    }
}

#[test]
fn pages_need_both_features_and_a_queue_that_binds_them() {
    let sparse = driver::sparse();
    let device = driver::device(sparse.clone());
    assert!(device.has_virtual_memory());
    let backend = device.open().unwrap();
    assert!(driver::opened().unwrap().is_sparse);
    assert_eq!(backend.shared.largest_reservation, 1 << 30);
    let (mut unbound, mut resident, mut unresident) = (sparse.clone(), sparse.clone(), sparse);
    unbound.families[0].0 = computes();
    resident.features = |told| (told.sparse_binding, told.sparse_residency_buffer) = (0, 1);
    unresident.features = |told| (told.sparse_binding, told.sparse_residency_buffer) = (1, 0);
    for (other, has_features) in [(unbound, true), (resident, false), (unresident, false)] {
        let device = driver::device(other);
        assert_eq!(device.has_virtual_memory(), has_features);
        let backend = device.open().unwrap();
        assert!(!driver::opened().unwrap().is_sparse);
        assert_eq!(
            (
                backend.shared.page_bytes,
                backend.shared.largest_reservation
            ),
            (0, 0)
        );
    }
}

#[test]
fn a_gpu_is_any_device_but_a_processor() {
    use vk::PhysicalDeviceType as Type;
    let is_gpu = |properties| {
        let mut other = of_families(&[(computes(), 1)]);
        other.properties = properties;
        driver::device(other).is_gpu()
    };
    assert!(is_gpu(|told| told.device_type = Type::DISCRETE_GPU));
    assert!(is_gpu(|told| told.device_type = Type::INTEGRATED_GPU));
    assert!(is_gpu(|told| told.device_type = Type::VIRTUAL_GPU));
    assert!(!is_gpu(|told| told.device_type = Type::CPU));
    assert!(!is_gpu(|told| told.device_type = Type::OTHER));
}
