//! Loaders of OpenCL.

use std::ptr;

use libloading::os::unix::{Library, RTLD_NOW};
use opencl_sys::{
    CL_INVALID_VALUE, CL_SUCCESS,
    cl_layer::{CL_LAYER_API_VERSION, CL_LAYER_API_VERSION_100, CL_LAYER_NAME},
};

use crate::{
    child::{bare, recorded},
    driver::{
        Device, KNOWN, clGetLayerInfo, clInitLayer, clInitLayerWithProperties, entries, functions,
        init_layer,
    },
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
fn a_loader_is_told_the_version_and_the_name() {
    let ask = |name, size| {
        let (mut value, mut bytes) = ([0_u8; 16], 0);
        let status =
            unsafe { clGetLayerInfo(name, size, value.as_mut_ptr().cast(), &raw mut bytes) };
        (status, value[..bytes].to_vec())
    };
    let version = CL_LAYER_API_VERSION_100.to_ne_bytes();
    assert_eq!(ask(CL_LAYER_API_VERSION, 4), (CL_SUCCESS, version.to_vec()));
    assert_eq!(ask(CL_LAYER_NAME, 16), (CL_SUCCESS, b"binpool\0".to_vec()));
    for (name, size) in [(CL_LAYER_API_VERSION, 3), (CL_LAYER_NAME, 7), (1, 16)] {
        assert_eq!(ask(name, size), (CL_INVALID_VALUE, Vec::new()));
    }
    let mut bytes = 0;
    let nothing = ptr::null_mut();
    assert_eq!(
        unsafe { clGetLayerInfo(CL_LAYER_NAME, 0, nothing, &raw mut bytes) },
        CL_SUCCESS
    );
    assert_eq!(bytes, 8);
}

#[test]
fn a_loader_that_passes_no_table_or_no_place_for_one_is_refused() {
    let table = entries(&functions());
    let target = table.as_ptr().cast();
    let (mut count, mut layer) = (0, ptr::null());
    let [no_count, count] = [ptr::null_mut(), &raw mut count];
    let [no_layer, layer] = [ptr::null_mut(), &raw mut layer];
    for (target, count, layer) in [
        (ptr::null(), count, layer),
        (target, no_count, layer),
        (target, count, no_layer),
    ] {
        let known = u32::try_from(KNOWN).unwrap();
        let all = unsafe {
            [
                clInitLayer(known, target, count, layer),
                clInitLayerWithProperties(known, target, count, layer, ptr::null()),
            ]
        };
        assert_eq!(all, [CL_INVALID_VALUE; 2]);
    }
}

#[test]
fn where_the_layer_has_nothing_to_do_the_functions_are_those_of_the_loader() {
    bare(|| {
        let table = entries(&functions());
        assert_eq!(init_layer(&table), table);
    });
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
