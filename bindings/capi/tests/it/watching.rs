//! Reports and snapshots.

use std::ptr;

use binpool_capi::{
    Block, binpool_pool_report, binpool_pool_snapshot_json, binpool_pool_stop_watching,
    binpool_pool_watch, binpool_tag_enter, binpool_tag_leave,
};

use crate::common::{Bench, free, ok, take_text};

fn report(bench: &Bench) -> String {
    let mut text = ptr::null_mut();
    // SAFETY: The pool lives.
    ok(unsafe { binpool_pool_report(bench.pool, &raw mut text) });
    take_text(text)
}

fn watch(bench: &Bench, call_stacks: i32) {
    // SAFETY: The pool lives.
    ok(unsafe { binpool_pool_watch(bench.pool, call_stacks) });
}

#[test]
fn a_report_has_the_counters_and_the_innermost_tag_of_each_block() {
    let bench = Bench::new(0);
    watch(&bench, 0);
    // SAFETY: The name is a text.
    ok(unsafe { binpool_tag_enter(c"step".as_ptr()) });
    // SAFETY: As above.
    ok(unsafe { binpool_tag_enter(c"forward pass".as_ptr()) });
    let first = bench.allocate(3 << 20);
    ok(binpool_tag_leave());
    let second = bench.allocate(2 << 20);
    ok(binpool_tag_leave());
    let text = report(&bench);
    assert!(
        text.starts_with("in use        5.0 MiB   2 blocks"),
        "{text}"
    );
    let line = |tag: &str| {
        text.lines()
            .find(|line| line.contains(tag))
            .map(str::to_owned)
    };
    assert!(line("forward pass").unwrap().contains("3.0 MiB"), "{text}");
    assert!(line("step").unwrap().contains("2.0 MiB"), "{text}");
    assert!(!text.contains(".rs:"), "a line of this library: {text}");

    // SAFETY: The pool lives.
    ok(unsafe { binpool_pool_stop_watching(bench.pool) });
    assert!(!report(&bench).contains("forward pass"));
    free(first);
    free(second);
}

#[test]
fn call_stacks_lead_to_the_function_that_asked() {
    #[inline(never)]
    fn convolution(bench: &Bench) -> *mut Block {
        let block = bench.allocate(4096);
        assert!(!block.is_null());
        block
    }

    let bench = Bench::new(0);
    watch(&bench, 1);
    let block = convolution(&bench);
    let text = report(&bench);
    assert!(text.contains("convolution"), "{text}");
    free(block);
}

#[test]
fn a_snapshot_is_the_json_that_the_crate_reads() {
    let bench = Bench::new(0);
    let block = bench.allocate(4096);
    let mut json = ptr::null_mut();
    // SAFETY: The pool lives.
    ok(unsafe { binpool_pool_snapshot_json(bench.pool, &raw mut json) });
    let json = take_text(json);
    binpool::Snapshot::from_json(&json).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["statistics"]["active_bytes"], 4096, "{json}");
    free(block);
}
