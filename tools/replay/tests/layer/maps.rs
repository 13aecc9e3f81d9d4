//! Memory that is mapped.

use std::{ptr, thread, time::Duration};

use opencl_sys::*;

use crate::{cl::cl, rig::say, runs::rule};

#[test]
fn what_is_written_through_a_map_is_there() {
    let runs = rule(|rig| {
        for flags in [CL_MEM_READ_WRITE, CL_MEM_ALLOC_HOST_PTR] {
            for round in 0..4_u8 {
                let buffer = rig.buffer_with(flags, 512);
                let (mapped, status) = rig.map(buffer, CL_MAP_WRITE, 256, 256);
                // SAFETY: these bytes are mapped.
                unsafe { mapped.write_bytes(round, 256) };
                say!(rig, "{status} {}", rig.unmap(buffer, mapped));
                let bytes = rig.read(rig.queue, buffer, 512);
                say!(rig, "{} {}", bytes[256], bytes[511]);
                rig.release(buffer);
            }
        }
    });
    if let Some(runs) = runs {
        assert_eq!(runs.pooled.calls("clCreateBuffer"), 2);
    }
}

#[test]
fn memory_that_was_released_while_mapped_is_new_when_it_is_created_again() {
    rule(|rig| {
        for _ in 0..3 {
            let buffer = rig.buffer(512);
            say!(rig, "{}", rig.all_about(buffer));
            let (_, status) = rig.map(buffer, CL_MAP_READ, 0, 512);
            say!(rig, "{status}");
            rig.release(buffer);
        }
    });
}

#[test]
fn maps_are_counted_as_the_driver_does() {
    let runs = rule(|rig| {
        for _ in 0..2 {
            let buffer = rig.buffer(512);
            let maps: Vec<*mut u8> = (0..3)
                .map(|at| rig.map(buffer, CL_MAP_READ, at * 128, 128).0)
                .collect();
            say!(rig, "{}", rig.all_about(buffer));
            for (mapped, left) in maps.into_iter().zip([2, 1, 0]) {
                rig.unmap(buffer, mapped);
                rig.finish(rig.queue);
                let count = || rig.about(buffer, CL_MEM_MAP_COUNT, 0_u32).unwrap();
                // A thread of PoCL counts an unmap shortly after it has finished it.
                for _ in 0..1000 {
                    if count() == left {
                        break;
                    }
                    thread::sleep(Duration::from_millis(1));
                }
                say!(rig, "{}", count());
            }
            let wrong = 1_u8;
            say!(rig, "{}", rig.unmap(buffer, (&raw const wrong).cast_mut()));
            rig.release(buffer);
        }
    });
    if let Some(runs) = runs {
        runs.reuse();
    }
}

#[test]
fn a_map_that_is_not_waited_for_ends_with_its_event() {
    rule(|rig| {
        for round in 0..4_u8 {
            let buffer = rig.buffer(512);
            rig.fill(rig.queue, buffer, round, 512);
            let (mut status, mut event) = (0, ptr::null_mut());
            let mapped = cl!(clEnqueueMapBuffer(
                rig.queue,
                buffer,
                CL_NON_BLOCKING,
                CL_MAP_READ,
                0,
                512,
                0,
                ptr::null(),
                &raw mut event,
                &raw mut status
            ));
            cl!(clWaitForEvents(1, &raw const event));
            // SAFETY: it is mapped.
            let first = unsafe { mapped.cast::<u8>().read() };
            say!(rig, "{status} {first} {}", rig.event_status(event));
            cl!(clReleaseEvent(event));
            rig.unmap(buffer, mapped.cast());
            rig.release(buffer);
        }
        rig.finish(rig.queue);
    });
}

#[test]
fn memory_is_reused_after_an_unmap_that_is_still_pending() {
    rule(|rig| {
        let other_queue = rig.new_queue(0);
        let first = rig.buffer(512);
        let (mapped, _) = rig.map(first, CL_MAP_WRITE, 0, 512);
        let event = rig.user_event();
        // SAFETY: these bytes are mapped.
        unsafe { mapped.write_bytes(0xEE, 512) };
        let status = cl!(clEnqueueUnmapMemObject(
            rig.queue,
            first,
            mapped.cast(),
            1,
            &raw const event,
            ptr::null_mut()
        ));
        rig.release(first);
        let second = rig.buffer(512);
        rig.fill(other_queue, second, 4, 512);
        rig.finish(other_queue);
        rig.resolve(event, CL_COMPLETE);
        rig.finish(rig.queue);
        say!(
            rig,
            "{status} {:?} {}",
            rig.read(other_queue, second, 2),
            rig.all_about(second)
        );
    });
}
