//! What is found, and what the errors say where it is not.

use ash::vk;
use binpool_allocators::{Backend, MemoryFlags};
use binpool_vulkan::{VulkanBackend, VulkanDevice};

use crate::common;

#[test]
fn the_validation_layer_sees_what_is_wrong() {
    if !common::is_validated() {
        return;
    }
    let backend = common::backend();
    let messages = common::messages(|| {
        let info = vk::BufferCreateInfo::default().usage(vk::BufferUsageFlags::TRANSFER_SRC);
        // SAFETY: It is wrong, since it has no bytes; the layer says so, and the driver makes a buffer or an error of it.
        if let Ok(buffer) = unsafe { backend.raw().create_buffer(&info, None) } {
            // SAFETY: It is new.
            unsafe { backend.raw().destroy_buffer(buffer, None) };
        }
    });
    assert!(messages > 0);
}

#[test]
fn a_device_is_opened_by_its_number() {
    let all = VulkanDevice::all().unwrap();
    let backend = VulkanBackend::open(0).unwrap();
    assert_eq!(backend.limits().device_name, all[0].name());
    assert_eq!(backend.limits().capacity_bytes, all[0].total_bytes());
    assert!(!backend.is_lost());
    let text = VulkanBackend::open(all.len()).unwrap_err().to_string();
    assert!(
        text.contains(&format!("there are {}, counted from 0", all.len())),
        "{text}"
    );
}

#[test]
fn memory_of_the_host_is_mapped_and_that_of_the_device_has_an_address() {
    let backend = common::backend();
    let host = backend
        .create_buffer(64, MemoryFlags::HOST_RESIDENT)
        .unwrap();
    let start = host.block().unwrap().mapped().unwrap();
    let queue = backend
        .create_queue(binpool_allocators::QueueOrder::InOrder)
        .unwrap();
    backend.write(&queue, &host, 0, &[7_u8; 64]).unwrap();
    // SAFETY: The block has the bytes, and no command uses it.
    let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), 64) };
    assert_eq!(bytes, [7; 64]);
    let device = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
    let block = device.block().unwrap();
    assert!(block.mapped().is_none() && block.buffer() != vk::Buffer::null());
}
