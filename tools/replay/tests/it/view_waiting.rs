//! Blocks that a program has freed while another stream uses them, as PyTorch's `record_stream` leaves them.

use binpool_recordings::{
    Trace,
    view::{By, History},
};
use serde_json::{Value, json};

use crate::{
    browser::Page,
    view_page::{number, shown},
};

/// A snapshot with two blocks, of which one waits for another stream over two entries, and one is free at once.
fn snapshot() -> Value {
    let entry = |action: &str, addr: u64, size: u64, time: u64| json!({ "action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, "frames": [] });
    let [first, second, third] = [0x1000_0000_u64, 0x1010_0000, 0x1020_0000];
    let mib = 1 << 20;
    json!({
        "device_traces": [[
            entry("segment_alloc", first, 20 * mib, 1),
            entry("alloc", first, mib, 2),
            entry("alloc", second, mib, 3),
            entry("free_requested", first, mib, 4),
            entry("alloc", third, mib, 5),
            entry("free_requested", second, mib, 6),
            entry("free_completed", second, mib, 6),
            entry("free_completed", first, mib, 7),
            entry("free_requested", third, mib, 8),
        ]],
        "segments": [{ "device": 0, "address": first, "total_size": 20 * mib, "stream": 0, "blocks": [
            { "address": first, "size": 2 * mib, "state": "inactive" },
            { "address": third, "size": mib, "requested_size": mib, "state": "active_pending_free", "frames": [] },
            { "address": third + mib, "size": 17 * mib, "state": "inactive" },
        ] }],
    })
}

fn history() -> History {
    let trace = Trace::read("t", snapshot().to_string().as_bytes(), None).unwrap();
    // Written as a trace and read again, it says the same.
    let again = Trace::parse("t", trace.to_string().as_bytes()).unwrap();
    assert_eq!(again.pool_steps(), trace.pool_steps());
    History::happened(&again).unwrap_or_else(|| panic!("{:?}", trace.remarks()))
}

#[test]
fn a_block_waits_from_its_first_free_to_its_second_unless_nothing_lies_between() {
    let history = history();
    let lives: Vec<_> = history
        .blocks
        .iter()
        .map(|life| (life.from, life.waiting, life.to))
        .collect();
    assert_eq!(
        lives,
        [
            (0, Some(2), Some(4)),
            (1, None, Some(3)),
            // That of the last one is not completed in the recording.
            (2, Some(5), None),
        ]
    );
    let numbers = history.numbers();
    assert_eq!(numbers.at_end.waiting_bytes, 1 << 20);
    assert_eq!(numbers.peak_active.waiting_bytes, 1 << 20);
}

#[test]
fn the_map_marks_it_and_the_figures_count_it() {
    let history = history();
    let page = Page::new(history.page(By::Size));
    let there = page.run(
        "clock=events",
        "const seen = [];
         const look = () => seen.push({ moment: figures().moment, waiting: one('#moment-waiting')?.textContent ?? null, colors: Object.keys(colors(map())).length });
         for (const to of ['e', ',', ',', ',', ',']) { await key(to); look(); }
         await key('p'); const c = map(); await pointer(c, 'pointermove', 10, 12);
         return { seen, rows: Object.fromEntries(all('#tooltip dt').map(title => [title.textContent, title.nextSibling.textContent])), key: text('#moment-panel .map-key') };",
    );
    let numbers = history.numbers();
    let mib = shown(&json!(numbers.at_end.waiting_bytes));
    let seen = there["seen"].as_array().unwrap();
    let waiting: Vec<_> = seen
        .iter()
        .map(|it| (number(&it["moment"]), it["waiting"].as_str()))
        .collect();
    let some = Some(mib.as_str());
    assert_eq!(
        waiting,
        [(5, some), (4, some), (3, some), (2, some), (1, None)]
    );
    assert!(
        there["rows"]["freed by the program"]
            .as_str()
            .unwrap()
            .starts_with("event 2")
    );
    assert!(
        there["key"].as_str().unwrap().contains("pending"),
        "{there}"
    );
}

#[test]
fn a_recording_in_which_a_block_waits_that_is_not_in_use_is_not_believed() {
    let text = "h version 2\nh device d\nh capacity 1000000\nh blocks segments\ns 9 65536\nb 1 9 0 1024\na 256 1000 0\n";
    let parse = |more: &str| Trace::parse("t", format!("{text}{more}").as_bytes());
    assert!(History::happened(&parse("w 1\nf 256\n").unwrap()).is_some());
    assert!(History::happened(&parse("w 7\nf 256\n").unwrap()).is_none());
    assert!(History::happened(&parse("f 256\nw 1\n").unwrap()).is_none());
    assert!(parse("w\n").is_err());
}
