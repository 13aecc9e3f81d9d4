//! Commands that are refused, on memory that was used before.

use std::ptr;

use opencl_sys::*;

use crate::{
    cl::cl,
    rig::{Rig, say},
    runs::rule,
};

const BYTES: usize = 100;

/// Ranges within a buffer of `BYTES` bytes, at its end, and beyond it.
const RANGES: [(usize, usize); 9] = [
    (0, 0),
    (0, BYTES),
    (99, 1),
    (100, 0),
    (100, 1),
    (0, 101),
    (50, 51),
    (usize::MAX, 1),
    (1, usize::MAX),
];

#[test]
fn transfers_beyond_the_end_of_a_reused_buffer_are_refused() {
    let runs = rule(|rig| {
        let buffer = rig.used_buffer(BYTES);
        let other = rig.used_buffer(BYTES);
        let from = [0_u8; 200];
        let value = 1_u8;
        for (offset, bytes) in RANGES {
            let read = if bytes > 200 {
                0
            } else {
                rig.try_read(buffer, offset, bytes)
            };
            let write = cl!(clEnqueueWriteBuffer(
                rig.queue,
                buffer,
                CL_BLOCKING,
                offset,
                bytes,
                from.as_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut()
            ));
            let fill = cl!(clEnqueueFillBuffer(
                rig.queue,
                buffer,
                (&raw const value).cast(),
                1,
                offset,
                bytes,
                0,
                ptr::null(),
                ptr::null_mut()
            ));
            let copies = [
                rig.copy(rig.queue, buffer, other, offset, 0, bytes),
                rig.copy(rig.queue, other, buffer, 0, offset, bytes),
            ];
            say!(rig, "{offset} {bytes}: {read} {write} {fill} {copies:?}");
        }
        rig.finish(rig.queue);
    });
    if let Some(runs) = runs {
        runs.reuse();
    }
}

#[test]
fn maps_beyond_the_end_of_a_reused_buffer_are_refused_and_it_is_reused_after_them() {
    let runs = rule(|rig| {
        let buffer = rig.used_buffer(BYTES);
        for (offset, bytes) in RANGES {
            for flags in [
                CL_MAP_READ,
                CL_MAP_WRITE_INVALIDATE_REGION,
                CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION,
                1 << 20,
            ] {
                let (mapped, status) = rig.map(buffer, flags, offset, bytes);
                let maps: u32 = rig.about(buffer, CL_MEM_MAP_COUNT, 0).unwrap();
                say!(
                    rig,
                    "{offset} {bytes} {flags}: {} {status} {maps}",
                    mapped.is_null()
                );
                if !mapped.is_null() {
                    say!(rig, "{}", rig.unmap(buffer, mapped));
                    rig.finish(rig.queue);
                }
            }
        }
        rig.finish(rig.queue);
        rig.release(buffer);
        let next = rig.buffer(BYTES);
        rig.release(next);
    });
    if let Some(runs) = runs {
        assert_eq!(runs.pooled.calls("clCreateBuffer"), 1);
    }
}

#[test]
fn a_rectangle_beyond_the_end_of_a_reused_buffer_is_refused() {
    rule(|rig| {
        let (buffer, other) = (rig.used_buffer(BYTES), rig.used_buffer(BYTES));
        let mut host = [0_u8; 400];
        let cases: [([usize; 3], [usize; 3], usize); 6] = [
            ([0, 0, 0], [10, 10, 1], 10),
            ([0, 0, 0], [10, 10, 1], 11),
            ([1, 0, 0], [10, 10, 1], 10),
            ([0, 9, 0], [10, 1, 1], 10),
            ([0, 10, 0], [10, 1, 1], 10),
            ([0, 0, 0], [10, 0, 1], 10),
        ];
        for (origin, region, pitch) in cases {
            let host_origin = [0_usize; 3];
            let read = cl!(clEnqueueReadBufferRect(
                rig.queue,
                buffer,
                CL_BLOCKING,
                origin.as_ptr(),
                host_origin.as_ptr(),
                region.as_ptr(),
                pitch,
                0,
                20,
                0,
                host.as_mut_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut()
            ));
            let write = cl!(clEnqueueWriteBufferRect(
                rig.queue,
                buffer,
                CL_BLOCKING,
                origin.as_ptr(),
                host_origin.as_ptr(),
                region.as_ptr(),
                pitch,
                0,
                20,
                0,
                host.as_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut()
            ));
            let copy = cl!(clEnqueueCopyBufferRect(
                rig.queue,
                buffer,
                other,
                origin.as_ptr(),
                host_origin.as_ptr(),
                region.as_ptr(),
                pitch,
                0,
                10,
                0,
                0,
                ptr::null(),
                ptr::null_mut()
            ));
            say!(rig, "{origin:?} {region:?} {pitch}: {read} {write} {copy}");
        }
        rig.finish(rig.queue);
    });
}

#[test]
fn a_copy_over_itself_is_refused() {
    rule(|rig| {
        let buffer = rig.used_buffer(BYTES);
        for (from, to, bytes) in [(0, 0, 10), (0, 5, 10), (0, 10, 10), (10, 0, 10), (5, 0, 10)] {
            say!(
                rig,
                "{from} {to}: {}",
                rig.copy(rig.queue, buffer, buffer, from, to, bytes)
            );
        }
        rig.finish(rig.queue);
    });
}

#[test]
fn a_pattern_that_is_no_power_of_two_or_does_not_fit_is_refused() {
    rule(|rig| {
        let buffer = rig.used_buffer(96);
        let pattern = [5_u8; 256];
        for size in [0, 1, 2, 3, 4, 8, 16, 64, 128, 129, 256] {
            for (offset, bytes) in [(0, 96), (2, 8), (0, 128)] {
                let status = cl!(clEnqueueFillBuffer(
                    rig.queue,
                    buffer,
                    pattern.as_ptr().cast(),
                    size,
                    offset,
                    bytes,
                    0,
                    ptr::null(),
                    ptr::null_mut()
                ));
                say!(rig, "{size} {offset} {bytes}: {status}");
            }
        }
        say!(rig, "{:?}", rig.read(rig.queue, buffer, 96));
    });
}

fn host_accesses(rig: &mut Rig, flags: cl_mem_flags) {
    for _ in 0..2 {
        let buffer = rig.buffer_with(flags, 64);
        let from = [1_u8; 64];
        let read = rig.try_read(buffer, 0, 64);
        let write = cl!(clEnqueueWriteBuffer(
            rig.queue,
            buffer,
            CL_BLOCKING,
            0,
            64,
            from.as_ptr().cast(),
            0,
            ptr::null(),
            ptr::null_mut()
        ));
        let maps = [CL_MAP_READ, CL_MAP_WRITE].map(|flags| rig.map(buffer, flags, 0, 64).1);
        say!(rig, "{flags:x}: {read} {write} {maps:?}");
        rig.release(buffer);
    }
}

#[test]
fn what_the_host_may_do_with_a_buffer_is_as_its_flags_say() {
    rule(|rig| {
        for flags in [
            0,
            CL_MEM_HOST_NO_ACCESS,
            CL_MEM_HOST_READ_ONLY,
            CL_MEM_HOST_WRITE_ONLY,
        ] {
            host_accesses(rig, flags);
        }
    });
}

#[test]
fn memory_of_another_context_is_refused() {
    rule(|rig| {
        let context = rig.new_context(&[rig.device]);
        let queue = rig.queue_in(context, rig.device, 0);
        let first = rig.buffer(64);
        rig.set_slowly(rig.queue, first, 64);
        rig.release(first);
        // Its former user is still running.
        let buffer = rig.buffer(64);
        let mut bytes = [0_u8; 64];
        let status = cl!(clEnqueueReadBuffer(
            queue,
            buffer,
            CL_BLOCKING,
            0,
            64,
            bytes.as_mut_ptr().cast(),
            0,
            ptr::null(),
            ptr::null_mut()
        ));
        say!(
            rig,
            "{status} {}",
            rig.fill_after(queue, buffer, 1, 64, &[])
        );
        // It is as usable as before, and as reusable.
        rig.fill(rig.queue, buffer, 2, 64);
        say!(rig, "{:?}", rig.read(rig.queue, buffer, 2));
        rig.release(buffer);
        let next = rig.buffer(64);
        rig.fill(rig.queue, next, 3, 64);
        say!(rig, "{:?}", rig.read(rig.queue, next, 2));
    });
}

#[test]
fn commands_without_a_queue_or_memory_are_refused() {
    rule(|rig| {
        let buffer = rig.used_buffer(64);
        let mut bytes = [0_u8; 64];
        for (queue, memory) in [(ptr::null_mut(), buffer), (rig.queue, ptr::null_mut())] {
            let status = cl!(clEnqueueReadBuffer(
                queue,
                memory,
                CL_BLOCKING,
                0,
                64,
                bytes.as_mut_ptr().cast(),
                0,
                ptr::null(),
                ptr::null_mut()
            ));
            say!(
                rig,
                "{status} {}",
                rig.fill_after(queue, memory, 1, 64, &[])
            );
            say!(
                rig,
                "{}",
                cl!(clEnqueueMigrateMemObjects(
                    queue,
                    1,
                    &raw const memory,
                    0,
                    0,
                    ptr::null(),
                    ptr::null_mut()
                ))
            );
        }
        say!(
            rig,
            "{}",
            cl!(clEnqueueMigrateMemObjects(
                rig.queue,
                0,
                ptr::null(),
                0,
                0,
                ptr::null(),
                ptr::null_mut()
            ))
        );
        let kernel = ptr::null_mut();
        let items = 1_usize;
        let status = cl!(clEnqueueNDRangeKernel(
            rig.queue,
            kernel,
            1,
            ptr::null(),
            &raw const items,
            ptr::null(),
            0,
            ptr::null(),
            ptr::null_mut()
        ));
        say!(rig, "{status}");
    });
}
