//! Shared virtual memory.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

use opencl_sys::*;

use crate::{
    cl::cl,
    rig::{Rig, say},
    runs::rule,
};

const COARSE: cl_svm_mem_flags = CL_MEM_READ_WRITE;
const FINE: cl_svm_mem_flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;

fn allocate(rig: &Rig, flags: cl_svm_mem_flags, bytes: usize, alignment: cl_uint) -> *mut u8 {
    cl!(clSVMAlloc(rig.context, flags, bytes, alignment)).cast()
}

fn free(rig: &Rig, address: *mut u8) {
    cl!(clSVMFree(rig.context, address.cast()));
}

#[test]
fn shared_memory_has_the_alignment_that_was_asked_for_and_wrong_requests_get_none() {
    rule(|rig| {
        for flags in [
            COARSE,
            FINE,
            FINE | CL_MEM_SVM_ATOMICS,
            CL_MEM_SVM_ATOMICS,
            CL_MEM_COPY_HOST_PTR,
            0,
        ] {
            for alignment in [0, 1, 2, 8, 64, 128, 3, 100, 1 << 20] {
                for bytes in [0, 1, 1000] {
                    for _ in 0..2 {
                        let address = allocate(rig, flags, bytes, alignment);
                        let is_aligned = address.addr().is_multiple_of(alignment.max(1) as usize);
                        say!(
                            rig,
                            "{flags:x} {alignment} {bytes}: {} {is_aligned}",
                            address.is_null()
                        );
                        free(rig, address);
                    }
                }
            }
        }
        free(rig, ptr::null_mut());
    });
}

#[test]
fn fine_memory_is_written_by_the_host_and_read_by_a_kernel() {
    let runs = rule(|rig| {
        let add = rig.kernel("add");
        for round in 1..5_u8 {
            let (from, to) = (allocate(rig, FINE, 256, 0), allocate(rig, FINE, 256, 0));
            // SAFETY: memory of these bytes, which no command uses.
            unsafe { from.write_bytes(round, 256) };
            // SAFETY: as above.
            unsafe { to.write_bytes(1, 256) };
            say!(rig, "{}", cl!(clSetKernelArgSVMPointer(add, 0, to.cast())));
            say!(
                rig,
                "{}",
                cl!(clSetKernelArgSVMPointer(add, 1, from.cast()))
            );
            rig.launch(rig.queue, add, 256);
            rig.finish(rig.queue);
            // SAFETY: the commands have ended.
            say!(rig, "{}", unsafe { to.add(255).read() });
            free(rig, from);
            free(rig, to);
        }
    });
    if let Some(runs) = runs {
        // What was freed at once may still have its marker to come.
        assert!(runs.pooled.calls("clSVMAlloc") < runs.recorded.calls("clSVMAlloc"));
    }
}

#[test]
fn an_address_inside_shared_memory_is_an_argument_too() {
    let runs = rule(|rig| {
        let set = rig.kernel("set");
        let memory = allocate(rig, FINE, 256, 0);
        // SAFETY: memory of these bytes, which no command uses.
        unsafe { memory.write_bytes(1, 256) };
        say!(
            rig,
            "{}",
            cl!(clSetKernelArgSVMPointer(
                set,
                0,
                memory.wrapping_add(128).cast()
            ))
        );
        rig.argument(set, 1, &7_u8);
        rig.launch(rig.queue, set, 128);
        rig.finish(rig.queue);
        // SAFETY: the commands have ended.
        let bytes = unsafe { std::slice::from_raw_parts(memory, 256) };
        say!(rig, "{} {} {}", bytes[127], bytes[128], bytes[255]);
        free(rig, memory);
    });
    if let Some(runs) = runs {
        assert_eq!(runs.pooled.count("u 1 "), 1);
    }
}

#[test]
fn memory_that_a_kernel_finds_by_itself_is_used_by_it() {
    let runs = rule(|rig| {
        let through = rig.kernel("through");
        let to = rig.buffer(64);
        let memory = allocate(rig, FINE, 64, 0);
        // SAFETY: memory of these bytes, which no command uses.
        unsafe { memory.write_bytes(6, 64) };
        let address = memory.addr() as u64;
        rig.argument(through, 0, &to);
        rig.argument(through, 1, &address);
        let list = [memory];
        let status = cl!(clSetKernelExecInfo(
            through,
            CL_KERNEL_EXEC_INFO_SVM_PTRS,
            size_of_val(&list),
            list.as_ptr().cast()
        ));
        rig.launch(rig.queue, through, 64);
        say!(rig, "{status} {:?}", rig.read(rig.queue, to, 2));
        free(rig, memory);
    });
    if let Some(runs) = runs {
        assert_eq!(runs.recorded.count("u 2 "), 1);
    }
}

#[test]
fn commands_on_shared_memory_do_what_they_would() {
    let runs = rule(|rig| {
        for round in 0..4_u8 {
            let (first, second) = (allocate(rig, COARSE, 128, 0), allocate(rig, COARSE, 128, 0));
            let fill = cl!(clEnqueueSVMMemFill(
                rig.queue,
                first.cast(),
                (&raw const round).cast(),
                1,
                128,
                0,
                ptr::null(),
                ptr::null_mut()
            ));
            let copy = cl!(clEnqueueSVMMemcpy(
                rig.queue,
                CL_NON_BLOCKING,
                second.cast(),
                first.cast(),
                128,
                0,
                ptr::null(),
                ptr::null_mut()
            ));
            let map = cl!(clEnqueueSVMMap(
                rig.queue,
                CL_BLOCKING,
                CL_MAP_READ,
                second.cast(),
                128,
                0,
                ptr::null(),
                ptr::null_mut()
            ));
            // SAFETY: it is mapped.
            let byte = unsafe { second.add(127).read() };
            let unmap = cl!(clEnqueueSVMUnmap(
                rig.queue,
                second.cast(),
                0,
                ptr::null(),
                ptr::null_mut()
            ));
            let mut list: [*const c_void; 2] = [first.cast(), second.cast()];
            let migrate = cl!(clEnqueueSVMMigrateMem(
                rig.queue,
                2,
                list.as_mut_ptr(),
                ptr::null(),
                0,
                0,
                ptr::null(),
                ptr::null_mut()
            ));
            rig.finish(rig.queue);
            say!(rig, "{fill} {copy} {map} {unmap} {migrate} {byte}");
            free(rig, first);
            free(rig, second);
        }
    });
    if let Some(runs) = runs {
        assert!(runs.pooled.calls("clSVMAlloc") < runs.recorded.calls("clSVMAlloc"));
    }
}

static FREED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn free_all(
    queue: cl_command_queue,
    count: cl_uint,
    addresses: *mut *mut c_void,
    context: *mut c_void,
) {
    for index in 0..count as usize {
        // SAFETY: the driver passes `count` addresses.
        let address = unsafe { addresses.add(index).read() };
        cl!(clSVMFree(context, address));
    }
    FREED.fetch_add(
        count as usize + usize::from(queue.is_null()) * 100,
        Ordering::Release,
    );
}

#[test]
fn shared_memory_is_freed_by_a_queue_with_a_function_and_without() {
    rule(|rig| {
        for function in [None, Some(free_all as unsafe extern "C" fn(_, _, _, _))] {
            for round in 0..4_u8 {
                let mut list: [*mut c_void; 3] = [
                    allocate(rig, COARSE, 128, 0).cast(),
                    ptr::null_mut(),
                    allocate(rig, FINE, 64, 0).cast(),
                ];
                let fill = cl!(clEnqueueSVMMemFill(
                    rig.queue,
                    list[0],
                    (&raw const round).cast(),
                    1,
                    128,
                    0,
                    ptr::null(),
                    ptr::null_mut()
                ));
                let freed = cl!(clEnqueueSVMFree(
                    rig.queue,
                    3,
                    list.as_mut_ptr(),
                    function,
                    rig.context,
                    0,
                    ptr::null(),
                    ptr::null_mut()
                ));
                rig.finish(rig.queue);
                say!(rig, "{fill} {freed} {}", FREED.load(Ordering::Acquire));
            }
        }
        let status = cl!(clEnqueueSVMFree(
            rig.queue,
            0,
            ptr::null_mut(),
            None,
            ptr::null_mut(),
            0,
            ptr::null(),
            ptr::null_mut()
        ));
        say!(rig, "{status}");
    });
}

#[test]
fn a_buffer_on_shared_memory_says_so() {
    rule(|rig| {
        for round in 0..3_u8 {
            let memory = allocate(rig, COARSE, 4096, 0);
            let (buffer, status) = rig.try_buffer(CL_MEM_USE_HOST_PTR, 4096, memory.cast());
            say!(rig, "{status} {}", rig.all_about(buffer));
            rig.fill(rig.queue, buffer, round, 4096);
            say!(rig, "{:?}", rig.read(rig.queue, buffer, 2));
            rig.release(buffer);
            free(rig, memory);
        }
    });
}

#[test]
fn shared_memory_that_is_freed_twice_does_not_take_that_of_the_next_owner() {
    let runs = rule(|rig| {
        let memory = allocate(rig, FINE, 512, 0);
        free(rig, memory);
        if std::env::var_os("BINPOOL_POOL").is_some() {
            free(rig, memory);
        }
        let next = allocate(rig, FINE, 512, 0);
        // SAFETY: memory of these bytes, which no command uses.
        unsafe { next.write_bytes(3, 512) };
        let other = allocate(rig, FINE, 512, 0);
        // SAFETY: as above.
        unsafe { other.write_bytes(4, 512) };
        // SAFETY: as above.
        say!(rig, "{} {}", unsafe { next.read() }, next != other);
        free(rig, next);
        free(rig, other);
    });
    if let Some(runs) = runs {
        assert_eq!(runs.pooled.calls("clSVMAlloc"), 2);
    }
}
