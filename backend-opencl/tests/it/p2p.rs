//! Copies from device to device.

use binpool_allocators::{Error, InvalidRequest, Queue, Region, SvmBackend, SvmGrain};
use binpool_conformance::part_of;
use binpool_opencl::{OpenClBackend, SvmPointer};

use crate::common::{Bench, numbered, refusal};

/// Whether the extension can copy from this device to another one.
fn has_p2p(backend: &OpenClBackend) -> bool {
    backend.characterize().unwrap().p2p_copies
}

fn unsupported(error: &Error) -> &str {
    match error {
        Error::Unsupported { what } => what,
        error => panic!("not unsupported: {error}"),
    }
}

#[test]
fn buffers_are_copied_between_contexts_or_the_error_says_what_to_do() {
    let (here, there) = (Bench::new(), Bench::new());
    let source = here.buffer(100);
    here.write(&source, &numbered(100));
    let destination = there.filled(60, 0);
    let copied = here
        .backend
        .copy_p2p_amd(&here.queue, &source, &destination, None);
    if has_p2p(&here.backend) {
        copied.unwrap();
        assert_eq!(there.read(&destination), numbered(60));
        let part = part_of(&source, Region::new(7, 50));
        let copied = here
            .backend
            .copy_p2p_amd(&here.queue, &part, &destination, None);
        copied.unwrap();
        assert_eq!(there.read(&destination)[..50], numbered(57)[7..]);
        return;
    }
    let error = copied.unwrap_err();
    let what = unsupported(&error);
    let name = &binpool_allocators::Backend::limits(&here.backend).device_name;
    assert!(
        what.contains(name) && what.contains("cl_amd_copy_buffer_p2p"),
        "{what}"
    );
    assert!(what.contains("read the bytes to the host"), "{what}");
    // Neither side is mapped or lost by the refusal.
    assert_eq!(here.read(&source), numbered(100));
    there.write(&destination, &[1; 60]);
    assert_eq!(there.read(&destination), [1; 60]);
}

#[test]
fn what_is_wrong_with_the_call_is_said_first() {
    let (here, there) = (Bench::new(), Bench::new());
    let (source, destination) = (here.filled(100, 1), there.filled(60, 0));
    let copy = |queue, bytes| {
        here.backend
            .copy_p2p_amd(queue, &source, &destination, bytes)
    };
    assert_eq!(
        refusal(copy(&here.queue, Some(61))),
        InvalidRequest::OutOfBounds {
            offset: 0,
            bytes: 61,
            size: 60
        }
    );
    assert_eq!(
        refusal(copy(&here.queue, Some(0))),
        InvalidRequest::ZeroSize
    );
    let foreign = refusal(copy(&there.queue, None));
    assert!(matches!(foreign, InvalidRequest::ForeignObject { .. }));
    let foreign = here
        .backend
        .copy_p2p_amd(&here.queue, &destination, &destination, None);
    assert!(matches!(
        refusal(foreign),
        InvalidRequest::ForeignObject { .. }
    ));
    let gate = there.gate();
    let foreign = here.backend.copy_p2p_amd(
        here.queue.after(std::slice::from_ref(&gate)),
        &source,
        &destination,
        None,
    );
    assert!(matches!(
        refusal(foreign),
        InvalidRequest::ForeignObject { .. }
    ));
}

#[test]
fn svm_is_passed_as_a_buffer() {
    let (here, there) = (Bench::new(), Bench::new());
    let block = here
        .backend
        .allocate_svm(64, None, SvmGrain::Coarse, None)
        .unwrap();
    let destination = there.filled(64, 0);
    let copied = here
        .backend
        .copy_p2p_amd(&here.queue, &block, &destination, None);
    assert!(unsupported(&copied.unwrap_err()).contains("as_buffer"));
    let buffer = block.as_buffer(binpool_allocators::MemoryFlags::empty(), None);
    let copied = here
        .backend
        .copy_p2p_amd(&here.queue, &buffer.unwrap(), &destination, None);
    if !has_p2p(&here.backend) {
        assert!(unsupported(&copied.unwrap_err()).contains("cl_amd_copy_buffer_p2p"));
    }
}

#[test]
fn one_context_has_copies_of_its_own() {
    let bench = Bench::new();
    let (source, destination) = (bench.filled(10, 1), bench.filled(10, 0));
    let copied = bench
        .backend
        .copy_p2p_amd(&bench.queue, &source, &destination, None);
    let error = copied.unwrap_err();
    let advice = if has_p2p(&bench.backend) {
        "use `enqueue_copy`"
    } else {
        "cl_amd_copy_buffer_p2p"
    };
    assert!(unsupported(&error).contains(advice), "{error}");
}
