//! What the driver refuses for lack of memory is tried again without what the pools keep.

use opencl_sys::{CL_MEM_COPY_HOST_PTR, CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES};

use crate::{
    child::pooled,
    queue_driver::{load, log, set_most_buffers},
};

#[test]
fn a_command_is_tried_again_once_if_there_was_something_to_release() {
    pooled(|| {
        let device = load();
        let queue = device.create_queue(0);
        let block = device.create(100);
        device.release(device.create(50));
        set_most_buffers(1);
        device.fill_on(queue, block);
        let refusal = "no memory for a command".to_owned();
        assert_eq!(log(), [refusal.clone(), format!("fill q{queue} b{block}")]);
        set_most_buffers(0);
        assert_eq!(device.try_fill_on(queue, block), CL_OUT_OF_RESOURCES);
        assert_eq!(log(), [refusal]);
    });
}

#[test]
fn a_buffer_of_the_driver_is_tried_again_once_if_there_was_something_to_release() {
    pooled(|| {
        let device = load();
        device.release(device.create(50));
        set_most_buffers(1);
        let begins_with_bytes = CL_MEM_COPY_HOST_PTR;
        device.try_create(begins_with_bytes, 100).unwrap();
        let refusal = ["no memory for a buffer".to_owned()];
        assert_eq!(log(), refusal);
        let refused = device.try_create(begins_with_bytes, 100);
        assert_eq!(refused, Err(CL_MEM_OBJECT_ALLOCATION_FAILURE));
        assert_eq!(log(), refusal);
    });
}
