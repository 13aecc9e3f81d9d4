//! Requests that failed when a program was recorded stand at their own times, which are those of no event.

use serde_json::{Value, json};

use crate::view_page::page_of;

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

/// Script that returns the answer to why memory ran out, as figure and words.
const WHY: &str = "return [text('#ran-out strong'), text('#ran-out .figure span')];";

/// The recording with a limit of 8 MiB, whose first failure has a report with this verdict and these numbers.
fn with_report(verdict: &str, numbers: &str) -> String {
    let text = RECORDED.replace("h blocks", "h limit 8388608\nh blocks");
    let failed = format!(
        "o 2097152 0 500000000\nr verdict={verdict} class_bytes=2097152 active_bytes=1000 capacity_bytes=8388608 {numbers}\n"
    );
    text.replace("o 5000000 0 500000000\n", &failed)
}

#[test]
fn why_memory_ran_out_is_answered_with_numbers() {
    for (verdict, numbers, asked, expected) in [
        (
            "limited",
            "managed_bytes=6307840",
            "2.00 MiB",
            "asked for, 1.98 MiB free of the limit of 8.00 MiB",
        ),
        // Figures that would look the same are written in full.
        (
            "limited",
            "managed_bytes=6292480",
            "2,097,152 bytes",
            "asked for, 2,096,128 bytes free of the limit of 8.00 MiB",
        ),
        (
            "fragmented",
            "managed_bytes=8388608 held_bytes=4194304 largest_held_bytes=1048576",
            "2.00 MiB",
            "asked for, 4.00 MiB free in the pool, but at most 1.00 MiB in one piece",
        ),
        (
            "pending",
            "managed_bytes=8388608 pending_bytes=3145728",
            "2.00 MiB",
            "asked for, 3.00 MiB free only once pending commands have ended",
        ),
        (
            "device_full",
            "managed_bytes=8388608 device_free_bytes=1048576",
            "2.00 MiB",
            "asked for, 1.00 MiB free on the device",
        ),
        (
            "never_fits",
            "largest_block_bytes=1048576",
            "2.00 MiB",
            "asked for, and no block can be larger than 1.00 MiB",
        ),
    ] {
        let (_, page, _) = page_of(&with_report(verdict, numbers), &[]);
        let there = page.run("", WHY);
        assert_eq!(
            (plain(&there[0]), plain(&there[1])),
            (asked.into(), expected.into())
        );
    }
    let there = page_of(&simulated(), &[]).1.run("", WHY);
    assert_eq!(
        there[1],
        "could not be allocated when this was recorded; this replay had room"
    );
}

#[test]
fn a_recording_with_a_failed_request_has_the_panel_of_it() {
    let script = "return { verdict: text('#verdict'), where: text('#shortage .where'), parts: all('#shortage-parts li').map(part => part.textContent),
        advice: one('#advice')?.textContent ?? null, room: one('#room')?.textContent ?? null, why: text('#ran-out .figure') };";
    let numbers = "managed_bytes=6307840";
    let there = page_of(&with_report("limited", numbers), &[])
        .1
        .run("", script);
    assert_eq!(
        plain(&there["verdict"]),
        "2.00 MiB could not be allocated: a limit is reached."
    );
    assert_eq!(
        plain(&there["where"]),
        "500.00 ms (after event 1), the first of 2 failures"
    );
    assert_eq!(there["advice"], "free blocks, or raise the limit");
    assert!(plain(&there["room"]).contains("No segment is large enough"));
    // Without a report, there is what the memory had.
    let there = page_of(RECORDED, &[]).1.run("", script);
    assert_eq!(
        plain(&there["verdict"]),
        "4.77 MiB could not be allocated: the recording does not say why."
    );
    assert_eq!(
        plain(&there["why"]),
        "4.77 MiBasked for, 8.00 GiB left of 8.00 GiB"
    );
    assert_eq!(
        (&there["advice"], &there["room"]),
        (&Value::Null, &Value::Null)
    );
    assert!(
        plain(&there["parts"][2]).starts_with("held by the pool"),
        "{there}"
    );
    // A replay that had room has no panel.
    let there = page_of(&simulated(), &[])
        .1
        .run("", "return all('#shortage').length;");
    assert_eq!(there, 0);
}

#[test]
fn a_program_with_a_limit_is_told_to_try_a_smaller_limit() {
    let text = RECORDED.replace("h blocks", "h limit 8388608\nh blocks");
    let text = text
        .replace("o 5000000 0 500000000\n", "")
        .replace("o 7 0 2000000000\n", "");
    let there = page_of(&text, &[])
        .1
        .run("", "return text('#ran-out .quiet');");
    assert_eq!(
        plain(&there),
        "To try a smaller limit: binpool view --capacity 32KiB"
    );
}
