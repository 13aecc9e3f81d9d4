//! What can be wrong with a backend.

macro_rules! defects {
    ($($defect:ident => $check:ident,)*) => {
        /// What is wrong with a backend.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Defect {
            None,
            $($defect,)*
        }

        impl Defect {
            /// Each defect, and the check that is to notice it.
            pub(crate) const ALL: &[(Self, &str)] = &[$((Self::$defect, stringify!($check)),)*];
        }
    };
}

defects! {
    // Buffers and commits.
    LimitsAreZero => limits_make_sense,
    SizesAreRoundedUp => a_buffer_has_the_size_that_was_asked_for,
    MemoryIdsAreUsedAgain => every_buffer_has_an_identity_of_its_own,
    NoBytesAreOneByte => a_buffer_of_no_bytes_is_refused,
    TooLargeIsOutOfMemory => a_buffer_larger_than_the_largest_is_refused,
    TheLargestIsTooLarge => a_buffer_of_the_largest_size_is_no_invalid_request,
    FlagsAreNotChecked => contradictory_flags_are_refused,
    KernelFlagsKeepTheHostOut => flags_leave_the_permitted_transfers,
    HostFlagsAreDropped => forbidden_transfers_of_the_host_are_refused,
    CommitIsRefused => a_committed_buffer_can_be_used,
    CommitMayNotBeRepeated => a_commit_may_be_repeated,
    RegionsCannotBeCommitted => a_region_can_be_committed,
    // Regions.
    RegionsAreCopies => a_region_is_a_window_into_its_block,
    RegionsOfRegionsStartAtTheBlock => a_region_of_a_region_is_a_window_into_the_block,
    RegionsAreClipped => a_region_must_lie_within_its_block,
    RegionsAreAlignedForTheCaller => a_region_must_be_aligned_and_the_error_says_how,
    ScribblesOnRelease => a_region_outlives_the_release_of_its_block,
    ViewsAreNotCounted => a_block_has_views_until_the_last_region_of_it_is_gone,
    ViewsCountForEver => svm_has_views_until_the_last_region_of_it_is_gone,
    // Transfers.
    WritesAreLost => what_is_written_is_read,
    WritesIgnoreTheirOffset => transfers_keep_to_their_part,
    ReadsAreZeros => transfers_with_events_move_the_same_bytes,
    ReadsAreLate => a_read_shows_the_moment_of_its_turn,
    FillsRepeatOneByte => a_fill_repeats_patterns_of_every_length,
    FillsIgnoreTheirOffset => transfers_keep_to_their_part,
    FillsIgnoreTheirLength => transfers_keep_to_their_part_of_svm,
    PatternsAreNotChecked => a_bad_pattern_is_refused,
    CopiesAreOneByteShort => transfers_keep_to_their_part,
    CopiesIgnoreTheirTarget => a_copy_within_a_block_moves_what_does_not_overlap,
    CopiesMayOverlap => an_overlapping_copy_is_refused,
    OffsetsAloneOverlap => a_copy_to_the_same_place_of_another_block_is_no_overlap,
    BoundsAreClipped => transfers_out_of_bounds_are_refused_and_do_nothing,
    LengthsAreNotChecked => transfers_of_impossible_lengths_are_refused,
    NoBytesAreRefused => transfers_of_no_bytes_do_nothing,
    // Order.
    InOrderQueuesAreOutOfOrder => an_in_order_queue_keeps_its_order,
    OutOfOrderQueuesAreInOrder => a_queue_knows_its_order,
    WaitListsAreIgnored => a_gated_command_waits_for_its_gate,
    OneEventOfAWaitListCounts => a_command_waits_for_all_of_its_wait_list,
    KernelsIgnoreTheirWaitList => a_kernel_waits_for_its_wait_list,
    BlockingIgnoresItsWaitList => blocking_transfers_heed_their_wait_list,
    NoBytesAreDoneAtOnce => every_kind_of_command_waits_for_its_wait_list,
    MarkersWaitForNothing => a_marker_waits_for_everything_before,
    BarriersAreMarkers => a_barrier_holds_back_what_comes_after,
    BarriersWithWaitListsAreMarkers => a_barrier_waits_for_its_wait_list,
    // Failures.
    UserEventsComplete => a_failed_gate_fails_what_waits_for_it,
    FailuresAreSwallowed => a_command_that_waits_for_what_has_failed_fails,
    FailuresAreOutOfMemory => a_failure_passes_on_along_wait_lists,
    FailuresStopTheQueue => a_queue_finishes_though_commands_failed,
    FailuresStopTheBackend => other_commands_are_none_the_worse_for_a_failure,
    FailuresAreEarly => a_command_fails_in_its_turn_where_the_order_is_kept,
    PlacesAreLost => an_in_order_queue_keeps_its_order_behind_a_failure,
    // Events and queues.
    EventsAreCompleteAlways => a_user_event_is_pending_until_it_is_resolved,
    EventsArePendingAlways => asking_for_the_status_comes_to_an_end,
    EventsAreAllEqual => clones_of_an_event_are_equal_and_others_are_not,
    EventIdsAreUsedAgain => identities_of_events_are_not_used_again,
    UserEventsAreResolvedTwice => a_user_event_is_resolved_once,
    AnyEventIsAUserEvent => only_user_events_can_be_resolved,
    QueuesAreAllEqual => clones_of_a_queue_are_equal_and_others_are_not,
    QueueIdsAreUsedAgain => identities_of_queues_are_not_used_again,
    ClonesOfQueuesAreOtherQueues => clones_of_a_queue_keep_one_order,
    FinishDoesNotWait => a_finished_queue_has_nothing_pending,
    FlushFails => an_idle_queue_finishes_and_flushes,
    // Lifetimes.
    ScribblesOnDrop => memory_may_be_dropped_while_a_command_uses_it,
    DroppedReadsScribble => a_pending_read_may_be_dropped_early,
    ReadsAreRefused => a_pending_read_may_be_forgotten,
    WritesBorrowTheirData => written_data_is_kept_until_it_is_written,
    WritesKeepTheirData => written_data_is_given_back,
    DroppedQueuesPanic => queues_and_events_may_be_dropped_early,
    // Foreign objects.
    ForeignQueuesAreAccepted => a_foreign_queue_is_refused,
    ForeignMemoryIsAccepted => foreign_memory_is_refused,
    ForeignEventsAreAccepted => a_foreign_event_is_refused,
    // Shortage.
    CommitSucceedsAlways => an_immediate_allocator_tells_of_shortage_and_leaks_nothing,
    FailedCommitsLoseTheBlock => a_failed_commit_leaves_the_block_to_be_committed_later,
    ShortageIsAFailure => a_command_without_room_for_its_memory_says_so,
    ShortageHasNoSource => memory_that_a_command_uses_is_not_free,
    ShortageIsHidden => a_deferred_allocator_tells_of_shortage_in_the_end,
    ReleaseLeaks => freed_memory_can_be_had_again,
    TheLastEventOfAReleaseCounts => memory_is_not_free_before_the_events_of_its_release,
    TheFirstEventOfAReleaseCounts => svm_is_not_freed_before_the_events_of_its_release,
    ReleaseIgnoresItsEvents => memory_is_not_free_before_the_events_of_its_release,
    // Threads.
    EventsAreWaitedForOnce => threads_wait_for_one_event,
    OneThreadOnly => threads_share_a_backend,
    // Shared virtual memory.
    GrainsAreNotLookedAt => a_grain_that_is_not_there_is_unsupported,
    SvmIsUnaligned => a_block_has_an_aligned_address,
    SvmAlignmentIsClipped => an_alignment_that_is_too_large_is_refused,
    SvmFlagsAreDropped => flags_of_svm_are_those_of_kernels,
    BuffersHaveAddresses => a_buffer_has_no_address,
    SvmTakesAnyQueue => an_out_of_order_queue_is_refused,
    SvmRegionsStartAtTheirBlock => a_region_of_svm_lies_at_its_offset,
    SvmIsFreedAtOnce => svm_may_be_dropped_while_a_command_uses_it,
    SvmIgnoresItsQueue => svm_bound_to_a_queue_is_freed_behind_it,
    BindingsAreForgotten => a_block_is_bound_to_one_queue_at_a_time,
    RegionsAreNotBound => a_region_is_bound_where_its_block_is,
    BindingOrdersNothing => binding_puts_the_new_queue_behind_the_old_one,
    OnlyTheFirstQueueCounts => a_bound_block_is_freed_behind_its_last_queue,
    SvmIsBoundToAnyQueue => what_cannot_be_bound_is_refused,
    ReleasesNeedNoQueue => a_release_without_a_queue_is_on_the_bound_one,
    SvmAddressesAreRounded => live_blocks_of_svm_do_not_overlap,
    // Virtual memory.
    PagesLoseTheirContents => pages_keep_their_contents_wherever_they_are_mapped,
    PagesAreBuffers => reservations_and_pages_are_whole_pages,
    MapsMayOverlap => a_map_over_other_pages_is_refused,
    PlacesOfPagesAreRounded => a_map_off_a_page_or_beyond_the_end_is_refused,
    SecondMapsAreLost => pages_at_two_addresses_are_the_same_bytes,
    RefusedMapsAreMade => pages_at_two_addresses_are_the_same_bytes,
    SecondMapsAreCopies => pages_move_while_a_command_uses_them,
    UnmapsAreClipped => an_unmap_that_cuts_pages_or_finds_none_is_refused,
    UnmapsIgnoreCommands => pages_that_a_command_uses_are_not_unmapped,
    PagesCanBeCommitted => pages_have_no_addresses_of_their_own,
    BuffersAreMapped => only_pages_are_mapped_and_only_to_reservations,
    ReservationsAreUnmappedAtOnce => a_reservation_may_be_dropped_while_a_command_uses_it,
}
