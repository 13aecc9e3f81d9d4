//! A suite that checks a backend or an allocator against every promise of the traits.
//!
//! A backend provides a [`Fixture`] that makes it, and gets a test for each promise:
//!
//! ```
//! use binpool_conformance::Fixture;
//! use binpool_mock::{MockBackend, MockDevice};
//!
//! struct Mock;
//!
//! impl Fixture for Mock {
//!     type Backend = MockBackend;
//!
//!     fn backend(&self) -> MockBackend {
//!         MockDevice::builder().capacity_bytes(1 << 24).virtual_memory(true).build().backend()
//!     }
//!
//!     fn enforced_capacity(&self) -> Option<u64> {
//!         Some(1 << 24)
//!     }
//! }
//!
//! mod backend {
//!     binpool_conformance::backend_conformance!(super::Mock);
//!     // Where the backend has user events, and where they can fail:
//!     binpool_conformance::pending_conformance!(super::Mock);
//!     binpool_conformance::failure_conformance!(super::Mock);
//!     // Where it puts conflicting commands in order, as the mock does not: `hazard_conformance`.
//!     // Where it has shared virtual memory:
//!     binpool_conformance::svm_conformance!(super::Mock);
//!     // Where it has virtual memory:
//!     binpool_conformance::virtual_memory_conformance!(super::Mock);
//! }
//! # use binpool_conformance::{backend_checks, run_all};
//! # assert!(run_all(&backend_checks(), &Mock).passed());
//! ```
//!
//! [`backend_checks`], [`pending_checks`], [`failure_checks`], [`hazard_checks`], [`svm_checks`], [`virtual_memory_checks`] and [`allocator_checks`]
//! return the same checks as values, and [`run_all`] runs them in a program without a test runner. A check panics if the promise is broken, and says
//! which one. A pool needs no user events: a runtime whose host cannot resolve an event is checked without them.
//!
//! [`sweep`] runs each of them repeatedly, and makes each call of the backend fail once.
//!
//! [`Failing`] makes calls of any allocator fail, for tests of a program.
//!
//! The checks never assume that a command has ended without waiting for it, and never wait for commands that
//! they have gated themselves, so they suit runtimes with threads of their own as well as simulated ones. Where the device
//! lacks a feature, a check tests for the error that the traits promise.

#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a check fails by panicking"
)]

#[doc(hidden)]
pub mod checks;
pub mod sweep;

mod allocator_fault;
mod bench;
mod failing;
mod fixture;
mod parts;
mod random;
mod report;
mod told_once;

use binpool_allocators::{SvmBackend, VirtualMemory};

pub use allocator_fault::{AllocatorCall, AllocatorFault, FaultTrigger};
pub use failing::Failing;
pub use fixture::{AllocatorFixture, Check, Fixture};
pub use parts::{part_of, transfers_keep_to};
pub use random::Random;
pub use report::{Failure, Report, run_all};
pub use told_once::told_once;

/// Defines a list of checks, and a macro that expands to a test for each of them.
macro_rules! suite {
    (
        $dollar:tt
        $(#[$list_doc:meta])*
        fn $list:ident<$fixture:ident: $bound:path>;
        $(#[$macro_doc:meta])*
        macro $name:ident;
        $($module:ident::$check:ident,)*
    ) => {
        $(#[$list_doc])*
        #[must_use]
        pub fn $list<$fixture: $bound>() -> Vec<Check<$fixture>> {
            vec![$(Check { name: stringify!($check), run: checks::$module::$check::<$fixture> },)*]
        }

        $(#[$macro_doc])*
        #[macro_export]
        macro_rules! $name {
            ($dollar fixture:expr) => {
                $(
                    #[test]
                    fn $check() {
                        $crate::checks::$module::$check(&$dollar fixture);
                    }
                )*
            };
        }
    };
}

suite! {
    $
    /// The promises of [`Backend`](binpool_allocators::Backend) that can be checked without user events.
    fn backend_checks<F: Fixture>;
    /// Expands to a `#[test]` for each promise of `Backend` that can be checked without user events, given a `Fixture`.
    macro backend_conformance;
    buffers::limits_make_sense,
    buffers::a_buffer_has_the_size_that_was_asked_for,
    buffers::every_buffer_has_an_identity_of_its_own,
    buffers::a_buffer_of_no_bytes_is_refused,
    buffers::a_buffer_larger_than_the_largest_is_refused,
    buffers::a_buffer_of_the_largest_size_is_no_invalid_request,
    buffers::contradictory_flags_are_refused,
    buffers::flags_leave_the_permitted_transfers,
    buffers::forbidden_transfers_of_the_host_are_refused,
    commits::a_committed_buffer_can_be_used,
    commits::a_commit_may_be_repeated,
    commits::a_region_can_be_committed,
    regions::a_region_is_a_window_into_its_block,
    regions::a_region_of_a_region_is_a_window_into_the_block,
    regions::a_region_must_lie_within_its_block,
    regions::a_region_must_be_aligned_and_the_error_says_how,
    regions::a_region_of_no_bytes_is_refused,
    regions::a_region_keeps_its_block_alive,
    regions::a_region_outlives_the_release_of_its_block,
    regions::a_block_has_views_until_the_last_region_of_it_is_gone,
    regions::a_region_of_a_region_is_aligned_within_the_whole_block,
    regions::bytes_move_between_regions_of_one_block,
    regions::transfers_keep_to_their_part,
    transfers::what_is_written_is_read,
    transfers::transfers_with_events_move_the_same_bytes,
    transfers::a_fill_repeats_patterns_of_every_length,
    transfers::a_bad_pattern_is_refused,
    transfers::a_copy_within_a_block_moves_what_does_not_overlap,
    transfers::an_overlapping_copy_is_refused,
    transfers::transfers_out_of_bounds_are_refused_and_do_nothing,
    transfers::transfers_of_no_bytes_do_nothing,
    transfers::transfers_of_impossible_lengths_are_refused,
    transfers::a_read_shows_the_moment_of_its_turn,
    transfers::a_copy_to_the_same_place_of_another_block_is_no_overlap,
    ordering::blocking_transfers_heed_their_wait_list,
    events::an_event_completes,
    events::clones_of_an_event_are_equal_and_others_are_not,
    events::identities_of_events_are_not_used_again,
    events::only_user_events_can_be_resolved,
    events::asking_for_the_status_comes_to_an_end,
    queues::clones_of_a_queue_are_equal_and_others_are_not,
    queues::clones_of_a_queue_keep_one_order,
    queues::identities_of_queues_are_not_used_again,
    queues::a_queue_knows_its_order,
    queues::an_idle_queue_finishes_and_flushes,
    queues::a_finished_queue_has_nothing_pending,
    lifetimes::written_data_is_given_back,
    foreign::a_foreign_queue_is_refused,
    foreign::foreign_memory_is_refused,
    foreign::a_foreign_event_is_refused,
    foreign::a_foreign_event_among_others_is_refused,
    foreign::a_release_with_a_foreign_object_is_an_error,
    shortage::an_immediate_allocator_tells_of_shortage_and_leaks_nothing,
    shortage::a_failed_commit_leaves_the_block_to_be_committed_later,
    shortage::a_deferred_allocator_tells_of_shortage_in_the_end,
    shortage::freed_memory_can_be_had_again,
    shortage::a_command_without_room_for_its_memory_says_so,
    shortage::a_region_holds_the_room_of_its_block,
    shortage::a_block_is_committed_once,
    threads::threads_share_a_backend,
    threads::threads_share_a_queue,
    threads::threads_commit_on_one_queue,
    threads::threads_wait_for_one_event,
    threads::a_block_may_be_released_by_another_thread,
}

suite! {
    $
    /// The promises about commands that have not ended. The checks hold commands back with user events, which the backend has to
    /// have ([`Backend::create_user_event`](binpool_allocators::Backend::create_user_event)); none of them fails one.
    fn pending_checks<F: Fixture>;
    /// Expands to a `#[test]` for each promise about commands that have not ended, given a `Fixture` of a backend with user
    /// events.
    macro pending_conformance;
    ordering::an_in_order_queue_keeps_its_order,
    ordering::a_gated_command_waits_for_its_gate,
    ordering::a_gate_orders_commands_of_two_queues,
    ordering::a_wait_list_orders_commands_of_an_out_of_order_queue,
    ordering::a_barrier_holds_back_what_comes_after,
    ordering::a_marker_waits_for_everything_before,
    ordering::a_marker_waits_for_its_wait_list,
    ordering::every_kind_of_command_waits_for_its_wait_list,
    ordering::a_command_waits_for_all_of_its_wait_list,
    ordering::an_in_order_queue_holds_everything_behind_a_gate,
    ordering::a_barrier_waits_for_its_wait_list,
    ordering::a_barrier_comes_after_the_one_before,
    ordering::a_chain_of_wait_lists_is_followed_in_order,
    foreign::a_foreign_user_event_is_not_resolved,
    events::identities_of_user_events_are_not_used_again,
    events::a_user_event_is_pending_until_it_is_resolved,
    events::a_user_event_is_resolved_once,
    events::a_user_event_that_is_dropped_holds_nothing_back,
    transfers::a_read_that_has_not_ended_gives_no_bytes,
    lifetimes::memory_may_be_dropped_while_a_command_uses_it,
    lifetimes::memory_is_released_after_its_events,
    lifetimes::a_region_may_be_dropped_while_a_command_uses_it,
    lifetimes::a_pending_read_may_be_dropped_early,
    lifetimes::a_pending_read_may_be_forgotten,
    lifetimes::written_data_is_kept_until_it_is_written,
    lifetimes::queues_and_events_may_be_dropped_early,
    kernels::a_kernel_waits_for_its_wait_list,
    kernels::memory_may_be_dropped_while_a_kernel_uses_it,
    shortage::memory_that_a_command_uses_is_not_free,
    shortage::memory_is_not_free_before_the_events_of_its_release,
}

suite! {
    $
    /// The promises about commands that fail. The checks have commands wait for user events that fail, which the backend has to
    /// have.
    fn failure_checks<F: Fixture>;
    /// Expands to a `#[test]` for each promise about commands that fail, given a `Fixture` of a backend whose user events can
    /// fail.
    macro failure_conformance;
    failures::a_failed_gate_fails_what_waits_for_it,
    failures::a_failure_passes_on_along_wait_lists,
    failures::a_command_that_waits_for_what_has_failed_fails,
    failures::blocking_transfers_fail_with_what_they_wait_for,
    failures::a_command_over_no_bytes_fails_with_what_it_waits_for,
    failures::a_queue_finishes_though_commands_failed,
    failures::other_commands_are_none_the_worse_for_a_failure,
    failure_order::a_command_fails_in_its_turn_where_the_order_is_kept,
    failure_order::one_failed_event_of_a_wait_list_is_enough_to_fail,
    failure_order::an_in_order_queue_keeps_its_order_behind_a_failure,
    failure_order::what_was_enqueued_before_the_failure_does_not_complete_early,
    failure_order::a_barrier_behind_a_failure_holds_back_what_comes_after,
    failure_order::a_barrier_holds_back_for_all_of_its_wait_list_though_one_has_failed,
    failure_order::a_barrier_holds_back_for_what_its_failed_event_was_to_come_after,
    failure_order::a_marker_comes_after_what_a_failed_one_was_to_come_after,
    failure_order::finish_waits_for_all_whatever_failed,
}

suite! {
    $
    /// The promises of a backend that puts conflicting commands in order: OpenCL's, and those of a core that was told
    /// ([`Core::order_conflicts`](binpool_allocators::runtime::Core::order_conflicts)). They need user events.
    fn hazard_checks<F: Fixture>;
    /// Expands to a `#[test]` for each promise about conflicting commands, given a `Fixture` of a backend that puts them in order, and has user
    /// events.
    macro hazard_conformance;
    hazards::a_read_comes_after_a_write_on_another_queue,
    hazards::a_write_comes_after_reads_and_writes_on_other_queues,
    hazards::a_write_comes_after_all_of_many_reads,
    hazards::reads_of_two_queues_do_not_wait_for_each_other,
    hazards::commands_on_other_bytes_of_a_buffer_do_not_wait,
    hazards::views_that_overlap_are_seen_to_be_the_same_bytes,
    hazards::commands_of_an_out_of_order_queue_come_one_after_another_too,
    hazards::threads_with_queues_of_their_own_share_a_buffer,
    kernels::commands_come_after_a_kernel_on_another_queue,
    kernels::a_kernel_comes_after_commands_on_other_queues,
}

suite! {
    $
    /// The promises of [`SvmBackend`]. Some checks need user events, and some that they can fail.
    fn svm_checks<F: Fixture<Backend: SvmBackend>>;
    /// Expands to a `#[test]` for each promise of `SvmBackend`, given a `Fixture`.
    macro svm_conformance;
    svm::a_grain_that_is_not_there_is_unsupported,
    svm::a_block_has_an_aligned_address,
    svm::a_buffer_has_no_address,
    svm::an_alignment_that_is_too_large_is_refused,
    svm::sizes_are_checked,
    svm::flags_of_svm_are_those_of_kernels,
    svm::an_out_of_order_queue_is_refused,
    svm::bytes_move_between_svm_and_buffers,
    svm::a_region_of_svm_lies_at_its_offset,
    svm::transfers_keep_to_their_part_of_svm,
    svm::svm_out_of_bounds_is_refused,
    svm::svm_needs_no_commit,
    svm_lifetimes::svm_may_be_dropped_while_a_command_uses_it,
    svm_lifetimes::svm_bound_to_a_queue_is_freed_behind_it,
    svm_lifetimes::svm_of_several_queues_is_freed_behind_all,
    svm_lifetimes::svm_is_not_freed_before_the_events_of_its_release,
    svm_lifetimes::svm_is_not_freed_under_a_command_before_a_failure,
    svm_lifetimes::svm_bound_to_a_queue_is_freed_behind_it_though_a_command_failed,
    svm_lifetimes::a_region_of_svm_holds_its_block,
    svm_lifetimes::svm_has_views_until_the_last_region_of_it_is_gone,
    svm_lifetimes::live_blocks_of_svm_do_not_overlap,
    svm_binding::a_block_is_bound_to_one_queue_at_a_time,
    svm_binding::a_region_is_bound_where_its_block_is,
    svm_binding::binding_puts_the_new_queue_behind_the_old_one,
    svm_binding::a_bound_block_is_freed_behind_its_last_queue,
    svm_binding::what_cannot_be_bound_is_refused,
    svm_binding::unbinding_waits_for_the_queue,
    svm_binding::an_enqueued_release_waits_for_its_wait_list,
    svm_binding::a_release_without_a_queue_is_on_the_bound_one,
    svm::foreign_svm_is_refused,
    svm::svm_runs_out_with_an_error,
}

suite! {
    $
    /// The promises of [`VirtualMemory`]. Three checks need user events.
    fn virtual_memory_checks<F: Fixture<Backend: VirtualMemory>>;
    /// Expands to a `#[test]` for each promise of `VirtualMemory`, given a `Fixture`.
    macro virtual_memory_conformance;
    virtual_memory::pages_keep_their_contents_wherever_they_are_mapped,
    virtual_memory::reservations_and_pages_are_whole_pages,
    virtual_memory::impossible_sizes_of_pages_are_refused,
    virtual_memory::a_map_over_other_pages_is_refused,
    virtual_memory::a_map_off_a_page_or_beyond_the_end_is_refused,
    virtual_memory::pages_at_two_addresses_are_the_same_bytes,
    virtual_memory::pages_move_while_a_command_uses_them,
    virtual_memory::an_unmap_that_cuts_pages_or_finds_none_is_refused,
    virtual_memory::pages_have_no_addresses_of_their_own,
    virtual_memory::only_pages_are_mapped_and_only_to_reservations,
    virtual_memory::pages_outlive_their_reservation,
    virtual_memory::mapped_pages_may_be_dropped,
    virtual_memory::a_view_of_a_reservation_is_a_window_that_keeps_it,
    virtual_memory::foreign_pages_and_reservations_are_refused,
    virtual_memory::only_pages_take_of_the_device,
    virtual_memory::threads_share_a_reservation,
    virtual_memory::a_reservation_may_be_dropped_while_a_command_uses_it,
    virtual_memory::pages_that_a_command_uses_are_not_unmapped,
}

suite! {
    $
    /// The promises of [`Allocator`](binpool_allocators::Allocator).
    fn allocator_checks<F: AllocatorFixture>;
    /// Expands to a `#[test]` for each promise of `Allocator`, given an `AllocatorFixture`.
    macro allocator_conformance;
    allocation::blocks_are_large_enough,
    allocation::live_blocks_do_not_overlap,
    allocation::sizes_that_never_fit_are_refused,
    allocation::a_block_can_be_released_while_commands_use_it,
    allocation::a_boxed_allocator_is_the_same_allocator,
    allocation::threads_share_an_allocator,
    allocation::shortage_shows_when_the_allocator_says,
    allocation::a_block_of_the_largest_size_is_no_invalid_request,
    allocation::parts_of_blocks_keep_to_themselves,
    allocation::a_view_of_a_released_block_keeps_its_bytes,
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
