//! Programs that the model found, each under the rule that was broken.

use crate::{run, words::*};

#[test]
fn a_block_that_cannot_be_waited_for_stays_what_it_was() {
    let setting = Setting {
        source: Immediate,
        segments: false,
        reuse: WaitOnHost,
        threshold: None,
        completion: AtOnce,
        watched: false,
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
        reuse: SameQueue,
        threshold: None,
        completion: Manual,
        watched: false,
    };
    let operations = [
        StopHolding,
        Fail(CreateSubRegion, 1, Backend(-5)),
        Allocate(Bytes(1), Queue(0), Thread(0)),
    ];
    run(setting, &operations);
}

#[test]
fn what_ended_before_a_command_that_never_ends_serves_a_request() {
    let setting = Setting {
        source: Svm,
        segments: false,
        reuse: SameQueue,
        threshold: None,
        completion: Manual,
        watched: false,
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
    let setting = Setting {
        source: Immediate,
        segments: false,
        reuse: SameQueue,
        threshold: None,
        completion: AtOnce,
        watched: false,
    };
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
