//! Pipes, where the device has them.

use std::collections::HashSet;

use binpool_allocators::{Backend, InvalidRequest};
use binpool_opencl::ClPipe;

use crate::common::{Bench, Error, refusal};

fn has_pipes(bench: &Bench) -> bool {
    let device = opencl3::device::Device::new(bench.backend.raw_device());
    let version = device.version().unwrap();
    version.starts_with("OpenCL 2.")
        || (!version.starts_with("OpenCL 1.") && device.pipe_support().unwrap_or(false))
}

#[test]
#[allow(unsafe_code)]
fn a_pipe_tells_what_it_was_made_of_and_a_device_without_pipes_says_so() {
    let bench = Bench::new();
    let pipe = ClPipe::new(&bench.backend, 16, 100);
    if !has_pipes(&bench) {
        let error = pipe.unwrap_err();
        let Error::Unsupported { what } = error else {
            panic!("another error: {error}");
        };
        assert!(what.contains(&bench.backend.limits().device_name), "{what}");
        return;
    }
    let pipe = pipe.unwrap();
    assert_eq!(pipe.packet_bytes().unwrap(), 16);
    assert_eq!(pipe.max_packets().unwrap(), 100);
    for (packet, count) in [(0, 1), (1, 0)] {
        let refused = ClPipe::new(&bench.backend, packet, count);
        assert_eq!(refusal(refused), InvalidRequest::ZeroSize);
    }
    let refused = refusal(ClPipe::new(&bench.backend, u32::MAX, 1));
    assert!(matches!(refused, InvalidRequest::TooLarge { .. }));

    // SAFETY: The pipe lives.
    let again = unsafe { ClPipe::from_raw(&bench.backend, pipe.raw(), true) }.unwrap();
    assert_eq!(again, pipe);
    assert_eq!(HashSet::from([pipe.clone(), again.clone()]).len(), 1);
    drop(pipe);
    assert_eq!(again.max_packets().unwrap(), 100);
}

#[test]
#[allow(unsafe_code)]
fn what_is_no_pipe_of_this_context_is_not_taken_for_one() {
    let bench = Bench::new();
    let buffer = bench.buffer(64);
    let raw = buffer.raw().unwrap();
    // SAFETY: The buffer lives.
    let pipe = unsafe { ClPipe::from_raw(&bench.backend, raw, true) };
    assert!(matches!(pipe.unwrap_err(), Error::Backend(_)));
    // SAFETY: The buffer lives.
    let pipe = unsafe { ClPipe::from_raw(&Bench::new().backend, raw, true) };
    assert!(matches!(
        refusal(pipe),
        InvalidRequest::ForeignObject { .. }
    ));
    // SAFETY: The handle is null.
    let pipe = unsafe { ClPipe::from_raw(&bench.backend, std::ptr::null_mut(), false) };
    assert!(matches!(pipe.unwrap_err(), Error::Backend(_)));
}
