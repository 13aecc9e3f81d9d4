//! What is checked with arrays on a CUDA device or its stand-in, and on a Vulkan device.

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

macro_rules! device {
    ($module:ident, $open:ident, $check:ident) => {
        mod $module {
            use super::*;

            #[test]
            fn arrays_compute_what_the_host_computes() {
                let (backend, kernels) = common::$open();
                let allocator = ImmediateAllocator::new(&backend).unwrap();
                for context in contexts(allocator, PoolOptions::new(), &kernels) {
                    arithmetic::check(&context);
                }
            }

            #[test]
            fn arrays_of_several_queues() {
                let (backend, kernels) = common::$open();
                for policy in ReusePolicy::ALL {
                    arithmetic::check_queues(&backend, &kernels, policy);
                }
            }

            #[test]
            fn any_part_of_an_array_is_read_and_written() {
                AnyPart.$check();
                TransfersOfParts.$check();
                WritesOfParts.$check();
            }

            #[test]
            fn elements_are_mapped() {
                Maps.$check();
                EmptyMaps.$check();
            }

            #[test]
            fn any_number_of_elements_is_reduced() {
                AnyLength.$check();
                Nothing.$check();
                Specials.$check();
                RoundedSums.$check();
            }

            #[test]
            fn sums_of_many_elements_do_not_stall() {
                ManyOnes.$check();
            }

            #[test]
            fn any_program() {
                programs(&common::$open());
            }

            #[test]
            fn threads() {
                let (backend, kernels) = common::$open();
                let allocator = || ImmediateAllocator::new(&backend).unwrap();
                let threads = setting("BINPOOL_STRESS_THREADS", 4);
                stress(allocator, &kernels, threads, stringify!($module));
                assert!(!backend.is_lost());
            }
        }
    };
}

device!(cuda, open_cuda, on_cuda);
device!(vulkan, open_vulkan, on_vulkan);

#[test]
fn without_a_cuda_driver_the_error_says_what_to_install() {
    if let Err(error) = binpool_array::open_cuda(0) {
        let text = error.to_string();
        assert!(text.contains("install NVIDIA's driver"), "{text}");
    }
}
