//! Samplers: how they are made, and what they say about themselves.

use std::{collections::HashSet, num::NonZeroU64};

use binpool_allocators::InvalidRequest;
use binpool_opencl::{Addressing, ClSampler, Filter, OpenClError, SamplerProperties};
use cl3::sampler::{
    CL_SAMPLER_ADDRESSING_MODE, CL_SAMPLER_FILTER_MODE, CL_SAMPLER_NORMALIZED_COORDS,
};

use crate::common::{Bench, Error, picture::assert_says};

const ALL: [Addressing; 5] = [
    Addressing::None,
    Addressing::ClampToEdge,
    Addressing::Clamp,
    Addressing::Repeat,
    Addressing::MirroredRepeat,
];

const fn repeats(addressing: Addressing) -> bool {
    matches!(addressing, Addressing::Repeat | Addressing::MirroredRepeat)
}

#[test]
fn a_sampler_tells_what_it_was_made_of() {
    let bench = Bench::new();
    for normalized in [true, false] {
        for addressing in ALL {
            for filter in [Filter::Nearest, Filter::Linear] {
                let sampler = ClSampler::new(&bench.backend, normalized, addressing, filter);
                if repeats(addressing) && !normalized {
                    let error = sampler.unwrap_err();
                    assert_says(
                        &error,
                        &format!("{addressing:?} with coordinates in pixels"),
                    );
                    continue;
                }
                let sampler = sampler.unwrap();
                assert_eq!(sampler.normalized_coordinates().unwrap(), normalized);
                assert_eq!(sampler.addressing().unwrap(), addressing);
                assert_eq!(sampler.filter().unwrap(), filter);
            }
        }
    }
}

#[test]
fn a_sampler_of_properties_tells_them_in_the_runtimes_words() {
    let bench = Bench::new();
    let sampler = ClSampler::with_properties(
        &bench.backend,
        &SamplerProperties {
            normalized_coordinates: Some(false),
            addressing: Some(Addressing::ClampToEdge),
            filter: Some(Filter::Linear),
            ..SamplerProperties::default()
        },
    )
    .unwrap();
    assert!(!sampler.normalized_coordinates().unwrap());
    assert_eq!(sampler.addressing().unwrap(), Addressing::ClampToEdge);
    assert_eq!(sampler.filter().unwrap(), Filter::Linear);
    assert_eq!(
        sampler.properties().unwrap(),
        [
            (CL_SAMPLER_NORMALIZED_COORDS.into(), 0),
            (CL_SAMPLER_ADDRESSING_MODE.into(), 0x1131),
            (CL_SAMPLER_FILTER_MODE.into(), 0x1141),
        ]
    );
    let plain = ClSampler::new(&bench.backend, true, Addressing::Clamp, Filter::Nearest).unwrap();
    assert_eq!(plain.properties().unwrap(), []);
}

#[test]
fn what_is_not_said_is_as_the_runtime_has_it() {
    let bench = Bench::new();
    let sampler =
        ClSampler::with_properties(&bench.backend, &SamplerProperties::default()).unwrap();
    assert!(sampler.normalized_coordinates().unwrap());
    assert_eq!(sampler.addressing().unwrap(), Addressing::Clamp);
    assert_eq!(sampler.filter().unwrap(), Filter::Nearest);
}

#[test]
fn properties_that_contradict_each_other_are_refused() {
    let bench = Bench::new();
    let make = |properties| ClSampler::with_properties(&bench.backend, &properties).unwrap_err();
    let error = make(SamplerProperties {
        normalized_coordinates: Some(false),
        addressing: Some(Addressing::Repeat),
        ..SamplerProperties::default()
    });
    assert_says(&error, "with coordinates in pixels");
    let key: u64 = CL_SAMPLER_FILTER_MODE.into();
    let error = make(SamplerProperties {
        filter: Some(Filter::Linear),
        others: vec![(NonZeroU64::new(key).unwrap(), 0x1140)],
        ..SamplerProperties::default()
    });
    assert_says(&error, &format!("the property {key:#x} is given twice"));
}

#[test]
fn properties_of_no_extension_are_the_runtimes_to_refuse() {
    let bench = Bench::new();
    let unknown = SamplerProperties {
        others: vec![(NonZeroU64::new(0xdead).unwrap(), 1)],
        ..SamplerProperties::default()
    };
    let error = ClSampler::with_properties(&bench.backend, &unknown).unwrap_err();
    let OpenClError::Device(Error::Backend(failure)) = &error else {
        panic!("another error: {error}");
    };
    assert_eq!(failure.operation, "clCreateSamplerWithProperties");
    // A known key among the others is as good as its field.
    let filter = NonZeroU64::new(CL_SAMPLER_FILTER_MODE.into()).unwrap();
    let known = SamplerProperties {
        others: vec![(filter, 0x1141)],
        ..SamplerProperties::default()
    };
    let sampler = ClSampler::with_properties(&bench.backend, &known).unwrap();
    assert_eq!(sampler.filter().unwrap(), Filter::Linear);
}

#[test]
fn mipmaps_are_for_devices_that_have_them() {
    let bench = Bench::new();
    let sampler = ClSampler::with_properties(
        &bench.backend,
        &SamplerProperties {
            mip_filter: Some(Filter::Linear),
            least_detail: Some(0.0),
            largest_detail: Some(4.0),
            ..SamplerProperties::default()
        },
    );
    let device = opencl3::device::Device::new(bench.backend.raw_device());
    if device.extensions().unwrap().contains("cl_khr_mipmap_image") {
        sampler.unwrap();
        return;
    }
    let error = sampler.unwrap_err();
    assert!(
        matches!(&error, OpenClError::Device(Error::Unsupported { what }) if what.contains("mipmaps")),
        "{error}"
    );
}

#[test]
#[allow(unsafe_code)]
fn samplers_with_the_same_handle_are_equal() {
    let bench = Bench::new();
    let make = || ClSampler::new(&bench.backend, true, Addressing::Repeat, Filter::Linear).unwrap();
    let (sampler, other) = (make(), make());
    // SAFETY: The sampler lives.
    let again = unsafe { ClSampler::from_raw(&bench.backend, sampler.raw(), true) }.unwrap();
    assert_eq!(again, sampler);
    assert_ne!(other, sampler);
    assert_eq!(
        HashSet::from([sampler.clone(), again.clone(), other]).len(),
        2
    );
    drop(sampler);
    assert_eq!(again.filter().unwrap(), Filter::Linear);

    // A reference of the program's own, which is handed over.
    let raw = again.raw();
    // SAFETY: The sampler lives.
    unsafe { cl3::sampler::retain_sampler(raw) }.unwrap();
    drop(again);
    // SAFETY: The sampler lives, and its last reference is given.
    let owned = unsafe { ClSampler::from_raw(&bench.backend, raw, false) }.unwrap();
    assert_eq!(owned.addressing().unwrap(), Addressing::Repeat);

    let stranger = Bench::new();
    // SAFETY: The sampler lives.
    let error = unsafe { ClSampler::from_raw(&stranger.backend, raw, true) }.unwrap_err();
    assert!(
        matches!(
            error,
            OpenClError::Device(Error::InvalidRequest(InvalidRequest::ForeignObject { .. }))
        ),
        "{error}"
    );
    // SAFETY: The handle is null.
    let error = unsafe { ClSampler::from_raw(&bench.backend, std::ptr::null_mut(), true) };
    assert!(matches!(
        error.unwrap_err(),
        OpenClError::Device(Error::Backend(_))
    ));
}
