//! Several devices in one process.

use binpool_allocators::{Backend, MemoryFlags, Queue, Transfers};

use crate::common::{Device, another_library, queue};

#[test]
fn a_device_that_is_opened_twice_has_one_backend_while_it_lives() {
    let device = Device::new(1 << 24);
    let [one, two] = [(); 2].map(|()| device.backend());
    let queue = queue(&one);
    let block = two.create_buffer(4, MemoryFlags::empty()).unwrap();
    one.write(&queue, &block, 0, &[1; 4], &[]).unwrap();
    assert_eq!(one.legacy_default_queue(), two.legacy_default_queue());
    drop((one, two));
    // The block keeps the backend.
    let legacy = device.backend().legacy_default_queue();
    let three = device.backend();
    assert_eq!(three.legacy_default_queue(), legacy);
    three.write(&queue, &block, 0, &[1; 4], &[]).unwrap();
    drop((block, queue, legacy, three));
    assert_eq!(device.objects(), 0);
    device.backend().create_user_event().unwrap();
}

#[test]
fn objects_of_another_library_are_foreign() {
    let device = Device::new(1 << 24);
    let (one, two) = (device.backend(), device.backend_of(&another_library()));
    assert!(one.check_queue(&queue(&two)).is_err());
    assert!(two.check_queue(&queue(&one)).is_err());
    assert_ne!(
        one.legacy_default_queue().id(),
        two.legacy_default_queue().id()
    );
}
