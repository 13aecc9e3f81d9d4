//! Loaders of OpenCL.

use libloading::os::unix::{Library, RTLD_NOW};

use crate::{
    child::recorded,
    driver::{Device, KNOWN, entries, functions, init_layer},
    stand_in_build,
};

#[test]
fn a_loader_that_the_program_unloads_stays_for_the_layer() {
    let ran = recorded(|| {
        // Any library will do: what matters is that the loader's functions are in one.
        let path = stand_in_build::build();
        let load = |flags| unsafe { Library::open(Some(&path), flags) };
        load(RTLD_NOW).unwrap().close().unwrap();
        assert!(load(RTLD_NOW | libc::RTLD_NOLOAD).is_err());

        let loader = load(RTLD_NOW).unwrap();
        let mut functions = functions();
        functions.clGetPlatformIDs = Some(*unsafe { loader.get(b"cuInit") }.unwrap());
        let device = Device::of(init_layer(&entries(&functions)));
        device.touch(1);
        loader.close().unwrap();
        assert!(load(RTLD_NOW | libc::RTLD_NOLOAD).is_ok());
    });
    if let Some(ran) = ran {
        assert_eq!(ran.recording().sizes(), [1]);
    }
}

#[test]
fn a_second_loader_has_the_layer_too() {
    let ran = recorded(|| {
        let first = Device::load();
        let second = Device::load();
        second.touch(1);
        first.release(second.create(2));
    });
    if let Some(ran) = ran {
        let recording = ran.recording();
        assert_eq!((recording.sizes(), recording.count("f ")), (vec![1, 2], 2));
    }
}

#[test]
fn a_loader_may_have_more_functions_than_the_layer_knows() {
    let ran = recorded(|| {
        let mut table = entries(&functions());
        table.resize(KNOWN + 100, 0);
        let layer = init_layer(&table);
        assert_eq!(layer.len(), KNOWN);
        Device::of(layer).touch(1);
    });
    if let Some(ran) = ran {
        assert_eq!(ran.errors, "");
        assert_eq!(ran.recording().sizes(), [1]);
    }
}
