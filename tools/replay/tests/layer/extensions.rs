//! Functions that are looked up by their names, and several loaders.

use std::{
    ffi::{CString, c_char, c_void},
    ptr,
};

use crate::{
    cl::{cl, of_loader},
    rig::{Rig, say},
    runs::{Runs, rule},
};

fn look_up(rig: &Rig, name: &str) -> [*mut c_void; 2] {
    let name = CString::new(name).unwrap();
    let name: *const c_char = name.as_ptr();
    [
        cl!(clGetExtensionFunctionAddress(name)),
        cl!(clGetExtensionFunctionAddressForPlatform(rig.platform, name)),
    ]
}

#[test]
fn the_functions_that_a_driver_has_by_name_are_found() {
    rule(|rig| {
        for name in [
            "clIcdGetPlatformIDsKHR",
            "clSetContentSizeBufferPoCL",
            "clCreateCommandQueueWithPropertiesKHR",
            "clCreateSubDevicesEXT",
            "clGetGLContextInfoKHR",
            "clCreateBuffer",
            "clReleaseMemObject",
            "clHostMemAllocINTEL",
            "clNoSuchFunction",
            "",
        ] {
            let found = look_up(rig, name).map(|function| !function.is_null());
            say!(rig, "{name}: {found:?}");
        }
        let none = ptr::null_mut();
        say!(
            rig,
            "{}",
            cl!(clGetExtensionFunctionAddressForPlatform(
                none,
                c"clNoSuchFunction".as_ptr()
            ))
            .is_null()
        );
    });
}

fn asks_for(rig: &mut Rig, name: &str) {
    let mut kept = Vec::new();
    for round in 0..6_u8 {
        if round == 3 {
            let found = look_up(rig, name).map(<*mut c_void>::is_null);
            say!(rig, "{found:?}");
        }
        let buffer = rig.buffer(128);
        rig.fill(rig.queue, buffer, round, 128);
        say!(rig, "{:?}", rig.read(rig.queue, buffer, 2));
        if round % 2 == 0 {
            kept.push(buffer);
        } else {
            rig.release(buffer);
        }
    }
    for buffer in kept {
        say!(rig, "{:?}", rig.read(rig.queue, buffer, 2));
        rig.release(buffer);
    }
}

/// The pool was left at the middle of the program.
fn has_left_the_pool(runs: Option<Runs>, name: &str) {
    if let Some(Runs { pooled, .. }) = runs {
        let mut passed = pooled.lines().filter(|line| line.starts_with("p passed"));
        assert!(passed.any(|line| line.contains(name)));
        assert_eq!(
            pooled.calls("clReleaseMemObject"),
            pooled.calls("clCreateBuffer")
        );
    }
}

#[test]
fn a_program_that_asks_for_command_buffers_has_memory_of_the_driver_from_then_on() {
    let name = "clCreateCommandBufferKHR";
    has_left_the_pool(rule(|rig| asks_for(rig, "clCreateCommandBufferKHR")), name);
}

#[test]
fn a_program_that_asks_to_mark_buffers_has_memory_of_the_driver_from_then_on() {
    let name = "clSetContentSizeBufferPoCL";
    has_left_the_pool(
        rule(|rig| asks_for(rig, "clSetContentSizeBufferPoCL")),
        name,
    );
}

#[test]
fn two_loaders_in_a_process_have_the_platforms_that_each_finds() {
    rule(|rig| {
        let system = [
            "/usr/lib/x86_64-linux-gnu/libOpenCL.so.1",
            "/usr/lib/aarch64-linux-gnu/libOpenCL.so.1",
        ];
        let Some(system) = system
            .into_iter()
            .find(|path| std::path::Path::new(path).exists())
        else {
            say!(rig, "another system");
            return;
        };
        // Under another name, it is another library.
        std::fs::copy(system, "libAnother.so.1").unwrap();
        let other = of_loader("./libAnother.so.1").unwrap();
        let count = |table: &opencl_sys::cl_icd::cl_icd_dispatch| {
            let mut count = 0;
            // SAFETY: it writes a count.
            let status =
                unsafe { table.clGetPlatformIDs.unwrap()(0, ptr::null_mut(), &raw mut count) };
            (status, count)
        };
        say!(rig, "{:?}", count(&other));
        // An object of one loader is one of the other: both call the function of the object's own driver.
        let mut status = 0;
        for round in 0..4_u8 {
            // SAFETY: what the specification lets a program pass.
            let buffer = unsafe {
                other.clCreateBuffer.unwrap()(rig.context, 0, 256, ptr::null_mut(), &raw mut status)
            };
            rig.fill(rig.queue, buffer, round, 256);
            say!(rig, "{status} {:?}", rig.read(rig.queue, buffer, 2));
            // SAFETY: as above.
            say!(rig, "{}", unsafe {
                other.clReleaseMemObject.unwrap()(buffer)
            });
        }
        // A loader that finds nothing.
        std::fs::create_dir_all("none").unwrap();
        // SAFETY: no other thread of the program reads the environment now.
        unsafe { std::env::set_var("OCL_ICD_VENDORS", "none") };
        std::fs::copy(system, "libThird.so.1").unwrap();
        let third = of_loader("./libThird.so.1").unwrap();
        say!(rig, "{:?} {:?}", count(&third), count(&other));
    });
}
