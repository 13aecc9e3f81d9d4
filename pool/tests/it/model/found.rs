//! Programs that the model found, each under the rule that was broken.

use crate::model::{run, words::*};

/// What most of them have.
const USUAL: Setting = Setting {
    source: Immediate,
    segments: false,
    reuse: SameQueue,
    threshold: None,
    completion: AtOnce,
    failures: Failures {
        order: Kept,
        spread: false,
    },
    watched: false,
};

#[test]
fn a_block_that_cannot_be_waited_for_stays_what_it_was() {
    let setting = Setting {
        reuse: WaitOnHost,
        ..USUAL
    };
    let operations = [
        Gate,
        Allocate(Bytes(513), Queue(0), Thread(0)),
        Write(Block(0), Queue(0), Written),
        Drop(Block(0), Thread(0)),
        Allocate(Bytes(513), Queue(1), Thread(0)),
        Count,
    ];
    run(setting, &operations);
}

#[test]
fn a_pool_that_holds_nothing_keeps_no_segment_where_a_view_fails() {
    let setting = Setting {
        source: Svm,
        segments: true,
        completion: Manual,
        ..USUAL
    };
    let operations = [
        StopHolding,
        Fail(CreateSubRegion, 1, Backend(-5)),
        Allocate(Bytes(1), Queue(0), Thread(0)),
    ];
    run(setting, &operations);
}

#[test]
fn a_block_whose_view_fails_is_in_no_peak() {
    let setting = Setting {
        segments: true,
        ..USUAL
    };
    let operations = [
        Fail(CreateSubRegion, 3, OutOfMemory),
        Allocate(Bytes(1), Queue(0), Thread(0)),
        Allocate(Bytes(1), Queue(0), Thread(0)),
        Allocate(Bytes(1), Queue(0), Thread(0)),
    ];
    run(setting, &operations);
}

#[test]
fn what_ended_before_a_command_that_never_ends_serves_a_request() {
    let setting = Setting {
        source: Svm,
        completion: Manual,
        ..USUAL
    };
    let operations = [
        StopHolding,
        Gate,
        Allocate(Bytes(19968), Queue(0), Thread(0)),
        Allocate(Bytes(19968), Queue(0), Thread(0)),
        Allocate(Bytes(19968), Queue(0), Thread(0)),
        Allocate(Bytes(1), Queue(0), Thread(0)),
        Drop(Block(0), Thread(0)),
        Write(Block(2), Queue(0), Ordered),
        Drop(Block(2), Thread(0)),
        Allocate(Bytes(19968), Queue(0), Thread(0)),
    ];
    run(setting, &operations);
}

#[test]
fn blocks_of_a_queue_that_was_let_go_of_are_nobodys() {
    let setting = USUAL;
    let operations = [
        Allocate(Bytes(16000), Queue(1), Thread(0)),
        Write(Block(0), Queue(3), Ordered),
        Drop(Block(0), Thread(0)),
        Retire(Queue(1)),
        Allocate(Bytes(1), Queue(2), Thread(0)),
        Allocate(Bytes(16000), Queue(1), Thread(0)),
    ];
    run(setting, &operations);
}

#[test]
fn memory_that_goes_back_while_would_fit_is_asked_counts_once() {
    let setting = Setting {
        source: Svm,
        failures: Failures {
            order: Lost,
            spread: false,
        },
        ..USUAL
    };
    let operations = [
        Gate,
        Allocate(Bytes(257), Queue(0), Thread(0)),
        Allocate(Bytes(1), Queue(0), Thread(0)),
        Write(Block(0), Queue(0), Ordered),
        Drop(Block(2), Thread(0)),
        FreeHeld,
        Allocate(Bytes(16000), Queue(0), Thread(0)),
        Allocate(Bytes(19500), Queue(0), Thread(0)),
        Allocate(Bytes(4096), Queue(0), Thread(0)),
        FailGate(0),
        WouldFit(Bytes(19967)),
    ];
    run(setting, &operations);
}

#[test]
fn a_block_that_could_not_be_released_serves_no_request_until_it_can() {
    let setting = Setting {
        source: Svm,
        ..USUAL
    };
    let operations = [
        Allocate(Bytes(1), Queue(0), Thread(0)),
        Fail(Marker, 1, OutOfMemory),
        Drop(Block(0), Thread(0)),
        Gate,
        Allocate(Bytes(1), Queue(1), Thread(0)),
        Write(Block(1), Queue(0), Behind),
        FreeHeld,
        Allocate(Bytes(256), Queue(0), Thread(0)),
    ];
    run(setting, &operations);
}

#[test]
fn free_memory_above_a_lowered_limit_makes_no_room() {
    let setting = USUAL;
    let operations = [
        Allocate(Bytes(4096), Queue(0), Thread(0)),
        Allocate(Bytes(1000), Queue(0), Thread(0)),
        Drop(Block(3), Thread(0)),
        Drop(Block(2), Thread(0)),
        Limit(Bytes(0)),
        WouldFit(Bytes(5000)),
    ];
    run(setting, &operations);
}

#[test]
fn a_block_that_waits_for_a_failed_command_serves_no_request_above_the_limit() {
    let setting = Setting {
        source: Svm,
        failures: Failures {
            order: Lost,
            spread: false,
        },
        ..USUAL
    };
    let operations = [
        Allocate(Bytes(4096), Queue(0), Thread(0)),
        StopHolding,
        Limit(Bytes(0)),
        Gate,
        Write(Block(3), Queue(0), Ordered),
        Drop(Block(0), Thread(0)),
        FailGate(0),
        Allocate(Bytes(4096), Queue(0), Thread(0)),
    ];
    run(setting, &operations);
}

#[test]
fn trimming_also_frees_what_waited_for_a_failed_command() {
    let setting = Setting {
        source: Svm,
        failures: Failures {
            order: Lost,
            spread: false,
        },
        ..USUAL
    };
    let operations = [
        Allocate(Bytes(256), Queue(0), Thread(0)),
        Gate,
        Drop(Block(0), Thread(0)),
        Allocate(Bytes(4096), Queue(0), Thread(0)),
        Write(Block(0), Queue(0), Ordered),
        FreeHeld,
        Allocate(Bytes(11777), Queue(0), Thread(0)),
        Allocate(Bytes(19500), Queue(0), Thread(0)),
        Drop(Block(0), Thread(0)),
        Drop(Block(0), Thread(0)),
        FailGate(0),
        Allocate(Bytes(4096), Queue(0), Thread(0)),
        Drop(Block(1), Thread(0)),
        TrimTo(Bytes(28160)),
    ];
    run(setting, &operations);
}

#[test]
fn what_waits_for_a_failed_command_does_not_count_in_a_trim() {
    let setting = Setting {
        source: Svm,
        segments: true,
        failures: Failures {
            order: Lost,
            spread: false,
        },
        ..USUAL
    };
    let operations = [
        Allocate(Bytes(4096), Queue(0), Thread(0)),
        Allocate(Bytes(8193), Queue(0), Thread(0)),
        Allocate(Bytes(11521), Queue(0), Thread(0)),
        Drop(Block(0), Thread(0)),
        Gate,
        Write(Block(0), Queue(0), Ordered),
        Allocate(Bytes(16000), Queue(0), Thread(0)),
        FailGate(0),
        Drop(Block(0), Thread(0)),
        TrimTo(Bytes(39936)),
    ];
    run(setting, &operations);
}

#[test]
fn memory_whose_release_ends_during_the_question_is_room_or_not() {
    let setting = Setting {
        source: Svm,
        segments: true,
        reuse: Opportunistic,
        completion: Seeded(55774),
        ..USUAL
    };
    let operations = [
        StopHolding,
        Allocate(Bytes(1), Queue(1), Thread(0)),
        Allocate(Bytes(8193), Queue(0), Thread(0)),
        Allocate(Bytes(16000), Queue(0), Thread(0)),
        Allocate(Bytes(1), Queue(0), Thread(0)),
        Drop(Block(1), Thread(0)),
        WouldFit(Bytes(19967)),
    ];
    run(setting, &operations);
}
