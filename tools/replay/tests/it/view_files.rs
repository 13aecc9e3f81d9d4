//! Files that a page saves, and files that are dropped on it.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::{
    browser::Page,
    view_page::{page_of, snapshot, snapshot_page},
};

/// A program with a block that is freed, one that stays, and a request that failed.
const RECORDED: &str = "\
g 0 weights
k 0 inner at a.rs:1
k 0 outer at a.rs:2
a 1 1048576 0 1000 0 0
a 2 2097152 3 2500 0
f 1 3000
o 99999999999 0 4000 0
";

/// Script that presses the key that saves, and returns the saved text and the name of its file.
const SAVE: &str = "let saved, name; window.Blob = class { constructor(parts) { saved = parts.join(''); } }; URL.createObjectURL = () => 'blob:saved';
    HTMLAnchorElement.prototype.click = function() { name = this.download; }; await key('x'); return [name, saved]";

/// The events of a kind in a saved text.
fn of_kind<'a>(saved: &'a Value, kind: &str) -> Vec<&'a Value> {
    let events = saved["traceEvents"].as_array().unwrap().iter();
    events.filter(|event| event["ph"] == kind).collect()
}

#[test]
fn a_history_is_saved_in_the_trace_event_format() {
    let (_, page, _) = page_of(RECORDED, &[]);
    let there = page.run("", SAVE);
    assert_eq!(there[0], "program.perfetto.json");
    let saved: Value = serde_json::from_str(there[1].as_str().unwrap()).unwrap();
    let id = |event: &Value| {
        json!([
            event["cat"],
            event["name"],
            event["id"],
            event["ts"].as_f64()
        ])
    };
    let begun = of_kind(&saved, "b");
    assert_eq!(begun.len(), 2);
    assert_eq!(id(begun[0]), json!(["block", "weights", "1", 1.0]));
    assert_eq!(id(begun[1]), json!(["block", "weights", "2", 2.5]));
    assert_eq!(
        begun[0]["args"],
        json!({ "bytes": 1 << 20, "stream": 0, "stack": "inner at a.rs:1\nouter at a.rs:2" })
    );
    // A block without an end is there to the end.
    let ended: Vec<Value> = of_kind(&saved, "e").into_iter().map(id).collect();
    assert_eq!(ended, [json!(["block", "weights", "1", 3.0])]);
    let counters = of_kind(&saved, "C").into_iter();
    let in_use: Vec<Value> = counters
        .filter(|event| event["name"] == "in use: weights")
        .map(|event| json!([event["ts"].as_f64(), event["args"]["bytes"]]))
        .collect();
    let mib = |count: u32| count << 20;
    assert_eq!(
        in_use,
        [
            json!([1.0, mib(1)]),
            json!([2.5, mib(3)]),
            json!([3.0, mib(2)])
        ]
    );
    let marks = of_kind(&saved, "i");
    assert_eq!(marks.len(), 1);
    assert_eq!(
        (&marks[0]["name"], marks[0]["ts"].as_f64()),
        (&json!("out of memory"), Some(4.0))
    );
    assert_eq!(marks[0]["args"]["bytes"], 99_999_999_999_u64);
    for event in saved["traceEvents"].as_array().unwrap() {
        assert_eq!(event["pid"], 1, "{event}");
    }
}

#[test]
fn without_times_an_event_is_a_microsecond() {
    let (_, page, _) = page_of("a 0 100 0\na 1 200 0\nf 0\n", &[]);
    let there = page.run("", SAVE);
    let saved: Value = serde_json::from_str(there[1].as_str().unwrap()).unwrap();
    let times = of_kind(&saved, "b").into_iter().chain(of_kind(&saved, "e"));
    let times: Vec<_> = times.map(|event| event["ts"].as_u64().unwrap()).collect();
    assert_eq!(times, [1, 2, 3]);
}

/// Script that drops files with these names and contents on the page.
fn drop_files(files: &[(&str, &[u8])]) -> String {
    let adds = files.iter().map(|(name, content)| {
        let content = BASE64_STANDARD.encode(content);
        format!("files.items.add(new File([Uint8Array.from(atob('{content}'), char => char.charCodeAt(0))], '{name}'));")
    });
    format!(
        "const files = new DataTransfer(); {}
         document.dispatchEvent(new DragEvent('drop', {{ dataTransfer: files, bubbles: true, cancelable: true }}));
         const before = one('main');
         for (let tries = 0; tries < 500 && one('main') === before && one('#dropped').hidden; tries++) {{
             // The page reads them meanwhile, however busy the machine is.
             for (const file of files.files) await file.arrayBuffer();
             await sleep(20);
         }} await settle();",
        adds.collect::<String>()
    )
}

const SEEN: &str = "return { title: text('#title'), menu: all('#history option').map(option => option.textContent),
    used: one('#used strong')?.textContent, told: one('#dropped').hidden ? null : text('#dropped') };";

fn with_bytes(bytes: u32) -> Page {
    page_of(&format!("a 0 {bytes} 0 1000\n"), &[]).1
}

#[test]
fn pages_that_are_dropped_on_a_page_are_shown_together() {
    let page = with_bytes(1 << 20);
    let [one, other] = [2 << 20, 3 << 20].map(with_bytes);
    let [one, other] = [&one, &other].map(|page| page.html().as_bytes());
    let there = page.run("at=0", &(drop_files(&[("one.html", one)]) + SEEN));
    assert_eq!(there["used"], "2.00\u{a0}MiB".replace('\u{a0}', " "));
    assert_eq!((&there["menu"], &there["told"]), (&json!([]), &Value::Null));
    let there = page.run(
        "",
        &(drop_files(&[("one.html", one), ("other.html", other)])
            + "const menu = one('#history'); menu.selectedIndex = 1; menu.dispatchEvent(new Event('change')); await settle();"
            + SEEN),
    );
    assert_eq!(there["used"], "3.00 MiB");
    let menu = there["menu"].as_array().unwrap();
    assert_eq!(menu.len(), 2);
    for (entry, name) in menu.iter().zip(["one.html: ", "other.html: "]) {
        assert!(entry.as_str().unwrap().starts_with(name), "{there}");
    }
}

#[test]
fn a_dropped_snapshot_is_shown_alone_and_other_files_are_refused_with_what_to_do() {
    let page = with_bytes(1 << 20);
    let snapshot = snapshot_page(&snapshot());
    let snapshot = snapshot.html().as_bytes();
    let there = page.run("", &(drop_files(&[("now.html", snapshot)]) + SEEN));
    assert_eq!(
        (&there["used"], &there["title"]),
        (&json!("30.0 MiB"), &json!("now.json"))
    );
    for (files, expected) in [
        (
            vec![("my.trace", &b"a 0 100 0\n"[..])],
            "my.trace is not a page of binpool view. Write one with: binpool view my.trace",
        ),
        (
            vec![("now.html", snapshot), ("one.html", page.html().as_bytes())],
            "the page of a snapshot of a pool opens alone: drop it by itself",
        ),
    ] {
        let there = page.run("", &(drop_files(&files) + SEEN));
        assert_eq!(there["told"], expected);
        assert_eq!(there["used"], "1.00 MiB", "the page stays as it was");
    }
}
