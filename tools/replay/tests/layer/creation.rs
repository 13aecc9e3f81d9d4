//! What is created, what is refused, and what the driver says of it.

use std::{ffi::c_void, ptr};

use opencl_sys::*;

use crate::{
    cl::cl,
    rig::{Rig, say},
    runs::rule,
};

const FLAGS: [cl_mem_flags; 11] = [
    CL_MEM_READ_WRITE,
    CL_MEM_WRITE_ONLY,
    CL_MEM_READ_ONLY,
    CL_MEM_USE_HOST_PTR,
    CL_MEM_ALLOC_HOST_PTR,
    CL_MEM_COPY_HOST_PTR,
    CL_MEM_HOST_WRITE_ONLY,
    CL_MEM_HOST_READ_ONLY,
    CL_MEM_HOST_NO_ACCESS,
    CL_MEM_KERNEL_READ_AND_WRITE,
    1 << 40,
];

#[test]
fn every_pair_of_flags_is_answered_as_the_driver_does_with_memory_of_the_host_and_without() {
    rule(|rig| {
        let mut host = vec![7_u128; 64];
        for first in FLAGS {
            for second in FLAGS {
                let flags = first | second;
                for host in [ptr::null_mut(), host.as_mut_ptr().cast()] {
                    for _ in 0..2 {
                        let (buffer, status) = rig.try_buffer(flags, 1024, host);
                        if status == CL_SUCCESS {
                            say!(rig, "{flags:x} {}", rig.all_about(buffer));
                            rig.release(buffer);
                        } else {
                            say!(
                                rig,
                                "{flags:x} {} {status} {}",
                                host.is_null(),
                                buffer.is_null()
                            );
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn a_buffer_of_no_bytes_or_of_too_many_is_refused() {
    rule(|rig| {
        let mut most = 0_u64;
        let status = cl!(clGetDeviceInfo(
            rig.device,
            CL_DEVICE_MAX_MEM_ALLOC_SIZE,
            size_of::<u64>(),
            (&raw mut most).cast(),
            ptr::null_mut()
        ));
        say!(rig, "{status}");
        let most = usize::try_from(most).unwrap();
        for bytes in [0, most + 1, usize::MAX / 2, usize::MAX] {
            let (buffer, status) = rig.try_buffer(0, bytes, ptr::null_mut());
            say!(rig, "{} {status}", buffer.is_null());
            // The status is not asked for.
            let buffer = cl!(clCreateBuffer(
                rig.context,
                0,
                bytes,
                ptr::null_mut(),
                ptr::null_mut()
            ));
            say!(rig, "{}", buffer.is_null());
        }
    });
}

#[test]
fn nothing_is_created_without_a_context() {
    rule(|rig| {
        let mut status = 1234;
        let buffer = cl!(clCreateBuffer(
            ptr::null_mut(),
            0,
            64,
            ptr::null_mut(),
            &raw mut status
        ));
        say!(rig, "{} {status}", buffer.is_null());
        let address = cl!(clSVMAlloc(ptr::null_mut(), CL_MEM_READ_WRITE, 64, 0));
        say!(rig, "{}", address.is_null());
        let queue = cl!(clCreateCommandQueue(
            ptr::null_mut(),
            rig.device,
            0,
            &raw mut status
        ));
        say!(rig, "{} {status}", queue.is_null());
        say!(
            rig,
            "{} {}",
            cl!(clReleaseMemObject(ptr::null_mut())),
            cl!(clRetainMemObject(ptr::null_mut()))
        );
        say!(
            rig,
            "{} {}",
            cl!(clReleaseContext(ptr::null_mut())),
            cl!(clReleaseCommandQueue(ptr::null_mut()))
        );
    });
}

#[test]
fn a_status_that_is_not_asked_for_is_not_written() {
    rule(|rig| {
        for _ in 0..3 {
            let buffer = cl!(clCreateBuffer(
                rig.context,
                0,
                64,
                ptr::null_mut(),
                ptr::null_mut()
            ));
            say!(rig, "{}", rig.all_about(buffer));
            rig.release(buffer);
        }
    });
}

fn with_properties(rig: &Rig, properties: *const cl_mem_properties) -> (cl_mem, cl_int) {
    let mut status = 1234;
    let buffer = cl!(clCreateBufferWithProperties(
        rig.context,
        properties,
        0,
        256,
        ptr::null_mut(),
        &raw mut status
    ));
    (buffer, status)
}

#[test]
fn properties_of_buffers_are_answered_as_the_driver_does() {
    rule(|rig| {
        let (empty, unknown) = ([0], [0x1_2345, 1, 0]);
        for properties in [ptr::null(), empty.as_ptr(), unknown.as_ptr()] {
            for _ in 0..2 {
                let (buffer, status) = with_properties(rig, properties);
                say!(rig, "{} {status}", buffer.is_null());
                if status == CL_SUCCESS {
                    say!(rig, "{}", rig.all_about(buffer));
                    rig.release(buffer);
                }
            }
        }
    });
}

#[test]
fn a_reused_buffer_is_described_as_a_fresh_one() {
    let runs = rule(|rig| {
        for round in 0..4 {
            for flags in [
                0,
                CL_MEM_READ_WRITE,
                CL_MEM_READ_ONLY,
                CL_MEM_HOST_NO_ACCESS,
                CL_MEM_ALLOC_HOST_PTR,
            ] {
                let buffer = rig.buffer_with(flags, 1000);
                say!(rig, "{round} {}", rig.all_about(buffer));
                if flags != CL_MEM_HOST_NO_ACCESS && flags != CL_MEM_READ_ONLY {
                    rig.fill(rig.queue, buffer, 1, 1000);
                    let (mapped, _) = rig.map(buffer, CL_MAP_READ, 0, 100);
                    rig.unmap(buffer, mapped);
                    rig.finish(rig.queue);
                }
                rig.release(buffer);
            }
        }
    });
    if let Some(runs) = runs {
        runs.reuse();
    }
}

#[test]
fn a_buffer_has_exactly_the_bytes_that_were_asked_for() {
    let runs = rule(|rig| {
        for _ in 0..2 {
            for bytes in (1..300).chain([4095, 4096, 4097, 1 << 20, (1 << 20) + 1]) {
                let buffer = rig.buffer(bytes);
                let size: usize = rig.about(buffer, CL_MEM_SIZE, 0).unwrap();
                say!(rig, "{bytes} {size} {}", rig.try_read(buffer, bytes - 1, 2));
                rig.release(buffer);
            }
        }
    });
    if let Some(runs) = runs {
        runs.reuse();
    }
}

#[test]
fn a_question_about_memory_that_is_put_wrongly_is_answered_as_the_driver_does() {
    rule(|rig| {
        let buffer = rig.used_buffer(64);
        let mut value = [0_u8; 3];
        let place: *mut c_void = value.as_mut_ptr().cast();
        for name in [CL_MEM_SIZE, CL_MEM_REFERENCE_COUNT, CL_MEM_CONTEXT, 0x1234] {
            let mut size = 77;
            let status = cl!(clGetMemObjectInfo(buffer, name, 3, place, &raw mut size));
            say!(rig, "{name:x} {status} {size}");
            let status = cl!(clGetMemObjectInfo(
                buffer,
                name,
                0,
                ptr::null_mut(),
                &raw mut size
            ));
            say!(rig, "{name:x} {status} {size}");
        }
        say!(
            rig,
            "{}",
            cl!(clGetMemObjectInfo(
                ptr::null_mut(),
                CL_MEM_SIZE,
                3,
                place,
                ptr::null_mut()
            ))
        );
        let mut many = [0_u32; 4];
        let status = cl!(clGetMemObjectInfo(
            buffer,
            CL_MEM_REFERENCE_COUNT,
            16,
            many.as_mut_ptr().cast(),
            ptr::null_mut()
        ));
        say!(rig, "{status} {many:?}");
        let status = cl!(clGetContextInfo(
            rig.context,
            CL_CONTEXT_REFERENCE_COUNT,
            1,
            place,
            ptr::null_mut()
        ));
        say!(
            rig,
            "{status} {}",
            cl!(clGetContextInfo(
                ptr::null_mut(),
                CL_CONTEXT_REFERENCE_COUNT,
                1,
                place,
                ptr::null_mut()
            ))
        );
        let status = cl!(clGetCommandQueueInfo(
            rig.queue,
            CL_QUEUE_REFERENCE_COUNT,
            1,
            place,
            ptr::null_mut()
        ));
        say!(rig, "{status}");
    });
}

#[test]
fn a_buffer_that_begins_as_a_copy_is_that_copy_however_often_its_memory_was_used() {
    rule(|rig| {
        for round in 0..4_u8 {
            let mut host = vec![round; 512];
            let flags = CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR;
            let (buffer, status) = rig.try_buffer(flags, 512, host.as_mut_ptr().cast());
            host.fill(0xFF);
            let bytes = rig.read(rig.queue, buffer, 512);
            say!(rig, "{status} {:?} {}", bytes[511], rig.all_about(buffer));
            rig.fill(rig.queue, buffer, 0xEE, 512);
            rig.finish(rig.queue);
            rig.release(buffer);
            let plain = rig.buffer(512);
            rig.fill(rig.queue, plain, 0xEE, 512);
            rig.finish(rig.queue);
            rig.release(plain);
        }
    });
}

#[test]
fn a_buffer_on_memory_of_the_host_stays_there() {
    rule(|rig| {
        let mut host = vec![0_u128; 256];
        for round in 0..3_u8 {
            let place: *mut c_void = host.as_mut_ptr().cast();
            let (buffer, status) = rig.try_buffer(CL_MEM_USE_HOST_PTR, 4096, place);
            rig.fill(rig.queue, buffer, round, 4096);
            let (mapped, map_status) = rig.map(buffer, CL_MAP_READ, 0, 4096);
            let at: usize = rig.about(buffer, CL_MEM_HOST_PTR, 0).unwrap();
            say!(
                rig,
                "{status} {map_status} {} {}",
                mapped.cast() == place,
                at == place.addr()
            );
            say!(rig, "{}", host[255] & 0xFF);
            rig.unmap(buffer, mapped);
            rig.finish(rig.queue);
            rig.release(buffer);
        }
    });
}

#[test]
fn contexts_of_a_type_have_memory_as_others_do() {
    let runs = rule(|rig| {
        let mut status = 0;
        let properties = [
            CL_CONTEXT_PLATFORM as cl_context_properties,
            rig.platform as cl_context_properties,
            0,
        ];
        let context = cl!(clCreateContextFromType(
            properties.as_ptr(),
            CL_DEVICE_TYPE_ALL,
            None,
            ptr::null_mut(),
            &raw mut status
        ));
        say!(rig, "{status}");
        let queue = rig.queue_in(context, rig.device, 0);
        for round in 0..5 {
            let buffer = cl!(clCreateBuffer(
                context,
                0,
                64,
                ptr::null_mut(),
                &raw mut status
            ));
            rig.fill(queue, buffer, round, 64);
            say!(rig, "{:?}", rig.read(queue, buffer, 2));
            rig.release(buffer);
        }
    });
    if let Some(runs) = runs {
        runs.reuse();
    }
}
