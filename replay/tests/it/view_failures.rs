//! Requests that failed when a program was recorded stand at their own times, which are those of no event.

use std::fs;

use roxmltree::Document;
use serde_json::{Value, json};

use crate::{common::binpool, view_page::page_of};

/// A failure half a second after the event before it, a trim after that, and a failure a second after the last event.
const RECORDED: &str = "\
h version 2
h device a device
h capacity 8589934592
h blocks segments
s 9 65536 1000
b 1 9 0 1024 1000
a 256 1000 0 1000
o 5000000 0 500000000
p trim 4096 700000000 released
b 2 9 1024 1024 900000000
a 512 1000 0 900000000
f 256 1000000000
o 7 0 2000000000
";

/// The same without what the pool did.
fn simulated() -> String {
    let lines = RECORDED
        .lines()
        .filter(|line| line.starts_with(['a', 'f', 'o']));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Text with ordinary spaces.
fn plain(value: &Value) -> String {
    value.as_str().unwrap().replace('\u{a0}', " ")
}

#[test]
fn a_failed_request_is_listed_marked_and_told_at_its_own_time() {
    for text in [RECORDED, &simulated()] {
        let (_, page, numbers) = page_of(text, &[]);
        assert_eq!(numbers["shortages"][0]["time_ns"], 500_000_000);
        let there = page.run(
            "clock=time",
            "const rows = all('#events .event[data-kind]').map(row => [row.children[1].textContent, row.children[2].textContent]);
             const c = chart(); const width = c.clientWidth - 66 - 14;
             const { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height);
             const isRed = (x, y) => data[4 * (y * c.width + x)] === 179 && data[4 * (y * c.width + x) + 1] === 38;
             const isMark = x => [0.3, 0.5, 0.7].every(part => isRed(x, Math.round(c.height * part)));
             const marks = [];
             for (let x = 66; x < c.width; x++) if (isMark(x) && !isMark(x - 1)) marks.push((x - 66) / width);
             return { rows, marks, told: text('#ran-out .link'), head: text('.head .quiet') };",
        );
        let rows = there["rows"].as_array().unwrap().iter();
        let failed = rows.filter(|row| row[1] == "failed when recorded");
        let times: Vec<String> = failed.map(|row| plain(&row[0])).collect();
        assert_eq!(times, ["500.00 ms", "2.0000 s"]);
        let marks = there["marks"].as_array().unwrap().iter();
        let marks: Vec<f64> = marks.map(|mark| mark.as_f64().unwrap()).collect();
        // The axis has a bit more than the last of all, which is at 2 s.
        let expected = [0.25, 1.0].map(|part| part / 1.004);
        assert_eq!(marks.len(), 2, "{there}");
        for (mark, expected) in marks.iter().zip(expected) {
            assert!((mark - expected).abs() < 0.005, "{there}");
        }
        assert_eq!(plain(&there["told"]), "500.00 ms (after event 1)");
        assert!(plain(&there["head"]).contains("2.00 s"), "{there}");
    }
}

#[test]
fn failures_and_what_the_pool_did_are_listed_in_the_order_of_their_times() {
    let (_, page, _) = page_of(RECORDED, &[]);
    let there = page.run(
        "",
        "return all('#events .event[data-kind]').map(row => row.children[2].textContent);",
    );
    assert_eq!(
        there,
        json!([
            "segment taken",
            "allocated",
            "failed when recorded",
            "trim",
            "allocated",
            "freed",
            "failed when recorded"
        ])
    );
}

/// A trim long after the last event before it gives a segment back.
#[test]
fn segments_are_taken_and_given_back_at_their_own_times() {
    let text = RECORDED.replace(
        "p trim 4096 700000000 released\n",
        "S 10 700000000\np trim 131072 700000000 released\n",
    );
    let text = text.replace("b 1 9", "s 10 131072 1000\nb 1 9");
    let (_, page, numbers) = page_of(&text, &[]);
    let events = numbers["pool_events"].as_array().unwrap();
    let segments: Vec<&Value> = events.iter().map(|event| &event["segment"]).collect();
    assert_eq!(segments, [&json!(0), &json!(1), &json!(1), &Value::Null]);
    let there = page.run(
        "",
        "return all('#events .event[data-kind]').map(row => [row.children[1].textContent, row.children[2].textContent]);",
    );
    let rows: Vec<(String, String)> = there
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (plain(&row[1]), plain(&row[0])))
        .collect();
    let expected = [
        ("segment taken", "1.0000 µs"),
        ("segment taken", "1.0000 µs"),
        ("allocated", "1.0000 µs"),
        ("failed when recorded", "500.00 ms"),
        ("segment given back", "700.00 ms"),
        ("trim", "700.00 ms"),
        ("allocated", "900.00 ms"),
    ];
    for (row, expected) in rows.iter().zip(expected) {
        assert_eq!((row.0.as_str(), row.1.as_str()), expected, "{rows:?}");
    }
}

/// 192 KiB are reserved until a third of the axis, and 64 KiB from there on, although the next event comes later, and the one before came
/// long before.
#[test]
fn what_is_reserved_falls_when_a_segment_is_given_back() {
    let text = RECORDED.replace(
        "p trim 4096 700000000 released\n",
        "S 10 700000000\np trim 131072 700000000 released\n",
    );
    let text = text.replace("b 1 9", "s 10 131072 1000\nb 1 9");
    let (_, page, _) = page_of(&text, &[]);
    let there = page.run(
        "clock=time",
        "const c = chart(); const width = c.clientWidth - 66 - 14; const seen = [];
         for (const part of [0.05, 0.3, 0.34, 0.36, 0.4, 0.9]) {
           await pointer(c, 'pointermove', 66 + width * part, c.clientHeight * 0.9);
           const names = all('#tooltip dt').map(name => name.textContent);
           seen.push(all('#tooltip dd')[names.indexOf('reserved')].textContent);
         }
         return seen;",
    );
    let seen: Vec<String> = there.as_array().unwrap().iter().map(plain).collect();
    let (before, after) = ("192 KiB", "64.0 KiB");
    assert_eq!(seen, [before, before, before, after, after, after]);
}

#[test]
fn a_key_leads_to_a_failure_that_is_out_of_sight() {
    let (_, page, _) = page_of(RECORDED, &[]);
    let there = page.run(
        "clock=time&range=950000000~1000000000&at=2",
        "const seen = []; for (let press = 0; press < 2; press++) { await key('o'); seen.push([figures().moment, range()]); } return seen;",
    );
    for (seen, (moment, time)) in [(3, 2e9), (1, 5e8)].iter().enumerate() {
        assert_eq!(there[seen][0], *moment, "{there}");
        let [from, to] = [0, 1].map(|end| there[seen][1][end].as_f64().unwrap());
        assert!(from <= *time && *time <= to, "{there}");
    }
}

#[test]
fn the_picture_marks_failures_at_their_own_times() {
    let folder = tempfile::tempdir().unwrap();
    let [file, picture] = ["program.trace", "picture.svg"].map(|name| folder.path().join(name));
    fs::write(&file, RECORDED).unwrap();
    let ran = binpool(&[
        "view",
        file.to_str().unwrap(),
        "-o",
        picture.to_str().unwrap(),
    ]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let text = fs::read_to_string(picture).unwrap();
    let document = Document::parse(&text).unwrap();
    let lines = document.descendants().filter(|node| {
        node.has_tag_name("polyline") && node.attribute("stroke") == Some("#B3261E")
    });
    let x = |points: &str| -> f64 { points.split([' ', ',']).next().unwrap().parse().unwrap() };
    let marks: Vec<f64> = lines
        .map(|line| x(line.attribute("points").unwrap()))
        .collect();
    // The plot is 660 wide, and 84 from the left.
    assert_eq!(marks, [84.0 + 165.0, 84.0 + 660.0]);
}

#[test]
fn why_memory_ran_out_is_answered_with_numbers() {
    let text = RECORDED.replace("h blocks", "h limit 67108864\nh blocks");
    let (_, page, _) = page_of(&text, &[]);
    let script = "return [text('#ran-out strong'), text('#ran-out .figure span')];";
    let there = page.run("", script);
    assert_eq!(plain(&there[0]), "4.77 MiB");
    assert_eq!(there[1], "could not be allocated");
    let there = page_of(&simulated(), &[]).1.run("", script);
    assert_eq!(
        there[1],
        "could not be allocated when this was recorded; this replay had room"
    );
}
