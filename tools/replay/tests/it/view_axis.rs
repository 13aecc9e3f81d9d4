//! The axis that a page opens on.

use serde_json::json;

use crate::view_page::page_of;

/// A hundred allocations in the first `busy_ms` of a second, and one at its end.
fn recorded(busy_ms: u64) -> String {
    let line = |block: u64, time: u64| format!("a {block} 1000 0 {time}\n");
    let busy = (0..100).map(|block| line(block, block * busy_ms * 10_000));
    busy.chain([line(100, 1_000_000_000)]).collect()
}

/// What is at the axis: the chosen one, and its last figure.
const AXIS: &str = "return one('[data-value=time]').parentElement.querySelector('[aria-checked=true]').dataset.value;";

#[test]
fn a_page_opens_on_events_where_most_of_the_time_is_idle() {
    let [idle, busy] = [10, 900].map(|busy_ms| page_of(&recorded(busy_ms), &[]).1);
    assert_eq!(idle.run("", AXIS), "events");
    assert_eq!(busy.run("", AXIS), "time");
    let there = idle.run(
        "",
        "const seen = []; for (let press = 0; press < 2; press++) { await key('c'); seen.push(location.hash); } return seen;",
    );
    assert_eq!(there, json!(["#clock=time", "#clock=events"]));
    assert_eq!(idle.run("clock=time", AXIS), "time");
}
