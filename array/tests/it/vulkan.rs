//! What is checked with arrays, on a Vulkan device.

use binpool::{ImmediateAllocator, PoolOptions, ReusePolicy};

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
    let (backend, kernels) = common::open_vulkan();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    for context in contexts(allocator, PoolOptions::new(), &kernels) {
        arithmetic::check(&context);
    }
}

#[test]
fn arrays_of_several_queues() {
    let (backend, kernels) = common::open_vulkan();
    for policy in ReusePolicy::ALL {
        arithmetic::check_queues(&backend, &kernels, policy);
    }
}

#[test]
fn any_part_of_an_array_is_read_and_written() {
    AnyPart.on_vulkan();
    TransfersOfParts.on_vulkan();
    WritesOfParts.on_vulkan();
}

#[test]
fn elements_are_mapped() {
    Maps.on_vulkan();
    EmptyMaps.on_vulkan();
}

#[test]
fn any_number_of_elements_is_reduced() {
    AnyLength.on_vulkan();
    Nothing.on_vulkan();
    Specials.on_vulkan();
    RoundedSums.on_vulkan();
}

#[test]
fn sums_of_many_elements_do_not_stall() {
    ManyOnes.on_vulkan();
}

#[test]
fn any_program() {
    programs(&common::open_vulkan());
}

#[test]
fn threads() {
    let (backend, kernels) = common::open_vulkan();
    let allocator = || ImmediateAllocator::new(&backend).unwrap();
    let threads = setting("BINPOOL_STRESS_THREADS", 4);
    stress(allocator, &kernels, threads, "Vulkan");
    assert!(!backend.is_lost());
}
