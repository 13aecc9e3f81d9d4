//! Which function each call goes to.

use std::{
    ffi::{c_int, c_void},
    path::Path,
    process::Command,
    ptr,
};

use crate::{
    calls::{
        MIB, allocate_on, begin, control, count, create_stream, cuGetProcAddress_v2, cuInit,
        cuMipmappedArrayDestroy, free_on,
    },
    child::{in_child, is_child, stand_in_path},
};

#[test]
fn without_settings_all_calls_go_to_the_driver() {
    in_child(&[], || {
        begin(64 * MIB);
        let stream = create_stream();
        let block = allocate_on(stream, MIB).unwrap();
        free_on(stream, block);
        assert_eq!((count("cuMemAllocAsync"), count("cuMemFreeAsync")), (1, 1));
    });
}

#[test]
fn a_function_that_the_driver_lacks_says_so() {
    in_child(&[], || {
        assert_eq!(unsafe { cuMipmappedArrayDestroy(1) }, 500);
    });
}

#[test]
fn without_a_driver_there_is_no_device() {
    in_child(
        &[
            ("BINPOOL_LIBCUDA", "/no/such/libcuda.so.1"),
            ("BINPOOL_POOL", "1"),
        ],
        || {
            assert_eq!(unsafe { cuInit(0) }, 100);
        },
    );
}

/// Another build of the layer, as far as the search for the driver sees it.
fn other_layer(path: &Path) {
    let source = path.with_extension("rs");
    std::fs::write(
        &source,
        r#"
        #[unsafe(no_mangle)] extern "C" fn clInitLayer() {}
        #[unsafe(no_mangle)] extern "C" fn cuInit(_flags: u32) -> i32 { 77 }
        "#,
    )
    .unwrap();
    let built = Command::new("rustc")
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "cdylib",
            "--crate-name",
            "other",
            "-o",
        ])
        .args([path, &source])
        .output()
        .unwrap();
    assert!(built.status.success(), "{built:?}");
}

#[test]
fn another_build_of_the_layer_is_not_taken_for_the_driver() {
    let folder = tempfile::tempdir().unwrap();
    let [other, driver] = ["other", "driver"].map(|name| folder.path().join(name));
    if !is_child() {
        for folder in [&other, &driver] {
            std::fs::create_dir(folder).unwrap();
        }
        other_layer(&other.join("libcuda.so.1"));
        std::os::unix::fs::symlink(stand_in_path(), driver.join("libcuda.so.1")).unwrap();
    }
    let folders = format!("{}:{}", other.display(), driver.display());
    let variables = [("BINPOOL_LIBCUDA", ""), ("LD_LIBRARY_PATH", &*folders)];
    in_child(&variables, || {
        assert_eq!(unsafe { cuInit(0) }, 0);
    });
}

#[test]
fn the_driver_names_the_functions_of_the_layer() {
    in_child(&[("BINPOOL_POOL", "1")], || {
        begin(64 * MIB);
        let find = |name: &std::ffi::CStr| {
            let mut found: *const c_void = ptr::null();
            let code = unsafe {
                cuGetProcAddress_v2(name.as_ptr(), &raw mut found, 12000, 0, ptr::null_mut())
            };
            (code, found)
        };
        let (code, found) = find(c"cuMemAllocAsync");
        assert_eq!(code, 0);
        let allocate: unsafe extern "C" fn(*mut u64, usize, usize) -> c_int =
            unsafe { std::mem::transmute(found) };
        let mut address = 0;
        assert_eq!(
            unsafe { allocate(&raw mut address, MIB, create_stream()) },
            0
        );
        assert_eq!(count("cuMemAllocAsync"), 0);
        assert_eq!(find(c"cuNoSuch").0, 500);
        // What the program has there stays, even if it is a function of the driver.
        let drivers = control::<*const c_void>("cuMemAllocAsync");
        let mut place = drivers;
        let code = unsafe {
            cuGetProcAddress_v2(
                c"cuNoSuch".as_ptr(),
                &raw mut place,
                12000,
                0,
                ptr::null_mut(),
            )
        };
        assert_eq!((code, place), (500, drivers));
    });
}

#[test]
fn the_driver_is_the_first_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libcuda.so.1");
    if !is_child() {
        std::os::unix::fs::symlink(stand_in_path(), &path).unwrap();
    }
    let folders = format!("/no/such/folder:{}", folder.path().display());
    let variables = [("BINPOOL_LIBCUDA", ""), ("LD_LIBRARY_PATH", &*folders)];
    in_child(&variables, || {
        let folders = std::env::var("LD_LIBRARY_PATH").unwrap();
        let folder = folders.split(':').nth(1).unwrap();
        let expected = Path::new(folder).join("libcuda.so.1");
        assert_eq!(binpool_layer::cuda_driver(), Some(expected));
    });
}

#[test]
fn where_the_driver_is_not_there_none_is_named() {
    in_child(&[("BINPOOL_LIBCUDA", "/no/such/libcuda.so.1")], || {
        assert_eq!(binpool_layer::cuda_driver(), None);
    });
}
