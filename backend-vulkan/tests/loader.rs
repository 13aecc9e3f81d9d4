//! What stays of Vulkan in a process that is done with it. A process of its own, since the other tests have an instance that is never destroyed.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, thread};

use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
use binpool_vulkan::VulkanBackend;

fn is_loaded() -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains("libvulkan.so")
}

/// Threads of a driver would run on in code that is gone.
#[test]
fn the_loader_stays_loaded_once_it_is() {
    assert!(!is_loaded(), "it is linked");
    for _ in 0..3 {
        let used = || {
            let backend = VulkanBackend::open(0).unwrap();
            let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
            let memory = backend.create_buffer(64, MemoryFlags::empty()).unwrap();
            backend.write(&queue, &memory, 0, &[1_u8; 64]).unwrap();
        };
        thread::spawn(used).join().unwrap();
        assert!(is_loaded());
    }
}
