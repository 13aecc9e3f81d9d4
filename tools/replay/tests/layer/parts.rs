//! Sub-buffers, and images of buffers.

use std::ptr;

use opencl_sys::*;

use crate::{
    cl::cl,
    rig::{Rig, say},
    runs::rule,
};

#[test]
fn a_part_keeps_the_contents_of_a_buffer_that_is_released_before_it() {
    rule(|rig| {
        let whole = rig.used_buffer(4096);
        rig.fill(rig.queue, whole, 3, 4096);
        let (part, status) = rig.sub_buffer(whole, 1024, 1024);
        rig.release(whole);
        let other = rig.buffer(4096);
        say!(rig, "{status} {}", other != whole);
        rig.fill(rig.queue, other, 4, 4096);
        say!(
            rig,
            "{:?}",
            rig.read(rig.queue, part, 1024)
                .iter()
                .all(|byte| *byte == 3)
        );
        rig.release(part);
        rig.release(other);
    });
}

#[test]
fn a_buffer_that_lives_by_its_parts_says_so_by_its_references() {
    rule(|rig| {
        let whole = rig.used_buffer(4096);
        let before = rig.references(whole);
        let (first, _) = rig.sub_buffer(whole, 0, 1024);
        let (second, _) = rig.sub_buffer(whole, 1024, 1024);
        say!(rig, "{before} {}", rig.references(whole));
        rig.release(whole);
        let of_first: usize = rig.about(first, CL_MEM_ASSOCIATED_MEMOBJECT, 0).unwrap();
        say!(
            rig,
            "{} {}",
            of_first == whole as usize,
            rig.references(whole)
        );
        rig.release(first);
        say!(rig, "{}", rig.references(whole));
        rig.release(second);
    });
}

#[test]
fn a_buffer_that_lives_by_its_parts_may_be_retained_again() {
    rule(|rig| {
        let whole = rig.used_buffer(4096);
        let (part, _) = rig.sub_buffer(whole, 0, 1024);
        rig.release(whole);
        rig.retain(whole);
        rig.release(part);
        rig.fill(rig.queue, whole, 9, 4096);
        let other = rig.buffer(4096);
        rig.fill(rig.queue, other, 1, 4096);
        say!(
            rig,
            "{:?} {}",
            rig.read(rig.queue, whole, 2),
            rig.references(whole)
        );
        rig.release(whole);
        rig.release(other);
    });
}

/// An image of two rows over a buffer.
fn image_of(rig: &Rig, buffer: cl_mem) -> (cl_mem, cl_int) {
    let format = cl_image_format {
        image_channel_order: CL_RGBA,
        image_channel_data_type: CL_UNSIGNED_INT8,
    };
    // SAFETY: numbers and pointers.
    let mut description: cl_image_desc = unsafe { std::mem::zeroed() };
    description.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER;
    description.image_width = 64;
    description.buffer = buffer;
    let mut status = 0;
    let image = cl!(clCreateImage(
        rig.context,
        CL_MEM_READ_WRITE,
        &raw const format,
        &raw const description,
        ptr::null_mut(),
        &raw mut status
    ));
    (image, status)
}

#[test]
fn an_image_keeps_the_contents_of_the_buffer_that_it_was_made_of() {
    rule(|rig| {
        let buffer = rig.used_buffer(256);
        rig.fill(rig.queue, buffer, 6, 256);
        rig.finish(rig.queue);
        let (image, status) = image_of(rig, buffer);
        say!(rig, "{status}");
        if status != CL_SUCCESS {
            return;
        }
        rig.release(buffer);
        let other = rig.buffer(256);
        rig.fill(rig.queue, other, 7, 256);
        let mut bytes = [0_u8; 256];
        let (origin, region) = ([0_usize; 3], [64_usize, 1, 1]);
        let status = cl!(clEnqueueReadImage(
            rig.queue,
            image,
            CL_BLOCKING,
            origin.as_ptr(),
            region.as_ptr(),
            0,
            0,
            bytes.as_mut_ptr().cast(),
            0,
            ptr::null(),
            ptr::null_mut()
        ));
        say!(rig, "{status} {}", bytes.iter().all(|byte| *byte == 6));
        rig.release(image);
        rig.release(other);
    });
}

#[test]
fn a_buffer_whose_part_was_released_while_mapped_is_unmapped_when_it_is_reused() {
    rule(|rig| {
        for _ in 0..2 {
            let whole = rig.buffer(4096);
            say!(rig, "{}", rig.all_about(whole));
            let (part, _) = rig.sub_buffer(whole, 1024, 1024);
            let mut status = 0;
            let mapped = cl!(clEnqueueMapBuffer(
                rig.queue,
                part,
                CL_BLOCKING,
                CL_MAP_WRITE,
                0,
                1024,
                0,
                ptr::null(),
                ptr::null_mut(),
                &raw mut status
            ));
            say!(rig, "{status} {}", mapped.is_null());
            rig.release(part);
            rig.release(whole);
        }
    });
}

#[test]
fn a_part_of_a_part_and_parts_that_do_not_fit_are_refused() {
    rule(|rig| {
        let whole = rig.used_buffer(4096);
        for (origin, size) in [
            (0, 0),
            (0, 4096),
            (0, 4097),
            (4096, 1),
            (1, 64),
            (1024, usize::MAX),
            (1024, 3072),
        ] {
            let (part, status) = rig.sub_buffer(whole, origin, size);
            say!(rig, "{origin} {size}: {} {status}", part.is_null());
            if !part.is_null() {
                let (nested, status) = rig.sub_buffer(part, 0, size / 2);
                say!(rig, "{} {status} {}", nested.is_null(), rig.all_about(part));
                rig.release(part);
            }
        }
        let mut status = 1234;
        let part = cl!(clCreateSubBuffer(
            whole,
            0,
            CL_BUFFER_CREATE_TYPE_REGION,
            ptr::null(),
            &raw mut status
        ));
        say!(rig, "{} {status}", part.is_null());
        rig.release(whole);
        let next = rig.buffer(4096);
        say!(rig, "{}", rig.all_about(next));
    });
}

#[test]
fn parts_that_overlap_have_the_same_bytes() {
    rule(|rig| {
        let whole = rig.used_buffer(4096);
        let [first, second] =
            [(0, 2048), (1024, 2048)].map(|(origin, size)| rig.sub_buffer(whole, origin, size).0);
        rig.fill(rig.queue, whole, 1, 4096);
        rig.fill(rig.queue, first, 2, 2048);
        rig.fill(rig.queue, second, 3, 1024);
        let bytes = rig.read(rig.queue, whole, 4096);
        say!(
            rig,
            "{:?}",
            [0, 1023, 1024, 2047, 2048, 4095].map(|at| bytes[at])
        );
        say!(rig, "{} {}", rig.all_about(first), rig.all_about(second));
        for memory in [whole, second, first] {
            rig.release(memory);
        }
    });
}

#[test]
fn memory_is_reused_once_it_and_its_parts_are_released_in_whatever_order() {
    let runs = rule(|rig| {
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let whole = rig.buffer(4096);
            let [first, second] = [0, 2048].map(|origin| rig.sub_buffer(whole, origin, 2048).0);
            rig.fill(rig.queue, first, 1, 2048);
            rig.fill(rig.queue, second, 2, 2048);
            let all = [whole, first, second];
            for (at, index) in order.into_iter().enumerate() {
                let left = order[at];
                say!(rig, "{:?}", rig.read(rig.queue, all[left], 1));
                rig.release(all[index]);
                let other = rig.buffer(4096);
                rig.fill(rig.queue, other, 0xEE, 4096);
                rig.release(other);
            }
        }
    });
    if let Some(runs) = runs {
        assert_eq!(runs.pooled.calls("clCreateBuffer"), 2);
        let [recorded, pooled] =
            [&runs.recorded, &runs.pooled].map(|run| run.calls("clCreateSubBuffer"));
        assert_eq!((recorded, pooled), (12, 12));
    }
}

#[test]
fn a_part_is_used_where_its_buffer_is() {
    let runs = rule(|rig| {
        let other_queue = rig.new_queue(0);
        let whole = rig.buffer(4096);
        let (part, _) = rig.sub_buffer(whole, 1024, 1024);
        rig.set_slowly(other_queue, part, 1024);
        rig.release(part);
        rig.release(whole);
        let next = rig.buffer(4096);
        rig.fill(rig.queue, next, 5, 4096);
        rig.finish(rig.queue);
        rig.finish(other_queue);
        say!(
            rig,
            "{}",
            rig.read(rig.queue, next, 4096)
                .iter()
                .all(|byte| *byte == 5)
        );
    });
    if let Some(runs) = runs {
        assert_eq!(
            runs.recorded.count("u 1 "),
            1,
            "the first block was used on one queue"
        );
    }
}

#[test]
fn a_part_on_a_buffer_that_the_host_may_not_read_has_its_flags() {
    rule(|rig| {
        for flags in [
            CL_MEM_HOST_WRITE_ONLY,
            CL_MEM_READ_ONLY,
            CL_MEM_ALLOC_HOST_PTR,
        ] {
            let warm = rig.buffer_with(flags, 2048);
            rig.release(warm);
            let whole = rig.buffer_with(flags, 2048);
            for part_flags in [
                0,
                CL_MEM_READ_WRITE,
                CL_MEM_WRITE_ONLY,
                CL_MEM_HOST_NO_ACCESS,
                CL_MEM_USE_HOST_PTR,
            ] {
                let region = cl_buffer_region {
                    origin: 1024,
                    size: 64,
                };
                let mut status = 1234;
                let part = cl!(clCreateSubBuffer(
                    whole,
                    part_flags,
                    CL_BUFFER_CREATE_TYPE_REGION,
                    (&raw const region).cast(),
                    &raw mut status
                ));
                if status == CL_SUCCESS {
                    say!(rig, "{}", rig.all_about(part));
                    rig.release(part);
                } else {
                    say!(rig, "{status} {}", part.is_null());
                }
            }
            rig.release(whole);
        }
    });
}

#[test]
fn an_image_has_memory_of_its_own_and_says_so() {
    let runs = rule(|rig| {
        let format = cl_image_format {
            image_channel_order: CL_RGBA,
            image_channel_data_type: CL_UNSIGNED_INT8,
        };
        // SAFETY: numbers and pointers.
        let mut description: cl_image_desc = unsafe { std::mem::zeroed() };
        description.image_type = CL_MEM_OBJECT_IMAGE2D;
        description.image_width = 64;
        description.image_height = 32;
        for _ in 0..3 {
            let mut status = 0;
            let image = cl!(clCreateImage(
                rig.context,
                CL_MEM_READ_WRITE,
                &raw const format,
                &raw const description,
                ptr::null_mut(),
                &raw mut status
            ));
            say!(rig, "{status} {}", rig.all_about(image));
            let (origin, region) = ([0_usize; 3], [64_usize, 32, 1]);
            let (mut row, mut slice) = (0, 0);
            let mapped = cl!(clEnqueueMapImage(
                rig.queue,
                image,
                CL_BLOCKING,
                CL_MAP_WRITE,
                origin.as_ptr(),
                region.as_ptr(),
                &raw mut row,
                &raw mut slice,
                0,
                ptr::null(),
                ptr::null_mut(),
                &raw mut status
            ));
            say!(rig, "{status} {row} {}", rig.unmap(image, mapped.cast()));
            rig.finish(rig.queue);
            rig.release(image);
        }
        description.image_width = 0;
        let mut status = 0;
        let image = cl!(clCreateImage(
            rig.context,
            CL_MEM_READ_WRITE,
            &raw const format,
            &raw const description,
            ptr::null_mut(),
            &raw mut status
        ));
        say!(rig, "{status} {}", image.is_null());
    });
    if let Some(runs) = runs {
        for run in [&runs.recorded, &runs.pooled] {
            assert_eq!((run.count("a "), run.count("f ")), (3, 3));
            assert!(run.lines().any(|line| line.contains("image, context 1")));
        }
    }
}
