//! What is checked with arrays, on a CUDA device or its stand-in.

use binpool::{ImmediateAllocator, PoolOptions, ReusePolicy};
use binpool_array::open_cuda;

use crate::{
    arithmetic,
    common::{self, Check, contexts},
    maps::{EmptyMaps, Maps},
    programs::programs,
    reductions::{AnyLength, ManyOnes, Nothing, RoundedSums, Specials},
    slices::{AnyPart, TransfersOfParts, WritesOfParts},
    stress::{setting, stress},
};

#[test]
fn arrays_compute_what_the_host_computes() {
    let (backend, kernels) = common::open_cuda();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    for context in contexts(allocator, PoolOptions::new(), &kernels) {
        arithmetic::check(&context);
    }
}

#[test]
fn arrays_of_several_queues() {
    let (backend, kernels) = common::open_cuda();
    for policy in ReusePolicy::ALL {
        arithmetic::check_queues(&backend, &kernels, policy);
    }
}

#[test]
fn any_part_of_an_array_is_read_and_written() {
    AnyPart.on_cuda();
    TransfersOfParts.on_cuda();
    WritesOfParts.on_cuda();
}

#[test]
fn elements_are_mapped() {
    Maps.on_cuda();
    EmptyMaps.on_cuda();
}

#[test]
fn any_number_of_elements_is_reduced() {
    AnyLength.on_cuda();
    Nothing.on_cuda();
    Specials.on_cuda();
    RoundedSums.on_cuda();
}

#[test]
fn sums_of_many_elements_do_not_stall() {
    ManyOnes.on_cuda();
}

#[test]
fn any_program() {
    programs(&common::open_cuda());
}

#[test]
fn threads() {
    let (backend, kernels) = common::open_cuda();
    let allocator = || ImmediateAllocator::new(&backend).unwrap();
    let threads = setting("BINPOOL_STRESS_THREADS", 4);
    stress(allocator, &kernels, threads, "CUDA");
    assert!(!backend.is_lost());
}

#[test]
fn without_a_driver_the_error_says_what_to_install() {
    if let Err(error) = open_cuda(0) {
        let text = error.to_string();
        assert!(text.contains("install NVIDIA's driver"), "{text}");
    }
}
