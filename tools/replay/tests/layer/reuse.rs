//! Memory that is released and created again.

use std::ptr;

use opencl_sys::*;

use crate::{
    cl::cl,
    rig::{Rig, say},
    runs::{Runs, rule, under},
};

#[test]
fn a_loop_of_temporaries_asks_the_driver_for_memory_a_tenth_as_often() {
    let runs = rule(|rig| {
        let set = rig.kernel("set");
        for round in 0..200_u8 {
            let buffer = rig.buffer(4096);
            rig.argument(set, 0, &buffer);
            rig.argument(set, 1, &round);
            rig.launch(rig.queue, set, 4096);
            rig.release(buffer);
        }
        rig.finish(rig.queue);
        say!(rig, "done");
    });
    if let Some(runs) = runs {
        let [recorded, pooled] = [&runs.recorded, &runs.pooled]
            .map(|run| run.calls("clCreateBuffer") + run.calls("clReleaseMemObject"));
        assert!(
            pooled * 10 <= recorded,
            "{pooled} calls in place of {recorded}"
        );
        let [recorded, pooled] = [&runs.recorded, &runs.pooled].map(|run| run.calls("cl"));
        assert!(
            pooled < recorded,
            "{pooled} calls in all in place of {recorded}"
        );
        for run in [&runs.recorded, &runs.pooled] {
            assert_eq!(
                (run.count("a "), run.count("f "), run.count("u ")),
                (200, 200, 200)
            );
        }
    }
}

#[test]
fn a_recording_makes_no_calls_of_its_own() {
    let runs = rule(|rig| {
        let queue = rig.new_queue(0);
        let buffer = rig.buffer(64);
        rig.fill(queue, buffer, 3, 64);
        // A read that waits: without it nothing orders the fills of the two queues.
        say!(rig, "{:?}", rig.read(queue, buffer, 2));
        rig.fill(rig.queue, buffer, 4, 64);
        say!(rig, "{:?}", rig.read(rig.queue, buffer, 2));
        rig.release(buffer);
        cl!(clReleaseCommandQueue(queue));
        cl!(clReleaseContext(rig.context));
    });
    if let Some(runs) = runs {
        let names = [
            "clEnqueueMarkerWithWaitList",
            "clEnqueueBarrierWithWaitList",
            "clFlush",
            "clFinish",
            "clGetEventInfo",
            "clReleaseEvent",
        ];
        assert_eq!(names.map(|name| runs.recorded.calls(name)), [0; 6]);
    }
}

#[test]
fn a_loop_of_temporaries_on_several_queues_asks_the_driver_for_less_memory() {
    let runs = rule(|rig| {
        let queues = [
            rig.queue,
            rig.new_queue(0),
            rig.new_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE),
        ];
        for round in 0..90_u8 {
            let queue = queues[usize::from(round) % 3];
            let buffer = rig.buffer(4096);
            rig.fill(queue, buffer, round, 4096);
            let bytes = rig.read(queue, buffer, 4096);
            // A read that waits ends the fill of an out-of-order queue only if that comes first.
            rig.finish(queue);
            say!(rig, "{}", bytes.len());
            rig.release(buffer);
        }
    });
    if let Some(runs) = runs {
        assert!(
            runs.pooled.calls("clCreateBuffer") <= 9,
            "{} buffers",
            runs.pooled.calls("clCreateBuffer")
        );
    }
}

fn filled(rig: &Rig, context: cl_context, queue: cl_command_queue, value: u8) -> cl_mem {
    let mut status = 0;
    let buffer = cl!(clCreateBuffer(
        context,
        0,
        1024,
        ptr::null_mut(),
        &raw mut status
    ));
    assert_eq!(status, CL_SUCCESS);
    rig.fill(queue, buffer, value, 1024);
    buffer
}

#[test]
fn memory_of_one_context_is_not_given_to_another() {
    let runs = rule(|rig| {
        let other = rig.new_context(&[rig.device]);
        let places = [
            (rig.context, rig.queue),
            (other, rig.queue_in(other, rig.device, 0)),
        ];
        for round in 0..10_u8 {
            for (context, queue) in places {
                let buffer = filled(rig, context, queue, round);
                let own: usize = rig.about(buffer, CL_MEM_CONTEXT, 0).unwrap();
                say!(
                    rig,
                    "{:?} {}",
                    rig.read(queue, buffer, 2),
                    own == context as usize
                );
                rig.release(buffer);
            }
        }
    });
    if let Some(runs) = runs {
        assert_eq!(runs.pooled.calls("clCreateBuffer"), 2);
    }
}

/// Fills and reads memory on two devices of one context in turns.
fn use_on_both(rig: &mut Rig, devices: [cl_device_id; 2]) {
    let context = rig.new_context(&devices);
    let queues = devices.map(|device| rig.queue_in(context, device, 0));
    for round in 0..20_u8 {
        let buffer = filled(rig, context, queues[usize::from(round % 2)], round);
        rig.finish(queues[usize::from(round % 2)]);
        let reader = queues[usize::from((round / 2) % 2)];
        say!(rig, "{:?}", rig.read(reader, buffer, 2));
        rig.release(buffer);
    }
}

#[test]
fn memory_is_reused_on_all_devices_of_a_context() {
    let variables = [("POCL_DEVICES", "pthread pthread")];
    let runs = under(&variables, |rig| {
        let mut devices = [rig.device; 2];
        let place = devices.as_mut_ptr();
        let all = CL_DEVICE_TYPE_ALL;
        cl!(clGetDeviceIDs(rig.platform, all, 2, place, ptr::null_mut()));
        use_on_both(rig, devices);
    });
    if let Some((recorded, pooled)) = runs {
        assert_eq!(pooled.transcript, recorded.transcript);
        assert!(pooled.calls("clCreateBuffer") <= 4);
    }
}

#[test]
fn memory_is_reused_on_sub_devices_if_the_driver_keeps_them_with_their_context() {
    let runs = rule(|rig| {
        let equally = [CL_DEVICE_PARTITION_EQUALLY, 1, 0];
        let mut devices: [cl_device_id; 1024] = [ptr::null_mut(); 1024];
        let mut count = 0;
        let status = cl!(clCreateSubDevices(
            rig.device,
            equally.as_ptr(),
            1024,
            devices.as_mut_ptr(),
            &raw mut count
        ));
        say!(rig, "{status} {count}");
        if status == CL_SUCCESS {
            use_on_both(rig, [devices[0], devices[count as usize - 1]]);
            let mut references: cl_uint = 0;
            cl!(clGetDeviceInfo(
                devices[0],
                CL_DEVICE_REFERENCE_COUNT,
                size_of_val(&references),
                (&raw mut references).cast(),
                ptr::null_mut()
            ));
            say!(rig, "kept: {}", references > 1);
        }
    });
    if let Some(Runs { pooled, .. }) = runs {
        if pooled.transcript.contains("kept: true") {
            assert!(pooled.calls("clCreateBuffer") <= 4);
        } else if pooled.transcript.contains("kept") {
            let mut lines = pooled.lines();
            assert!(lines.any(|line| line.ends_with("the driver does not keep")));
        }
    }
}

#[test]
fn memory_that_the_host_may_not_read_is_not_reused_as_other_memory() {
    rule(|rig| {
        for flags in [
            CL_MEM_HOST_NO_ACCESS,
            0,
            CL_MEM_READ_ONLY,
            CL_MEM_WRITE_ONLY,
            CL_MEM_READ_WRITE,
            CL_MEM_HOST_READ_ONLY,
        ] {
            let buffer = rig.buffer_with(flags, 2048);
            say!(
                rig,
                "{} {}",
                rig.try_read(buffer, 0, 8),
                rig.all_about(buffer)
            );
            rig.release(buffer);
        }
    });
}

#[test]
fn memory_in_use_is_not_touched_by_memory_that_comes_and_goes() {
    let runs = rule(|rig| {
        let kept: Vec<cl_mem> = (0..16_u8)
            .map(|value| filled(rig, rig.context, rig.queue, value))
            .collect();
        for round in 0..64_u8 {
            let queue = if round % 2 == 0 {
                rig.queue
            } else {
                rig.new_queue(0)
            };
            let (first, second) = (
                filled(rig, rig.context, queue, 0xE0),
                filled(rig, rig.context, queue, 0xE1),
            );
            say!(rig, "{}", rig.copy(queue, first, second, 0, 512, 512));
            rig.release(first);
            rig.release(second);
            if queue != rig.queue {
                cl!(clReleaseCommandQueue(queue));
            }
        }
        for buffer in kept {
            let bytes = rig.read(rig.queue, buffer, 1024);
            say!(
                rig,
                "{} {}",
                bytes[0],
                bytes.iter().all(|byte| *byte == bytes[0])
            );
            rig.release(buffer);
        }
    });
    if let Some(runs) = runs {
        runs.reuse();
    }
}

#[test]
fn memory_that_a_pending_command_uses_is_not_touched_by_its_next_owner() {
    rule(|rig| {
        for properties in [0, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE] {
            let queue = rig.new_queue(properties);
            let (first, result) = (rig.buffer(1024), rig.buffer(1024));
            rig.fill(queue, first, 1, 1024);
            rig.finish(queue);
            let event = rig.user_event();
            // A copy of the first, once the program lets it go.
            let status = cl!(clEnqueueCopyBuffer(
                queue,
                first,
                result,
                0,
                0,
                1024,
                1,
                &raw const event,
                ptr::null_mut()
            ));
            rig.release(first);
            for value in 0..5 {
                let next = rig.buffer(1024);
                rig.fill(rig.queue, next, 0xE0 + value, 1024);
                rig.finish(rig.queue);
                rig.release(next);
            }
            rig.resolve(event, CL_COMPLETE);
            rig.finish(queue);
            say!(
                rig,
                "{status} {}",
                rig.read(queue, result, 1024).iter().all(|byte| *byte == 1)
            );
            rig.release(result);
        }
    });
}

#[test]
fn a_queue_may_be_released_while_its_commands_are_pending_and_before_its_memory() {
    rule(|rig| {
        for round in 0..6_u8 {
            let queue = rig.new_queue(if round % 2 == 0 {
                0
            } else {
                CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
            });
            let buffer = rig.buffer(1024);
            rig.set_slowly(queue, buffer, 1024);
            say!(rig, "{}", cl!(clReleaseCommandQueue(queue)));
            rig.release(buffer);
            let next = rig.buffer(1024);
            rig.fill(rig.queue, next, round, 1024);
            rig.finish(rig.queue);
            say!(
                rig,
                "{}",
                rig.read(rig.queue, next, 1024)
                    .iter()
                    .all(|byte| *byte == round)
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
            say!(
                rig,
                "{}",
                rig.read(rig.queue, next, 1024)
                    .iter()
                    .all(|byte| *byte == round)
            );
            rig.release(next);
        }
    });
}

#[test]
fn memory_is_migrated_as_often_as_the_program_likes() {
    let runs = rule(|rig| {
        for round in 0..5_u8 {
            let buffers = [rig.buffer(64), rig.buffer(96)];
            for flags in [
                0,
                CL_MIGRATE_MEM_OBJECT_HOST,
                CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED,
            ] {
                let status = cl!(clEnqueueMigrateMemObjects(
                    rig.queue,
                    2,
                    buffers.as_ptr(),
                    flags,
                    0,
                    ptr::null(),
                    ptr::null_mut()
                ));
                say!(rig, "{status}");
            }
            rig.fill(rig.queue, buffers[1], round, 96);
            say!(rig, "{:?}", rig.read(rig.queue, buffers[1], 2));
            for buffer in buffers {
                rig.release(buffer);
            }
        }
    });
    if let Some(runs) = runs {
        assert_eq!(runs.pooled.calls("clCreateBuffer"), 2);
    }
}

#[test]
fn threads_may_create_launch_and_release_at_the_same_time() {
    let runs = rule(|rig| {
        let program = rig.program().expose_provenance();
        let context = rig.context.expose_provenance();
        let device = rig.device.expose_provenance();
        let threads: Vec<_> = (0..4_u8)
            .map(|thread| {
                std::thread::spawn(move || {
                    let context: cl_context = ptr::with_exposed_provenance_mut(context);
                    let mut status = 0;
                    let queue = cl!(clCreateCommandQueue(
                        context,
                        ptr::with_exposed_provenance_mut(device),
                        0,
                        &raw mut status
                    ));
                    let kernel = cl!(clCreateKernel(
                        ptr::with_exposed_provenance_mut(program),
                        c"set".as_ptr(),
                        &raw mut status
                    ));
                    let mut wrong = 0;
                    for round in 0..100_u8 {
                        let bytes = 512 << (round % 3);
                        let buffer = cl!(clCreateBuffer(
                            context,
                            0,
                            bytes,
                            ptr::null_mut(),
                            &raw mut status
                        ));
                        let value = round.wrapping_mul(4) + thread;
                        cl!(clSetKernelArg(
                            kernel,
                            0,
                            size_of::<cl_mem>(),
                            (&raw const buffer).cast()
                        ));
                        cl!(clSetKernelArg(kernel, 1, 1, (&raw const value).cast()));
                        cl!(clEnqueueNDRangeKernel(
                            queue,
                            kernel,
                            1,
                            ptr::null(),
                            &raw const bytes,
                            ptr::null(),
                            0,
                            ptr::null(),
                            ptr::null_mut()
                        ));
                        let mut read = vec![0_u8; bytes];
                        if round % 4 != 0 {
                            cl!(clEnqueueReadBuffer(
                                queue,
                                buffer,
                                CL_BLOCKING,
                                0,
                                bytes,
                                read.as_mut_ptr().cast(),
                                0,
                                ptr::null(),
                                ptr::null_mut()
                            ));
                            wrong += read.iter().filter(|byte| **byte != value).count();
                        }
                        cl!(clReleaseMemObject(buffer));
                    }
                    cl!(clReleaseKernel(kernel));
                    cl!(clReleaseCommandQueue(queue));
                    wrong
                })
            })
            .collect();
        for thread in threads {
            say!(rig, "{}", thread.join().unwrap());
        }
    });
    if let Some(runs) = runs {
        runs.reuse();
        assert_eq!(
            (runs.pooled.count("a "), runs.pooled.count("f ")),
            (400, 400)
        );
    }
}

#[test]
fn a_thread_that_has_ended_leaves_its_memory_to_the_others() {
    let runs = rule(|rig| {
        for round in 0..10_u8 {
            let context = rig.context.expose_provenance();
            let made = std::thread::spawn(move || {
                let mut status = 0;
                let context = ptr::with_exposed_provenance_mut(context);
                let [kept, released] = [(); 2].map(|()| {
                    cl!(clCreateBuffer(
                        context,
                        0,
                        768,
                        ptr::null_mut(),
                        &raw mut status
                    ))
                });
                cl!(clReleaseMemObject(released));
                kept.expose_provenance()
            });
            let buffer: cl_mem = ptr::with_exposed_provenance_mut(made.join().unwrap());
            rig.fill(rig.queue, buffer, round, 768);
            say!(
                rig,
                "{:?} {}",
                rig.read(rig.queue, buffer, 2),
                rig.all_about(buffer)
            );
            rig.release(buffer);
        }
    });
    if let Some(runs) = runs {
        assert_eq!(runs.pooled.calls("clCreateBuffer"), 2);
    }
}
