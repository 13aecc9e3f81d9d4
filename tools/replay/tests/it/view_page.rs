//! The pages of `binpool view`, in a browser.

use std::{cmp::Reverse, collections::BTreeMap, fmt::Write, fs, path::Path};

use binpool::PoolOptions;
use binpool_recordings::{Trace, view::History};
use binpool_replay::{Profile, simulate};
use serde_json::{Value, json};

use crate::{browser::Page, common::binpool};

/// A program with four groups on two streams that takes a millisecond for each event, and leaks a bit.
pub(crate) fn tagged() -> String {
    let groups = ["weights", "activations", "scratch", "leaky cache"];
    let mut text = String::new();
    for (number, name) in groups.iter().enumerate() {
        writeln!(text, "g {number} {name}").unwrap();
    }
    let (mut id, mut time) = (0, 0);
    let mut allocate = |text: &mut String, bytes: u64, stream: u32, group: usize| {
        time += 1_000_000;
        writeln!(text, "a {id} {bytes} {stream} {time} {group}").unwrap();
        id += 1;
        id - 1
    };
    for _ in 0..10 {
        allocate(&mut text, 8 << 20, 0, 0);
    }
    for step in 0..30_u64 {
        let inner: Vec<u64> = (0..20)
            .map(|layer| allocate(&mut text, (layer + 1 + step % 3) * 300_000, 0, 1))
            .collect();
        for block in inner.iter().rev() {
            let scratch = allocate(&mut text, 1_000_000, 1, 2);
            writeln!(text, "f {scratch}\nf {block}").unwrap();
        }
        allocate(&mut text, 123_456, 1, 3);
    }
    text
}

/// The history of a trace, and its page as the command writes it.
pub(crate) fn page_of(text: &str, options: &[&str]) -> (History, Page, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("program.trace");
    let page = folder.path().join("page.html");
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let arguments = ["view", "--json", file, "-o", page.to_str().unwrap()];
    let ran = binpool(&[&arguments[..], options].concat());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let trace = Trace::parse(file, text.as_bytes()).unwrap();
    let pool = PoolOptions::new().segments(true);
    let history = simulate(&trace, &Profile::H200, None, &pool, &|_| {}).unwrap();
    let numbers = serde_json::from_str(&ran.output).unwrap();
    (
        history,
        Page::new(fs::read_to_string(page).unwrap()),
        numbers,
    )
}

pub(crate) fn tagged_page() -> (History, Page, Value) {
    page_of(&tagged(), &[])
}

/// A number of bytes as the page writes it.
#[allow(clippy::cast_precision_loss, reason = "three digits are wanted")]
pub(crate) fn shown(bytes: &Value) -> String {
    let bytes = bytes.as_u64().unwrap();
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    let value = bytes as f64 / f64::powi(1024.0, i32::try_from(unit).unwrap());
    let digits = match unit {
        0 => 0,
        _ if value >= 100.0 => 0,
        _ if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {}", ["B", "KiB", "MiB", "GiB"][unit])
}

/// What a browser keeps a sum in.
pub(crate) fn number(value: &Value) -> u64 {
    let number = value.as_f64().unwrap();
    format!("{number}").parse().unwrap()
}

#[test]
fn the_page_shows_the_numbers_that_the_command_prints() {
    let (_, page, numbers) = tagged_page();
    let shown_there = page.run(
        "",
        "return { used: text('#used .figure strong'), end: text('#leaked .figure strong'), ran: text('#ran-out strong'),
           held: text('#leaked .top li:nth-child(2) .number'), title: document.title, head: text('.head .quiet'),
           active: text('#legend-active'), reserved: text('#legend-reserved'), moment: text('#moment'),
           loose: [...one('#page').childNodes].filter(node => node.nodeType === Node.TEXT_NODE && node.data !== '').length };",
    );
    assert_eq!(shown_there["loose"], 0, "text between the panels");
    assert_eq!(
        shown_there["used"],
        shown(&numbers["peak_active"]["active_bytes"])
    );
    assert_eq!(
        shown_there["active"],
        shown(&numbers["peak_active"]["active_bytes"])
    );
    assert_eq!(
        shown_there["reserved"],
        shown(&numbers["peak_active"]["reserved_bytes"])
    );
    assert_eq!(
        shown_there["end"],
        shown(&numbers["at_end"]["active_bytes"])
    );
    assert_eq!(shown_there["held"], shown(&numbers["at_end"]["held_bytes"]));
    let room = numbers["capacity_bytes"].as_u64().unwrap()
        - numbers["peak_reserved"]["reserved_bytes"].as_u64().unwrap();
    assert_eq!(shown_there["ran"], shown(&json!(room)));
    assert_eq!(shown_there["title"], "program.trace – binpool view");
    let head = shown_there["head"].as_str().unwrap();
    assert!(head.contains("1,240 blocks"), "{head}");
    let moment = shown_there["moment"].as_str().unwrap().replace(',', "");
    let event = format!("event {}", numbers["peak_active"]["moment"]);
    assert!(moment.contains(&event), "{moment}");
}

#[test]
fn to_spare_is_what_was_never_reserved() {
    let (_, page, numbers) = page_of(&tagged(), &["--capacity", "256MiB"]);
    let bytes = |at: &str, what: &str| numbers[at][what].as_u64().unwrap();
    let most = bytes("peak_reserved", "reserved_bytes");
    let in_use = bytes("peak_reserved", "active_bytes");
    let [most, in_use, room, unused] =
        [most, in_use, (256 << 20) - most, (256 << 20) - in_use].map(|bytes| shown(&json!(bytes)));
    assert!(most != in_use && room != unused);
    let sentence = format!("At most {most} of 256 MiB were reserved: {room} to spare.");
    let there = page.run("", "return text('#ran-out p:nth-of-type(2)');");
    assert_eq!(there, sentence);
}

/// The page with these functions of its script in reach of a test's.
pub(crate) fn with_functions(page: &Page, names: &str) -> Page {
    let start = "// Starts the page.";
    assert_eq!(page.html().matches(start).count(), 1);
    let exposed = format!("Object.assign(globalThis, {{ {names} }});\n{start}");
    Page::new(page.html().replace(start, &exposed))
}

#[test]
fn numbers_are_written_in_the_largest_unit_that_they_fill() {
    let (_, page, _) = page_of("a 0 1 0\n", &[]);
    let page = with_functions(
        &page,
        "timeText, bytesText, percentText, bytesTicks, timeTicks",
    );
    let there = page.run(
        "",
        "const s = 1e9, min = 60 * s, h = 60 * min;
         const times = [0, 999, 1000, 1.25e6, 99.9e6, 119 * s, 2 * min, 2 * min + 79.9 * s, h - s, h, 75 * min, 119 * min, 24 * h - s, 24 * h, 36 * h];
         const bytes = [0, 1023, 1024, 9.99 * 1024, 10 * 1024, 100 * 1024, 2 ** 20 - 1, 2 ** 20, 3 * 2 ** 29, 2 ** 60, 2 ** 72];
         const ticks = ticks => ticks.map(({ at, text }) => `${at} ${text}`);
         return { times: times.map(time => timeText(time)), bytes: bytes.map(bytesText),
           percents: [0, 0.0004, 0.012, 0.0994, 0.0995, 0.5, 1].map(percentText),
           near: timeText(1.25e6, 2), bytesTicks: ticks(bytesTicks(3 * 2 ** 19, 4)), timeTicks: ticks(timeTicks(1.1e6, 2.4e6, 5)) };",
    );
    assert_eq!(
        there["times"],
        json!([
            "0 ns",
            "999 ns",
            "1.00 µs",
            "1.25 ms",
            "99.9 ms",
            "119 s",
            "2 min 0 s",
            "3 min 19 s",
            "59 min 59 s",
            "1 h 0 min",
            "1 h 15 min",
            "1 h 59 min",
            "23 h 59 min",
            "1.0 days",
            "1.5 days"
        ])
    );
    assert_eq!(
        there["bytes"],
        json!([
            "0 B", "1023 B", "1.00 KiB", "9.99 KiB", "10.0 KiB", "100 KiB", "1024 KiB", "1.00 MiB",
            "1.50 GiB", "1.00 EiB", "4096 EiB"
        ])
    );
    assert_eq!(
        there["percents"],
        json!(["0 %", "0.0 %", "1.2 %", "9.9 %", "10 %", "50 %", "100 %"])
    );
    assert_eq!(there["near"], "1.2500 ms");
    assert_eq!(
        there["bytesTicks"],
        json!([
            "0 0",
            "524288 0.5 MiB",
            "1048576 1.0 MiB",
            "1572864 1.5 MiB"
        ])
    );
    assert_eq!(
        there["timeTicks"],
        json!(["1500000 1.5 ms", "2000000 2.0 ms"])
    );
}

/// The groups of [`tagged`] with blocks at a moment, and their bytes then.
fn groups_at(history: &History, moment: u64) -> Vec<(String, u64)> {
    let trace = Trace::parse("t", tagged().as_bytes()).unwrap();
    let mut groups = BTreeMap::new();
    for (block, life) in history.blocks.iter().enumerate() {
        if (life.from as u64) < moment && life.to.is_none_or(|to| moment <= to as u64) {
            let name = trace.group_of(block).unwrap().to_owned();
            *groups.entry(name).or_insert(0) += life.requested_bytes;
        }
    }
    groups.into_iter().collect()
}

/// The number of the event that a text begins with: "event 1,234 (1.2000 s)".
pub(crate) fn event_of(text: &Value) -> usize {
    let number = text.as_str().unwrap().strip_prefix("event ").unwrap();
    let number = number.split_once(' ').map_or(number, |(number, _)| number);
    number.replace(',', "").parse().unwrap()
}

/// A part of a whole as the page writes it.
fn percent(part: f64) -> String {
    let percent = part * 100.0;
    let digits = usize::from(percent > 0.0 && percent < 9.95);
    format!("{percent:.digits$} %")
}

#[test]
fn groups_that_hold_most_at_the_peak_are_named_before_those_that_once_held_more() {
    let mib = |count: usize| count << 20;
    let mut text = String::new();
    for group in 0..60 {
        let name = if group < 20 { "once" } else { "at the peak" };
        writeln!(text, "g {group} {name} {group}").unwrap();
    }
    // Twenty groups hold 90 MiB, one after the other, and then forty hold more together.
    for group in 0..20 {
        let bytes = mib(90);
        writeln!(
            text,
            "a {group} {bytes} 0 {group} {group}\nf {group} {group}"
        )
        .unwrap();
    }
    for group in 20..60 {
        let bytes = mib(group - 10);
        writeln!(text, "a {group} {bytes} 0 {group} {group}").unwrap();
    }
    let (_, page, _) = page_of(&text, &[]);
    let used = page.run(
        "",
        "return all('#used .top li').map(line => line.textContent);",
    );
    let expected = [
        "at the peak 5949.0 MiB · 4.2 %",
        "at the peak 5848.0 MiB · 4.1 %",
        "at the peak 5747.0 MiB · 4.0 %",
    ];
    assert_eq!(used, json!(expected));
}

#[test]
#[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
fn the_page_says_which_part_of_the_whole_a_figure_is() {
    let (history, page, numbers) = tagged_page();
    let there = page.run(
        "",
        "return { used: all('#used .top li').map(line => line.textContent), rounding: text('#moment-rounding'),
           scattered: text('#scattered'), leaked: text('#leaked') };",
    );
    let (peak, end) = (&numbers["peak_active"], &numbers["at_end"]);
    let mut groups = groups_at(&history, number(&peak["moment"]));
    groups.sort_unstable_by(|(_, one), (_, other)| other.cmp(one));
    let whole = number(&peak["active_bytes"]) as f64;
    let lines = groups.iter().map(|(name, bytes)| {
        let part = percent(*bytes as f64 / whole);
        format!("{name}{} · {part}", shown(&json!(bytes)))
    });
    assert_eq!(there["used"], json!(lines.take(3).collect::<Vec<_>>()));
    let rounding = |at: &Value| number(&at["block_bytes"]) - number(&at["active_bytes"]);
    assert_eq!(there["rounding"], shown(&json!(rounding(peak))));
    assert_eq!(
        there["scattered"],
        percent(peak["scattered"].as_f64().unwrap())
    );
    let rounding = shown(&json!(rounding(end)));
    let sentence = format!("Rounding their sizes up to size classes adds {rounding}.");
    let leaked = there["leaked"].as_str().unwrap();
    assert!(leaked.ends_with(&sentence), "{leaked}");
}

#[test]
fn each_part_of_a_bar_is_as_wide_as_its_share() {
    /// Whether these widths in percent are those of `parts` of `whole`.
    fn assert_widths(widths: &Value, parts: &[u64], whole: u64) {
        let widths: Vec<f64> = widths
            .as_array()
            .unwrap()
            .iter()
            .map(|width| width.as_str().unwrap().strip_suffix('%').unwrap())
            .map(|width| width.parse().unwrap())
            .collect();
        assert_eq!(widths.len(), parts.len(), "{widths:?}");
        for (width, part) in widths.iter().zip(parts) {
            #[allow(clippy::cast_precision_loss, reason = "a width on a screen")]
            let expected = *part as f64 / whole as f64 * 100.0;
            assert!(
                (width - expected).abs() < 0.01,
                "{widths:?}: {parts:?} of {whole}"
            );
        }
    }
    let script = "const widths = box => [...box.querySelectorAll('.part')].map(part => part.style.width);
         return { answers: ['used', 'ran-out', 'leaked'].map(id => widths(one(`#${id} .share`))), bars: all('#shortage .bar-row .share').map(widths) };";
    let at = |at: &Value, what: &str| at[what].as_u64().unwrap();

    let (history, page, numbers) = tagged_page();
    let there = page.run("", script);
    let peak = &numbers["peak_active"];
    let mut groups = groups_at(&history, number(&peak["moment"]));
    groups.sort_unstable_by(|(_, one), (_, other)| other.cmp(one));
    let groups: Vec<u64> = groups.into_iter().map(|(_, bytes)| bytes).collect();
    assert!(groups.len() > 2, "{groups:?}");
    assert_widths(&there["answers"][0], &groups, at(peak, "active_bytes"));
    let most = &numbers["peak_reserved"];
    let both = |of: &Value| [at(of, "block_bytes"), at(of, "held_bytes")];
    assert_widths(
        &there["answers"][1],
        &both(most),
        at(&numbers, "capacity_bytes"),
    );
    let end = &numbers["at_end"];
    assert_widths(&there["answers"][2], &both(end), at(end, "reserved_bytes"));

    // Where memory ran out: the whole is the capacity, of which the request is drawn as a part, too.
    let (_, page, numbers) = page_of(&tagged(), &["--capacity", "100MiB"]);
    let there = page.run("", script);
    let (end, failed) = (&numbers["at_end"], &numbers["out_of_memory"]);
    assert_widths(&there["answers"][1], &both(end), 100 << 20);
    assert_widths(&there["bars"][1], &[at(failed, "class_bytes")], 100 << 20);
    assert_widths(
        &there["bars"][2],
        &[at(failed, "largest_held_bytes")],
        100 << 20,
    );
}

#[test]
fn every_moment_of_the_page_is_that_of_the_replay() {
    let (history, page, numbers) = tagged_page();
    for at in ["peak_active", "peak_reserved", "at_end"] {
        let at = &numbers[at];
        let there = page.run(&format!("at={}", at["moment"]), "return figures();");
        assert_eq!(number(&there["moment"]), number(&at["moment"]));
        assert_eq!(number(&there["active"]), number(&at["active_bytes"]));
        assert_eq!(number(&there["blocks"]), number(&at["active_blocks"]));
        assert_eq!(number(&there["inBlocks"]), number(&at["block_bytes"]));
        assert_eq!(number(&there["reserved"]), number(&at["reserved_bytes"]));
        assert_eq!(number(&there["free"]), number(&at["free"]["bytes"]));
        assert_eq!(number(&there["ranges"]), number(&at["free"]["ranges"]));
        assert_eq!(
            number(&there["largest"]),
            number(&at["free"]["largest_bytes"])
        );
    }
    // Moments that are neither: what the map draws as in use is what lives there, whole blocks.
    let moments = [0, 1, 17, 400, 1023, 1024, 1025, history.last_moment()];
    let list = format!("{moments:?}");
    let there = page.run(
        "",
        &format!("const all = []; for (const at of {list}) {{ location.hash = `at=${{at}}`; await sleep(50); await settle(); all.push(figures()); }} return all;"),
    );
    for (moment, there) in moments.into_iter().zip(there.as_array().unwrap()) {
        let lives = history
            .blocks
            .iter()
            .filter(|life| life.from < moment && life.to.is_none_or(|to| moment <= to));
        let (asked, whole) = lives.fold((0, 0), |(asked, whole), life| {
            (asked + life.requested_bytes, whole + life.class_bytes)
        });
        assert_eq!(number(&there["moment"]), moment as u64);
        assert_eq!(number(&there["active"]), asked, "{moment}");
        assert_eq!(number(&there["map"]), whole, "{moment}");
        assert_eq!(
            number(&there["reserved"]),
            whole + number(&there["free"]),
            "{moment}"
        );
    }
}

#[test]
fn what_is_reserved_falls_at_the_moment_at_which_a_segment_goes_back() {
    // Each block needs a segment of its own, and the room of those before it.
    let mut text = String::new();
    for (block, mib) in [40, 50, 60, 30, 70, 20, 80].into_iter().enumerate() {
        writeln!(text, "a {block} {} 0\nf {block}", mib << 20).unwrap();
    }
    let (_, page, _) = page_of(&text, &["--capacity", "100MiB"]);
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    let pool = PoolOptions::new().segments(true);
    let history = simulate(&trace, &Profile::H200, Some(100 << 20), &pool, &|_| {}).unwrap();
    assert!(history.segments.iter().any(|segment| segment.to.is_some()));
    let moments = history.last_moment();
    let there = page.run(
        "",
        &format!("const all = []; for (let at = 0; at <= {moments}; at++) {{ location.hash = `at=${{at}}`; await sleep(50); await settle(); all.push(figures()); }} return all;"),
    );
    for (moment, there) in there.as_array().unwrap().iter().enumerate() {
        let segments = history.segments.iter();
        let reserved: u64 = segments
            .filter(|segment| segment.from < moment && segment.to.is_none_or(|to| moment <= to))
            .map(|segment| segment.bytes)
            .sum();
        assert_eq!(number(&there["moment"]), moment as u64);
        assert_eq!(number(&there["reserved"]), reserved, "{moment}");
        let used = number(&there["inBlocks"]);
        assert_eq!(number(&there["free"]), reserved - used, "{moment}");
    }
}

#[test]
fn the_largest_groups_have_lines_of_their_own_and_all_others_share_one() {
    let mut text = String::new();
    for group in 0..14 {
        writeln!(text, "g {group} group {group:02}").unwrap();
    }
    for group in 0..14_u64 {
        writeln!(text, "a {group} {} 0 {group} {group}", (14 - group) << 20).unwrap();
    }
    let (_, page, _) = page_of(&text, &[]);
    let there = page.run(
        "",
        "const lines = () => all('.legend li:not(.sum):not(.none)').map(line => line.textContent);
         const seen = [];
         for (const at of [0, 1, 12, 14]) { location.hash = `at=${at}`; await sleep(50); await settle(); seen.push(lines()); }
         return seen;",
    );
    let own = |groups: usize| {
        let own = (0..groups).rev();
        own.map(|group| format!("group {group:02}{}", shown(&json!((14 - group) << 20))))
    };
    let with_others = |others: &str| [others.to_owned()].into_iter().chain(own(11));
    let lines = |lines: &mut dyn Iterator<Item = String>| lines.collect::<Vec<_>>();
    let expected = [
        lines(&mut own(0)),
        lines(&mut own(1)),
        lines(&mut with_others("3 others3.00 MiB")),
        lines(&mut with_others("3 others6.00 MiB")),
    ];
    assert_eq!(there, json!(expected));
}

/// This many events of two groups, of each of which a block of 1 MiB and very little else are left at the end.
fn turns(events: usize) -> String {
    let mut text = String::from("g 0 even\ng 1 odd\n");
    for block in 0..events / 2 {
        // The first of each group stays.
        writeln!(text, "a {block} 1048576 0 {block} {}", block % 2).unwrap();
        if block > 1 {
            writeln!(text, "f {block} {block}").unwrap();
        }
    }
    writeln!(text, "a 900001 1 0 900001 0\na 900002 2 0 900002 1").unwrap();
    text
}

#[test]
fn each_group_is_counted_at_every_moment_and_at_the_one_where_memory_runs_out() {
    // The page stores the sums after every so many events, a power of two.
    for events in [256, 300] {
        let whole = turns(events);
        let failing = format!("{whole}a 900003 {} 0 900003 0\n", 1_u64 << 40);
        for (text, last) in [(whole, events), (failing, events + 1)] {
            let (_, page, numbers) = page_of(&text, &[]);
            assert_eq!(numbers["events"], last);
            assert_eq!(numbers["out_of_memory"].is_null(), last == events);
            let moments = [last - 2, last - 1, last];
            let there = page.run(
                "",
                &format!("const seen = [];
                 for (const at of {moments:?}) {{
                   location.hash = `at=${{at}}`; await sleep(50); await settle();
                   seen.push([figures().moment, ...all('.legend li:not(.sum) .number').map(value => value.textContent)]);
                 }}
                 return seen;"),
            );
            let expected = moments.map(|moment| json!([moment, "1.00 MiB", "1.00 MiB"]));
            assert_eq!(there, json!(expected), "of {last}");
        }
    }
}

#[test]
fn the_table_has_a_row_for_each_group_and_is_sorted_by_any_column() {
    let (history, page, numbers) = tagged_page();
    let there = page.run(
        "",
        "const rows = () => all('#groups tbody tr').map(row => [...row.children].map(cell => cell.textContent));
         const titles = all('#groups thead button');
         const first = rows();
         await click(titles[0]); const byName = rows().map(row => row[0]);
         await click(titles[0]); const back = rows().map(row => row[0]);
         await click(titles[4]); const byEnd = rows().map(row => row[4]);
         return { first, byName, back, byEnd, sorted: all('#groups th[aria-sort]').map(it => it.textContent) };",
    );
    let groups = numbers["groups"].as_array().unwrap();
    let rows = there["first"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    // The page opens at the peak.
    let now = groups_at(&history, number(&numbers["peak_active"]["moment"]));
    for group in groups {
        let row = rows.iter().find(|row| row[0] == group["name"]).unwrap();
        assert_eq!(row[1], shown(&group["peak_bytes"]));
        assert_eq!(event_of(&row[2]), group["peak_moment"]);
        let now = now.iter().find(|(name, _)| *name == group["name"]);
        assert_eq!(row[3], shown(&json!(now.map_or(0, |(_, bytes)| *bytes))));
        assert_eq!(row[4], shown(&group["end_bytes"]));
        assert_eq!(row[5], group["end_blocks"].to_string());
        assert_eq!(row[6], group["blocks"].to_string());
    }
    assert_eq!(rows[0][0], "weights");
    assert_eq!(
        there["byName"],
        json!(["activations", "leaky cache", "scratch", "weights"])
    );
    assert_eq!(
        there["back"],
        json!(["weights", "scratch", "leaky cache", "activations"])
    );
    assert_eq!(
        there["byEnd"],
        json!(["80.0 MiB", "3.53 MiB", "0 B", "0 B"])
    );
    assert_eq!(there["sorted"], json!(["In use at the end"]));
}

#[test]
fn the_pictures_are_drawn_in_both_themes() {
    let (_, page, _) = tagged_page();
    let script = "return { chart: colors(chart()), map: colors(map()), whole: colors(one('.whole')), theme: document.documentElement.dataset.theme,
         ground: getComputedStyle(document.body).backgroundColor, weights: colorOf('weights'),
         bottom: isColored(chart(), 500, chart().height - 34, colorOf('weights')), top: isColored(chart(), 500, 16, colorOf('weights')) };";
    for theme in ["light", "dark"] {
        let there = page.run(&format!("theme={theme}"), script);
        assert_eq!(there["theme"], theme);
        let weights = there["weights"].as_str().unwrap();
        for canvas in ["chart", "map"] {
            let colors = there[canvas].as_object().unwrap();
            assert!(colors.len() > 6, "{canvas}, {theme}: {colors:?}");
            assert!(
                colors[weights].as_u64().unwrap() > 2000,
                "{canvas}, {theme}: {colors:?}"
            );
        }
        assert!(there["whole"].as_object().unwrap().len() > 3);
        // Weights are at the bottom of the stack; nothing is as high as the top.
        assert_eq!(
            (&there["bottom"], &there["top"]),
            (&json!(true), &json!(false))
        );
    }
    let grounds = ["light", "dark"]
        .map(|theme| page.run(&format!("theme={theme}"), script)["ground"].clone());
    assert_ne!(grounds[0], grounds[1]);
}

#[test]
fn the_theme_is_switched_by_a_button_and_a_key_and_kept_in_the_address() {
    let (_, page, _) = tagged_page();
    let there = page.run(
        "",
        "const seen = [document.documentElement.dataset.theme];
         await click(one('#theme')); seen.push(document.documentElement.dataset.theme, location.hash);
         await key('t'); seen.push(document.documentElement.dataset.theme, location.hash);
         return seen;",
    );
    assert_eq!(
        there,
        json!(["light", "dark", "#theme=dark", "light", "#theme=light"])
    );
}

#[test]
fn the_wheel_zooms_around_the_pointer() {
    let (_, page, numbers) = tagged_page();
    let there = page.run(
        "clock=events",
        "const c = chart(); const width = c.clientWidth - 66 - 14; const x = 66 + width / 4;
         await pointer(c, 'wheel', x, 100, { deltaY: -600, ctrlKey: true }); const nearer = range();
         await pointer(c, 'pointermove', x, 200);
         const tip = text('#tooltip .tip-title');
         await pointer(c, 'wheel', x, 100, { deltaY: -200, ctrlKey: true }); const nearest = range();
         await pointer(c, 'wheel', x, 100, { deltaX: 300 }); const moved = range();
         await pointer(c, 'wheel', x, 100, { deltaY: 5000, ctrlKey: true }); const far = range();
         return { nearer, nearest, moved, far, tip };",
    );
    let of = |name: &str| {
        let ends = there[name].as_array().unwrap();
        (ends[0].as_f64().unwrap(), ends[1].as_f64().unwrap())
    };
    let before = (0.0, numbers["events"].as_f64().unwrap() + 1.0);
    let (nearer, nearest, moved) = (of("nearer"), of("nearest"), of("moved"));
    let span = |(from, to): (f64, f64)| to - from;
    // 1.0018 to the power of 600 is 2.94.
    assert!(
        (span(before) / span(nearer) - 2.94).abs() < 0.05,
        "{nearer:?} of {before:?}"
    );
    let quarter = |(from, to): (f64, f64)| from + (to - from) / 4.0;
    assert!(
        (quarter(nearer) - quarter(before)).abs() < 2.0,
        "{nearer:?} of {before:?}"
    );
    assert!(
        (quarter(nearest) - quarter(nearer)).abs() < 1.0,
        "{nearest:?} of {nearer:?}"
    );
    assert!(span(nearest) < span(nearer));
    // The event under the pointer, give or take what a column of pixels is.
    let event: String = there["tip"]
        .as_str()
        .unwrap()
        .chars()
        .filter(char::is_ascii_digit)
        .take(3)
        .collect();
    assert!(
        (event.parse::<f64>().unwrap() - quarter(nearer)).abs() < 5.0,
        "{event} in {nearer:?}"
    );
    assert!((span(moved) - span(nearest)).abs() < 0.01 && moved.0 > nearest.0);
    assert_eq!(there["far"], Value::Null, "all of it is seen again");
}

#[test]
fn keys_zoom_move_and_reset() {
    let (_, page, numbers) = tagged_page();
    let there = page.run(
        "clock=events",
        "const seen = {};
         for (const [name, keys] of [['in', '+'], ['in2', '+'], ['out', '-'], ['right', 'ArrowRight'], ['left', 'ArrowLeft'], ['reset', '0']]) {
           await key(keys); seen[name] = range();
         }
         return seen;",
    );
    let span = |name: &str| there[name][1].as_f64().unwrap() - there[name][0].as_f64().unwrap();
    let events = numbers["events"].as_f64().unwrap() + 1.0;
    assert!((span("in") - events / 1.6).abs() < 0.01);
    assert!((span("in2") - events / 1.6 / 1.6).abs() < 0.01);
    assert!((span("out") - span("in")).abs() < 0.01);
    let peak = numbers["peak_active"]["moment"].as_f64().unwrap();
    assert!(there["in2"][0].as_f64().unwrap() < peak && peak < there["in2"][1].as_f64().unwrap());
    assert!(there["right"][0].as_f64() > there["out"][0].as_f64());
    assert!((span("right") - span("out")).abs() < 0.01);
    assert!(there["left"][0].as_f64() < there["right"][0].as_f64());
    assert_eq!(there["reset"], Value::Null);
}

#[test]
fn dragging_moves_and_a_click_pins_the_moment_under_it() {
    let (_, page, numbers) = tagged_page();
    let there = page.run(
        "clock=events&range=500~1500",
        "const c = chart(); const width = c.clientWidth - 80;
         const drag = async (from, to, more) => {
           await pointer(c, 'pointerdown', 66 + width * from, 100, more);
           await pointer(c, 'pointermove', 66 + width * to, 100, { buttons: 1, ...more });
           await pointer(c, 'pointerup', 66 + width * to, 100, more);
         };
         const before = figures().moment;
         await drag(0.5, 0.3); const moved = range(); const still = figures().moment;
         await drag(0.25, 0.25); const pinned = figures();
         await key('.'); const behind = figures().moment;
         await key(','); await key(','); const ahead = figures().moment;
         await key('>'); const far = figures().moment; await key('<'); const near = figures().moment;
         await drag(0.4, 0.6, { shiftKey: true }); await key('z'); const selected = range();
         await key('e'); const end = figures();
         await key('p'); const peak = figures();
         return { before, moved, still, pinned, behind, ahead, far, near, selected, end, peak, hash: location.hash };",
    );
    assert_eq!(there["before"], there["still"]);
    let near = |value: &Value, expected: f64| {
        let value = value.as_f64().unwrap();
        assert!(
            (value - expected).abs() < 3.0,
            "{value}, expected about {expected}: {there}"
        );
    };
    near(&there["moved"][0], 700.0);
    near(&there["moved"][1], 1700.0);
    near(&there["pinned"]["moment"], 950.0);
    let pinned = number(&there["pinned"]["moment"]);
    assert_eq!(number(&there["behind"]), pinned + 1);
    assert_eq!(number(&there["ahead"]), pinned - 1);
    assert_eq!(number(&there["far"]), pinned + 99);
    assert_eq!(number(&there["near"]), pinned - 1);
    near(&there["selected"][0], 1100.0);
    near(&there["selected"][1], 1300.0);
    assert_eq!(
        number(&there["end"]["active"]),
        number(&numbers["at_end"]["active_bytes"])
    );
    assert_eq!(
        number(&there["peak"]["active"]),
        number(&numbers["peak_active"]["active_bytes"])
    );
    let hash = there["hash"].as_str().unwrap();
    assert!(
        hash.contains(&format!("at={}", numbers["peak_active"]["moment"])),
        "{hash}"
    );
}

#[test]
fn the_range_stays_on_the_axis_and_as_wide_as_it_should_be() {
    let (_, page, numbers) = tagged_page();
    let there = page.run(
        "clock=events&range=0~500",
        "const c = chart(); const width = c.clientWidth - 80; const seen = {}; c.focus();
         const strip = async part => { await pointer(one('.whole'), 'pointerdown', 66 + width * part, 10, { buttons: 1 }); return range(); };
         await pointer(c, 'wheel', 66 + width * 0.9, 100, { deltaY: 200, ctrlKey: true }); seen.atStart = range();
         seen.middle = await strip(0.5); seen.start = await strip(0); seen.end = await strip(1);
         await pointer(c, 'wheel', 66 + width * 0.1, 100, { deltaY: 200, ctrlKey: true }); seen.atEnd = range();
         return seen;",
    );
    let last = numbers["events"].as_f64().unwrap() + 1.0;
    let near = |name: &str, from: f64, to: f64| {
        let found = [0, 1].map(|end| there[name][end].as_f64().unwrap());
        let off = (found[0] - from).abs().max((found[1] - to).abs());
        assert!(off < 3.0, "{name}: {found:?}, expected {from} to {to}");
    };
    // 1.0018 to the power of 200 is 1.433. What would lie before the first event is seen after the last one shown.
    let span = 500.0 * 1.433;
    near("atStart", 0.0, span);
    // A click on the strip shows what lies around it.
    near("middle", (last - span) / 2.0, f64::midpoint(last, span));
    near("start", 0.0, span);
    near("end", last - span, last);
    near("atEnd", last - span * 1.433, last);
}

#[test]
fn keys_lead_from_one_end_to_the_other_and_the_range_follows() {
    let (_, page, numbers) = tagged_page();
    let there = page.run(
        "clock=events&range=500~1500&at=100",
        "const seen = { moments: [] };
         await key('+'); seen.aroundMiddle = range();
         await key('-'); location.hash = 'clock=events&range=500~1500&at=600'; await sleep(50); await settle();
         await key('+'); seen.aroundPinned = range();
         await key('-'); await key('e'); seen.atEnd = range();
         for (const by of ['e', '.', '>', ',', '<']) { await key(by); seen.moments.push(figures().moment); }
         location.hash = 'clock=events&at=1'; await sleep(50); await settle();
         for (const by of [',', ',', '<']) { await key(by); seen.moments.push(figures().moment); }
         await pointer(chart(), 'pointermove', 500, 100); const inside = one('#tooltip').hidden;
         await pointer(chart(), 'pointermove', 40, 100); seen.hidden = [inside, one('#tooltip').hidden];
         return seen;",
    );
    let near = |name: &str, from: f64, to: f64| {
        let found = [0, 1].map(|end| there[name][end].as_f64().unwrap());
        let off = (found[0] - from).abs().max((found[1] - to).abs());
        assert!(off < 0.01, "{name}: {found:?}, expected {from} to {to}");
    };
    // The pinned moment stays where it is, or the middle where that is out of sight.
    near("aroundMiddle", 1000.0 - 500.0 / 1.6, 1000.0 + 500.0 / 1.6);
    near("aroundPinned", 600.0 - 100.0 / 1.6, 600.0 + 900.0 / 1.6);
    let last = numbers["events"].as_u64().unwrap();
    let end = numbers["events"].as_f64().unwrap() + 1.0;
    near("atEnd", end - 1000.0, end);
    let moments = json!([last, last, last, last - 1, last - 101, 0, 0, 0]);
    assert_eq!(there["moments"], moments);
    assert_eq!(there["hidden"], json!([false, true]));
}

#[test]
fn a_column_of_pixels_shows_the_moments_that_begin_in_it() {
    let (_, page, _) = page_of("a 0 1 0\n", &[]);
    let page = with_functions(&page, "Program, Timeline");
    let there = page.run(
        "",
        "const none = [], three = [0, 0, 0];
         // Three allocations and a free, at 5, 5, 8 and 10 ns.
         const columns = { frees: [0, 0, 0, 1], times: [5, 0, 3, 2], asked: [1, 2, 4], more: three, segment: three, offset: three,
           segment_bytes: [6, 1], segment_from: [0, 2], segment_to: [0, 4] };
         const program = new Program({ numbers: { events: 4, stacks: [], shortages: [], pool_events: [] }, columns, groupings: none });
         const shown = (clock, ...range) => {
           const { moments, reserved } = Timeline.prototype.columns.call({ program, clock }, ...range);
           return [[...moments], [...reserved]];
         };
         return { places: [0, 1, 2, 3, 4].map(moment => program.place(moment, 'time')),
           moments: [4, 5, 7, 8, 9.9, 10, 99].map(place => program.momentAt(place, 'time')),
           events: [-1, 0, 2.7, 3, 4, 9].map(place => program.momentAt(place, 'events')),
           each: shown('events', 5, 0, 5), pairs: shown('events', 2, 0, 4), byTime: shown('time', 3, 5, 11) };",
    );
    assert_eq!(there["places"], json!([5, 5, 5, 8, 10]));
    assert_eq!(there["moments"], json!([0, 2, 2, 3, 3, 4, 4]));
    assert_eq!(there["events"], json!([0, 0, 2, 3, 4, 4]));
    assert_eq!(there["each"], json!([[0, 1, 2, 3, 4], [0, 6, 6, 7, 6]]));
    // The one of the two at which more is in use; the last column reaches to the end of the axis.
    assert_eq!(there["pairs"], json!([[1, 3], [6, 7]]));
    // From 5 to 7, to 9, and to 11 ns.
    assert_eq!(there["byTime"], json!([[2, 3, 3], [6, 7, 7]]));
}

#[test]
fn the_axis_shows_times_or_events() {
    let (_, page, _) = tagged_page();
    let there = page.run(
        "",
        "const seen = [text('#moment'), one('[aria-label=\"The axis\"] [aria-checked=true]').textContent];
         await key('+'); const [from, to] = range(); seen.push(to - from > 1e6);
         await key('c'); seen.push(text('#moment'), range());
         await key('+'); seen.push(range()[1] < 3000, location.hash.includes('clock=events'));
         return seen;",
    );
    assert_eq!(there[1], "Time");
    assert_eq!(there[2], true, "nanoseconds");
    assert!(there[0].as_str().unwrap().contains("s (event "), "{there}");
    assert!(
        there[3].as_str().unwrap().starts_with("at event "),
        "{there}"
    );
    assert_eq!(there[4], Value::Null);
    assert_eq!((&there[5], &there[6]), (&json!(true), &json!(true)));
}

#[test]
fn what_is_reserved_can_be_hidden_so_that_what_is_in_use_has_the_whole_height() {
    let (_, page, _) = tagged_page();
    let there = page.run(
        "",
        "const heights = () => { const c = chart(); let y = 20; while (y < c.height - 40 && !isColored(c, 300, y, colorOf('weights'))) y++; return y; };
         const seen = [heights(), one('.legend .sum button').getAttribute('aria-pressed')];
         await key('r'); seen.push(heights(), location.hash, one('.legend .sum button').getAttribute('aria-pressed'));
         await click(one('.legend .sum button')); seen.push(heights(), location.hash);
         return seen;",
    );
    assert_eq!((&there[1], &there[4]), (&json!("true"), &json!("false")));
    assert_eq!(there[3], "#reserved=hidden");
    assert!(number(&there[2]) < number(&there[0]), "higher up: {there}");
    assert_eq!((&there[5], &there[6]), (&there[0], &json!("")));
}

#[test]
fn blocks_are_told_apart_by_what_the_switch_says() {
    let (_, page, numbers) = tagged_page();
    let there = page.run(
        "",
        "const names = () => all('.legend li:not(.sum) .name').map(name => name.textContent);
         const seen = [names()];
         await key('g'); seen.push(names());
         await key('g'); seen.push(names());
         await click(one('[data-value=group]')); seen.push(names());
         return seen;",
    );
    let names = |by: &str| {
        let mut rows: Vec<&Value> = numbers[by].as_array().unwrap().iter().collect();
        // The largest at the bottom, as in the picture.
        rows.sort_by_key(|row| row["peak_bytes"].as_u64());
        json!(rows.iter().map(|row| &row["name"]).collect::<Vec<_>>())
    };
    assert_eq!(there[0], names("groups"));
    assert_eq!(there[1], names("sizes"));
    assert_eq!(there[2], names("streams"));
    assert_eq!(there[3], there[0]);
}

#[test]
fn hovering_tells_what_is_there() {
    /// The digits of a text, after `mark`.
    fn digits_behind(text: &Value, mark: &str) -> String {
        let (_, behind) = text.as_str().unwrap().split_once(mark).unwrap();
        behind.chars().filter(char::is_ascii_digit).collect()
    }

    let (history, page, numbers) = tagged_page();
    let moment = 25;
    let peak = format!(
        "const peak = ({} + 0.5) / ({} + 1);",
        numbers["peak_active"]["moment"], numbers["events"]
    );
    let script = "
         const rows = () => Object.fromEntries(all('#tooltip dt').map(title => [title.textContent, title.nextSibling.textContent]));
         const c = chart();
         await pointer(c, 'pointermove', 700, c.clientHeight - 40); const below = rows();
         await pointer(c, 'pointermove', 700, 16); const above = rows();
         const layers = [];
         for (let y = c.clientHeight - 40; y > 20; y -= 3) {
           await pointer(c, 'pointermove', 66 + peak * (c.clientWidth - 80), y);
           const name = text('#tooltip dt');
           if (layers.at(-1) !== name) layers.push(name);
         }
         await pointer(c, 'pointerleave', 0, 0); const hidden = one('#tooltip').hidden;
         const blocks = [];
         for (let x = 2; x < map().clientWidth; x += 7) {
           await pointer(map(), 'pointermove', x, 12);
           if (!one('#tooltip').hidden) blocks.push({ title: text('#tooltip .tip-title'), ...rows() });
         }
         return { below, above, layers, hidden, blocks };";
    let there = page.run(&format!("clock=events&at={moment}"), &(peak + script));
    assert_eq!(there["below"]["weights"], "80.0 MiB");
    assert!(there["below"]["reserved"].is_string() && there["above"]["weights"].is_null());
    // From the bottom of the stack upwards.
    let layers = there["layers"].as_array().unwrap();
    assert_eq!(layers[..2], ["weights", "activations"], "{layers:?}");
    assert_eq!(
        layers[layers.len() - 2..],
        ["held, free", "in use"],
        "{layers:?}"
    );
    assert_eq!(there["hidden"], true);
    // Each block that the map tells of is one that lives, in its place.
    let blocks = there["blocks"].as_array().unwrap();
    let in_use = blocks.iter().filter(|block| block["asked"].is_string());
    assert!(in_use.clone().count() > 20, "{blocks:?}");
    for block in in_use {
        let allocated = block["allocated"].as_str().unwrap();
        let mut lives = history.blocks.iter();
        let life = lives.find(|life| allocated.starts_with(&format!("event {} ", life.from + 1)));
        let life = life.unwrap_or_else(|| panic!("{block}"));
        let lives = life.from < moment && life.to.is_none_or(|to| moment <= to);
        assert!(lives, "{block}");
        assert_eq!(
            digits_behind(&block["asked"], "("),
            life.requested_bytes.to_string()
        );
        assert_eq!(
            digits_behind(&block["place"], "byte"),
            life.offset.to_string()
        );
        assert_eq!(block["stream"], life.stream.to_string());
    }
}

#[test]
fn each_block_is_told_with_its_whole_life_on_the_map_and_in_the_list() {
    let (history, page, _) = tagged_page();
    let trace = Trace::parse("t", tagged().as_bytes()).unwrap();
    // Some blocks were freed before, and some are freed later.
    let moment = 60;
    let there = page.run(
        &format!("at={moment}"),
        "const told = [];
         for (let press = 'Home', place; ; press = 'ArrowRight') {
           await key(press, map());
           const rows = Object.fromEntries(all('#tooltip dt').map(title => [title.textContent, title.nextSibling.textContent]));
           if (rows.place === place) break;
           place = rows.place;
           if (rows.asked) told.push(rows);
         }
         one('#blocks').open = true; await settle();
         return { told, list: all('#blocks tbody tr').map(row => [...row.children].map(cell => cell.textContent)) };",
    );
    let in_full = |bytes: u64| -> Value { json!(bytes.to_string()) };
    let digits = |text: &Value| -> Value {
        let (_, bytes) = text.as_str().unwrap().split_once('(').unwrap();
        json!(
            bytes
                .chars()
                .filter(char::is_ascii_digit)
                .collect::<String>()
        )
    };
    let life_of = |allocated: &Value| {
        let event = event_of(allocated) - 1;
        let block = history.blocks.iter().position(|life| life.from == event);
        (block.unwrap(), &history.blocks[block.unwrap()])
    };
    let freed = |text: &Value, to: Option<usize>| match to {
        Some(to) => assert_eq!(event_of(text), to + 1),
        None => assert_eq!(text, "never"),
    };
    // An allocation takes a millisecond, and all is younger than a hundred.
    let age = |from: usize| match (history.times[moment - 1] - history.times[from]) / 1_000_000 {
        0 => "0 ns".to_owned(),
        ms @ 1..10 => format!("{ms}.00 ms"),
        ms => format!("{ms}.0 ms"),
    };
    let lives = history.blocks.iter();
    let lives = lives.filter(|life| life.from < moment && life.to.is_none_or(|to| moment <= to));
    let count = lives.count();
    let told = there["told"].as_array().unwrap();
    assert_eq!(told.len(), count);
    for told in told {
        let (block, life) = life_of(&told["allocated"]);
        assert_eq!(digits(&told["asked"]), in_full(life.requested_bytes));
        assert_eq!(digits(&told["class"]), in_full(life.class_bytes));
        assert_eq!(told["group"], trace.group_of(block).unwrap());
        assert_eq!(told["stream"], life.stream.to_string());
        freed(&told["freed"], life.to);
        let events = moment - (life.from + 1);
        let events = format!("{events} event{}", if events == 1 { "" } else { "s" });
        assert_eq!(told["age"], format!("{}, {events}", age(life.from)));
    }
    let list = there["list"].as_array().unwrap();
    assert_eq!(list.len(), count);
    for row in list {
        let (block, life) = life_of(&row[4]);
        assert_eq!(row[0], trace.group_of(block).unwrap());
        assert_eq!(row[1], shown(&json!(life.requested_bytes)));
        assert_eq!(row[2], shown(&json!(life.class_bytes)));
        assert_eq!(row[3], (life.segment.unwrap() + 1).to_string());
        freed(&row[5], life.to);
        assert_eq!(row[6], age(life.from));
    }
}

#[test]
fn the_map_can_be_walked_by_keys() {
    let (history, page, _) = tagged_page();
    let moment = 25;
    let there = page.run(
        &format!("clock=events&at={moment}"),
        "const rows = () => ({ title: text('#tooltip .tip-title'),
           ...Object.fromEntries(all('#tooltip dt').map(title => [title.textContent, title.nextSibling.textContent])) });
         map().focus(); const label = map().getAttribute('aria-label');
         const walk = async (by, from) => {
           const seen = [await press(from)];
           for (;;) {
             const here = await press(by);
             if (here.place === seen.at(-1).place) return seen;
             seen.push(here);
           }
         };
         const press = async by => { await key(by, map()); return rows(); };
         const forth = await walk('ArrowRight', 'Home'); const back = await walk('ArrowLeft', 'End');
         const first = await press('Home'); const below = await press('ArrowDown'); const above = await press('ArrowUp');
         const spoken = map().parentNode.querySelector('.spoken').textContent; const mark = map().parentNode.querySelector('.map-mark').getBoundingClientRect().width;
         await key('Enter', map()); const lens = text('.lens-title'); await key('Enter', map()); const closed = one('.lens').hidden;
         map().blur(); await settle();
         return { forth, back, first, below, above, spoken, mark, lens, closed, label, hidden: one('#tooltip').hidden,
           panned: location.hash.includes('range='), focusable: document.activeElement !== map() && map().tabIndex === 0 };",
    );
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let places = |way: &str| -> Vec<String> {
        let ranges = there[way].as_array().unwrap().iter();
        ranges.map(|range| text(&range["place"])).collect()
    };
    // Each range once: every block that lives, and what is free between them.
    let forth = places("forth");
    let mut once = forth.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), forth.len());
    let asked = |range: &&Value| range["asked"].is_string();
    let walked = there["forth"].as_array().unwrap().iter().filter(asked);
    let lives = history.blocks.iter();
    let lives = lives.filter(|life| life.from < moment && life.to.is_none_or(|to| moment <= to));
    assert_eq!(walked.count(), lives.count());
    let mut back = places("back");
    back.reverse();
    assert_eq!(back, forth);
    // Up and down lead to other segments; what is marked is told, too.
    assert_eq!(text(&there["first"]["place"]), forth[0]);
    assert_ne!(there["below"]["place"], there["first"]["place"]);
    let spoken = text(&there["spoken"]);
    assert!(
        spoken.starts_with(&text(&there["above"]["title"])),
        "{spoken}"
    );
    assert!(
        spoken.ends_with(&text(&there["above"]["place"])),
        "{spoken}"
    );
    assert!(there["mark"].as_f64().unwrap() > 2.0, "{there}");
    assert!(text(&there["label"]).contains("segments of"), "{there}");
    let segment = text(&there["above"]["place"]);
    let segment = segment.split(',').next().unwrap();
    assert!(text(&there["lens"]).starts_with(segment), "{there}");
    let seen = ["closed", "hidden", "panned", "focusable"].map(|what| &there[what]);
    assert_eq!(seen, [true, true, false, true]);
}

#[test]
fn a_click_enlarges_a_segment_and_all_blocks_can_be_listed() {
    let (history, page, numbers) = tagged_page();
    let there = page.run(
        "",
        "const seen = { before: one('.lens').hidden };
         await pointer(map(), 'click', 5, 12);
         const lens = one('.lens .map');
         await pointer(lens, 'pointermove', 5, 20);
         Object.assign(seen, { open: !one('.lens').hidden, title: text('.lens-title'), tip: text('#tooltip'), wide: lens.clientWidth > 600,
           colors: Object.keys(colors(lens)).length });
         await key('e'); seen.stays = text('.lens-title');
         await key('p'); await click(one('.lens button')); seen.closed = one('.lens').hidden;
         one('#blocks').open = true; await settle();
         seen.summary = text('#blocks summary');
         seen.rows = all('#blocks tbody tr').map(row => [...row.children].map(cell => cell.textContent));
         await click(all('#blocks tbody .link')[0]); seen.pinned = figures().moment;
         return seen;",
    );
    assert_eq!(there["before"], true);
    assert_eq!(
        (&there["open"], &there["wide"]),
        (&json!(true), &json!(true))
    );
    let title = there["title"].as_str().unwrap();
    assert!(
        title.starts_with("segment ") && title.contains("in use"),
        "{title}"
    );
    // The block under the fifth pixel of more than 600 begins in the first hundredth of the segment.
    let tip = there["tip"].as_str().unwrap();
    let (_, place) = tip.rsplit_once("at byte ").unwrap();
    let place: u64 = place.replace(',', "").parse().unwrap();
    assert!(place < 645 << 10, "{there}");
    assert!(there["colors"].as_u64().unwrap() >= 2);
    let number: usize = title["segment ".len()..title.find(':').unwrap()]
        .parse()
        .unwrap();
    let moment = usize::try_from(numbers["peak_active"]["moment"].as_u64().unwrap()).unwrap();
    let used = history.blocks.iter().filter(|life| {
        let is_there = life.from < moment && life.to.is_none_or(|to| moment <= to);
        is_there && life.segment == Some(number - 1)
    });
    let bytes: u64 = used.clone().map(|life| life.class_bytes).sum();
    let whole = history.segments[number - 1].bytes;
    let [whole, bytes] = [whole, bytes].map(|bytes| shown(&json!(bytes)));
    let blocks = match used.count() {
        1 => "1 block".to_owned(),
        blocks => format!("{blocks} blocks"),
    };
    let expected = format!("{whole}, of which {bytes} are in use, in {blocks}");
    assert!(title.ends_with(&expected), "{title}, expected {expected}");
    let name = |title: &Value| {
        title
            .as_str()
            .unwrap()
            .split(':')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!(name(&there["stays"]), name(&there["title"]));
    assert_eq!(there["closed"], true);
    let peak = &numbers["peak_active"];
    let blocks = peak["active_blocks"].as_u64().unwrap();
    let summary = there["summary"].as_str().unwrap();
    assert!(
        summary.starts_with(&format!("The {blocks} blocks at this moment")),
        "{summary}"
    );
    let rows = there["rows"].as_array().unwrap();
    assert_eq!(rows.len() as u64, blocks);
    // The largest first: the weights, the first of which is the first block of all, and is never freed.
    assert_eq!(rows[0][0], "weights");
    assert_eq!(rows[0][1], shown(&json!(history.blocks[0].requested_bytes)));
    assert_eq!(rows[0][2], shown(&json!(history.blocks[0].class_bytes)));
    assert_eq!(
        rows[0][3],
        (history.blocks[0].segment.unwrap() + 1).to_string()
    );
    assert_eq!(rows[0][5], "never");
    assert_eq!(there["pinned"], 1.0);
}

#[test]
fn long_lists_have_the_largest_blocks_and_say_how_many_are_left_out() {
    let mut text = String::new();
    for block in 0..5002 {
        writeln!(text, "a {block} {} 0", block + 1).unwrap();
    }
    let (_, page, _) = page_of(&text, &[]);
    let there = page.run(
        "at=5002",
        "one('#blocks').open = true; await settle();
         const sizes = () => all('#blocks tbody tr').map(row => row.children[1].textContent);
         const seen = { summary: text('#blocks summary'), more: text('#blocks .more'), rows: sizes().length, first: sizes()[0] };
         await click(all('#blocks thead button')[1]); seen.smallest = sizes()[0];
         return seen;",
    );
    let expected = json!({
        "summary": "The 5,002 blocks at this moment, one by one, the largest 5,000", "more": "and 4,800 more", "rows": 200,
        "first": "4.88 KiB", "smallest": "3 B",
    });
    assert_eq!(there, expected);
}

#[test]
fn no_peak_is_lost_however_many_events_a_pixel_has() {
    let mut text = String::new();
    for pair in 0..30_000 {
        let bytes = if pair == 17_123 { 1 << 30 } else { 4096 };
        writeln!(text, "a {pair} {bytes} 0\nf {pair}").unwrap();
    }
    let (_, page, numbers) = page_of(&text, &[]);
    let peak = numbers["peak_active"]["moment"].as_u64().unwrap();
    assert_eq!(peak, 2 * 17_123 + 1);
    let there = page.run(
        "reserved=hidden",
        &format!(
            "const c = chart(); const x = Math.floor(66 + ({peak} + 0.5) / 60001 * (c.clientWidth - 80));
             await pointer(c, 'pointermove', x + 0.5, 200);
             const rows = Object.fromEntries(all('#tooltip dt').map(title => [title.textContent, title.nextSibling.textContent]));
             const drawn = [190, 200, 202, 204].some(y => [-1, 0, 1].some(aside => pixel(c, x + aside, y) === colorOf('512 MiB – 1 GiB')));
             return {{ rows, title: text('.tip-title'), drawn }};"
        ),
    );
    assert_eq!(there["rows"]["in use"], "1.00 GiB");
    assert_eq!(there["title"], "event 34,247");
    assert_eq!(there["drawn"], true);
}

#[test]
fn a_replay_that_runs_out_of_memory_is_explained() {
    let (_, page, numbers) = page_of(&tagged(), &["--capacity", "100MiB"]);
    let failed = &numbers["out_of_memory"];
    let there = page.run(
        "",
        "return { verdict: text('#verdict'), advice: text('#advice'), badge: text('#shortage .badge'), requested: text('#shortage-requested'),
           active: text('#shortage-active'), reserved: text('#shortage-reserved'), held: text('#shortage-held'), largest: text('#shortage-largest'), capacity: text('#shortage-capacity'),
           sentence: text('#ran-out p:nth-of-type(2)'), pending: text('#shortage-pending'), released: text('#shortage-released'), block: text('#shortage-block'), group: text('#shortage-group'), card: text('#ran-out strong'), where: text('.where'),
           parts: all('#shortage-parts li').map(part => part.textContent), moment: figures().moment, ...redLines() };",
    );
    let verdict = there["verdict"].as_str().unwrap();
    assert!(
        verdict.contains(failed["reason"].as_str().unwrap()),
        "{verdict}"
    );
    assert!(
        verdict.starts_with(&shown(&failed["requested_bytes"])),
        "{verdict}"
    );
    assert_eq!(
        there["badge"],
        failed["verdict"].as_str().unwrap().replace('_', " ")
    );
    assert_eq!(there["advice"], failed["advice"]);
    assert!(!failed["advice"].as_str().unwrap().is_empty());
    for (id, field) in [
        ("requested", "requested_bytes"),
        ("active", "active_bytes"),
        ("reserved", "reserved_bytes"),
        ("held", "held_bytes"),
        ("largest", "largest_held_bytes"),
        ("pending", "pending_bytes"),
        ("released", "released_bytes"),
        ("capacity", "capacity_bytes"),
        ("block", "largest_block_bytes"),
    ] {
        let text = there[id].as_str().unwrap();
        let bytes = failed[field].as_u64().unwrap();
        let whole = text.split('(').next_back().unwrap();
        let digits: String = whole.chars().filter(char::is_ascii_digit).collect();
        assert_eq!(digits, bytes.to_string(), "{id}: {text}");
    }
    let reason = failed["reason"].as_str().unwrap();
    let in_use = shown(&failed["active_bytes"]);
    let sentence = there["sentence"].as_str().unwrap().replace(',', "");
    let reserved = shown(&failed["reserved_bytes"]);
    let expected = format!("It failed because {reason}: {in_use} in use {reserved} reserved. ");
    assert!(sentence.starts_with(&expected), "{sentence}");
    assert_eq!(there["group"], failed["group"]);
    assert_eq!(there["card"], shown(&failed["requested_bytes"]));
    assert!(
        there["where"]
            .as_str()
            .unwrap()
            .contains("program.trace, line "),
        "{there}"
    );
    assert_eq!(there["moment"], numbers["events"].as_f64().unwrap());
    let parts = there["parts"].as_array().unwrap();
    assert_eq!(parts[0], "weights80.0 MiB");
    assert!(
        parts
            .iter()
            .any(|part| part.as_str().unwrap().starts_with("held by the pool"))
    );
    // The line of the capacity, and the mark where memory ran out.
    assert!(number(&there["line"]) > 300, "{}", there["line"]);
    assert!(number(&there["mark"]) > 200, "{}", there["mark"]);
}

/// A pool that ran out of memory: a segment of 64 MiB, with a block that hostile hands named.
pub(crate) fn snapshot() -> Value {
    let mib = 1 << 20;
    json!({
        "format": "binpool snapshot", "version": 1, "unix_time_ms": 1_764_000_000_000_u64,
        "settings": {
            "device": "a device", "device_bytes": 128 * mib, "capacity_bytes": 96 * mib, "largest_block_bytes": 64 * mib,
            "alignment_bytes": 256, "segments": true, "reuse": "opportunistic", "scrub": "never", "is_holding": true, "is_watching": true,
        },
        "statistics": { "active_blocks": 2, "active_bytes": 30 * mib, "held_blocks": 2, "held_bytes": 34 * mib, "hits": 12345 },
        "segments": [{ "memory": 3, "bytes": 64 * mib, "ranges": [
            { "offset": 0, "bytes": 24 * mib, "state": "active", "requested_bytes": 24 * mib, "tag": "weights", "call_site": "a.rs:1:2",
              "queue": 4, "age_ns": 90_000_000_000_u64 },
            { "offset": 24 * mib, "bytes": 16 * mib, "state": "free" },
            { "offset": 40 * mib, "bytes": 6 * mib, "state": "active", "requested_bytes": 6 * mib, "tag": "<b>x</b></script>", "age_ns": 5_000_000 },
            { "offset": 46 * mib, "bytes": 18 * mib, "state": "pending" },
        ] }],
        "blocks": [],
        "out_of_memory": { "requested_bytes": 20 * mib, "class_bytes": 20 * mib, "held_bytes": 34 * mib, "pending_bytes": 18 * mib,
            "largest_held_bytes": 18 * mib, "released_bytes": 3 * mib, "verdict": "fragmented", "reason": "the free memory is fragmented",
            "advice": "free adjacent blocks", "tag": "weights" },
    })
}

/// The page of a snapshot.
pub(crate) fn snapshot_page(snapshot: &Value) -> Page {
    let folder = tempfile::tempdir().unwrap();
    let (file, html) = (
        folder.path().join("now.json"),
        folder.path().join("now.html"),
    );
    fs::write(&file, snapshot.to_string()).unwrap();
    let ran = binpool(&["view", file.to_str().unwrap(), "-o", html.to_str().unwrap()]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    Page::new(fs::read_to_string(html).unwrap())
}

#[test]
fn a_snapshot_shows_its_blocks_tables_and_why_memory_ran_out() {
    let page = snapshot_page(&snapshot());
    let there = page.run(
        "",
        "const seen = { used: text('#used strong'), held: text('#leaked strong'), verdict: text('#verdict'), advice: text('#advice'),
           charts: all('.chart').length, groups: all('#groups tbody tr').map(row => row.textContent),
           states: all('#states tbody tr').map(row => row.textContent), counters: text('#counters'), settings: text('#settings'),
           largest: text('#largest-free'), ranges: text('#free-ranges'), colors: Object.keys(colors(map())), bold: all('#page b').length };
         const width = map().clientWidth; seen.tips = [];
         for (const part of [0.1, 0.5, 0.65, 0.9]) {
           await pointer(map(), 'pointermove', width * part, 12);
           seen.tips.push(text('#tooltip'));
         }
         seen.weights = [colorOf('weights')];
         await key('g'); seen.sites = all('#groups tbody th').map(row => row.textContent);
         await key('t'); await key('g'); seen.dark = Object.keys(colors(map())); seen.weights.push(colorOf('weights'));
         return seen;",
    );
    assert_eq!(there["used"], "30.0 MiB");
    assert_eq!(there["held"], "34.0 MiB");
    assert_eq!(
        there["verdict"],
        "20.0 MiB could not be allocated: the free memory is fragmented."
    );
    assert_eq!(there["advice"], "free adjacent blocks");
    assert_eq!(there["charts"], 0, "one moment has no memory over time");
    assert_eq!(
        there["groups"],
        json!([
            "weights24.0 MiB24.0 MiB190.0 s",
            "<b>x</b></script>6.00 MiB6.00 MiB15.00 ms"
        ])
    );
    assert_eq!(there["bold"], 0);
    assert_eq!(there["states"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&there["largest"], &there["ranges"]),
        (&json!("18.0 MiB"), &json!("2"))
    );
    assert!(there["counters"].as_str().unwrap().contains("hits12,345"));
    assert!(
        there["settings"]
            .as_str()
            .unwrap()
            .contains("reuseopportunistic")
    );
    let colors = there["colors"].as_array().unwrap();
    assert!(colors.contains(&there["weights"][0]), "{colors:?}");
    let dark = there["dark"].as_array().unwrap();
    assert!(dark.contains(&there["weights"][1]), "{dark:?}");
    let tips = there["tips"].as_array().unwrap();
    let expected = [
        ["24.0 MiB in use", "tagweights"],
        ["16.0 MiB free", "segment 3"],
        ["6.00 MiB in use", "<b>x</b></script>"],
        ["18.0 MiB pending", "commands"],
    ];
    for (tip, expected) in tips.iter().zip(expected) {
        let tip = tip.as_str().unwrap();
        assert!(expected.iter().all(|part| tip.contains(part)), "{tip}");
    }
    assert!(tips[0].as_str().unwrap().contains("age90.0 s"), "{tips:?}");
    assert_eq!(there["sites"], json!(["a.rs:1:2", "(not known)"]));
}

#[test]
fn a_snapshot_says_what_is_reserved_held_and_beside_the_segments() {
    let mut snapshot = snapshot();
    let lone = json!({ "offset": 0, "bytes": 1 << 20, "state": "held" });
    snapshot["blocks"] = json!([lone, lone, lone]);
    snapshot["statistics"]["pending_bytes"] = json!(18 << 20);
    snapshot.as_object_mut().unwrap().remove("out_of_memory");
    let there = snapshot_page(&snapshot).run(
        "",
        "const rows = id => Object.fromEntries(all(`#${id} dt`).map(name => [name.textContent, name.nextSibling.textContent]));
         return { ran: text('#ran-out'), leaked: text('#leaked'), moment: rows('moment-panel'), counters: rows('counters'), settings: rows('settings'),
           shortage: all('#shortage').length };",
    );
    let text = |id: &str| there[id].as_str().unwrap().to_owned();
    let reserved = "67.0 MiB of 96.0 MiB are reserved.";
    assert!(text("ran").ends_with(reserved), "{}", text("ran"));
    let pending = "Commands may still use 18.0 MiB of the held memory. ";
    assert!(text("leaked").contains(pending), "{}", text("leaked"));
    let panel = &there["moment"];
    assert_eq!(
        (&panel["segments"], &panel["blocks outside segments"]),
        (&json!("1"), &json!("3"))
    );
    assert_eq!(there["counters"]["hits"], "12,345");
    let settings = ["device bytes", "device", "segments"].map(|name| &there["settings"][name]);
    assert_eq!(settings, ["128 MiB", "a device", "true"]);
    assert_eq!(there["shortage"], 0);
}

/// The statistics count what the pool knows without asking the device, so they may say less than the states of the blocks.
#[test]
fn a_snapshot_has_one_figure_for_what_is_held_and_for_what_is_pending() {
    let mut snapshot = snapshot();
    snapshot["statistics"]["pending_bytes"] = json!(0);
    snapshot["statistics"]["pending_blocks"] = json!(0);
    snapshot["statistics"]["held_blocks"] = json!(0);
    snapshot.as_object_mut().unwrap().remove("out_of_memory");
    snapshot["blocks"] = json!([{ "offset": 0, "bytes": 1 << 20, "state": "held" }]);
    let there = snapshot_page(&snapshot).run(
        "",
        "return { leaked: text('#leaked'), states: all('#states tbody tr').map(row => row.textContent), key: text('#moment-panel p.map-key'),
           rows: all('#page dt').map(name => name.textContent).filter(name => /held|pending/.test(name) && !one('#help').textContent.includes(name)) };",
    );
    let leaked = there["leaked"].as_str().unwrap();
    assert!(
        leaked.contains("Commands may still use 18.0 MiB"),
        "{leaked}"
    );
    assert_eq!(there["rows"], json!([]));
    let states: Vec<&str> = there["states"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row.as_str().unwrap())
        .collect();
    assert!(
        states
            .iter()
            .any(|row| row.starts_with("pending: ") && row.contains("18.0 MiB")),
        "{states:?}"
    );
    // What is held is all of this: only some of it is ready.
    assert!(
        states
            .iter()
            .any(|row| row.starts_with("ready: ") && row.contains("1.00 MiB")),
        "{states:?}"
    );
    assert!(
        !states.iter().any(|row| row.starts_with("held")),
        "{states:?}"
    );
    let key = there["key"].as_str().unwrap();
    assert!(key.contains("ready") && !key.contains(" held"), "{key}");
}

#[test]
fn the_largest_tags_have_colours_of_their_own_and_all_others_share_one() {
    let mut snapshot = snapshot();
    let mib = 1_u64 << 20;
    // 14 tags, of 14 MiB and less: 105 MiB together.
    let block = |tag: u64| json!({ "offset": (14 - tag) * 14 * mib, "bytes": tag * mib, "state": "active", "requested_bytes": tag * mib, "tag": format!("tag {tag}") });
    snapshot["segments"][0]["ranges"] = json!((1..=14).rev().map(block).collect::<Vec<_>>());
    snapshot["segments"][0]["bytes"] = json!(14 * 14 * mib);
    snapshot["statistics"]["active_bytes"] = json!(110 * mib);
    let there = snapshot_page(&snapshot).run(
        "",
        "return { parts: all('#shortage-parts li').map(part => part.textContent), used: all('#used .top li').map(part => part.textContent),
           figures: Object.fromEntries(all('#shortage dd').map(value => [value.id, value.textContent])) };",
    );
    // The largest first: a tag of this many MiB, the three smallest together, and what is in use and is not listed.
    let mut parts: Vec<(u64, String)> = (4..=14).map(|tag| (tag, format!("tag {tag}"))).collect();
    parts.extend([(6, "3 others".into()), (5, "in use, not listed".into())]);
    parts.sort_by_key(|(size, _)| Reverse(*size));
    parts.push((34, "held by the pool, free".into()));
    let parts = parts.iter();
    let parts: Vec<String> = parts
        .map(|(size, name)| format!("{name}{}", shown(&json!(size * mib))))
        .collect();
    assert_eq!(there["used"], json!(parts[..3]));
    assert_eq!(there["parts"], json!(parts));
    for (id, mib) in [
        ("requested", "20.0 MiB (20,971,520 bytes)"),
        ("active", "110 MiB (115,343,360 bytes)"),
        ("held", "34.0 MiB (35,651,584 bytes)"),
        ("largest", "18.0 MiB (18,874,368 bytes)"),
        ("pending", "18.0 MiB (18,874,368 bytes)"),
        ("released", "3.00 MiB (3,145,728 bytes)"),
        ("capacity", "96.0 MiB (100,663,296 bytes)"),
        ("block", "64.0 MiB (67,108,864 bytes)"),
    ] {
        assert_eq!(there["figures"][format!("shortage-{id}")], mib, "{id}");
    }
}

#[test]
fn a_snapshot_of_impossible_sizes_is_shown_all_the_same() {
    let mut snapshot = snapshot();
    snapshot["segments"][0]["ranges"][0]["bytes"] = json!(u64::MAX);
    snapshot["segments"][0]["ranges"][1]["offset"] = json!(7);
    snapshot["unix_time_ms"] = json!(u64::MAX);
    let page = snapshot_page(&snapshot);
    let shown = page.run(
        "",
        "await pointer(map(), 'pointermove', 30, 12); return text('#groups');",
    );
    assert!(shown.as_str().unwrap().contains("16.0 EiB"), "{shown}");
}

#[test]
fn failures_of_the_recording_are_marked_and_reached_by_a_key() {
    let text = tagged()
        .replacen("a 10 ", "o 999999999 1 10500000 1\na 10 ", 1)
        .replacen("a 30 ", "o 7 1 30500000 2\na 30 ", 1);
    let (_, page, numbers) = page_of(&text, &[]);
    assert_eq!(numbers["shortages"][0]["moment"], 10);
    let there = page.run(
        "",
        "const seen = [];
         for (let press = 0; press < 3; press++) { await key('o'); seen.push(figures().moment); }
         const answer = text('#ran-out'); await key('e');
         await click(one('#ran-out .link')); const first = figures().moment;
         return { seen, answer, first, ...redLines() };",
    );
    assert_eq!(there["first"], 10);
    assert_eq!(there["seen"], json!([10, 30, 10]));
    let answer = there["answer"].as_str().unwrap();
    for part in ["954 MiB for activations", "2 allocations failed"] {
        assert!(answer.contains(part), "{answer}");
    }
    assert!(number(&there["mark"]) > 200, "{there}");
}

#[test]
fn names_stay_text_whatever_they_are() {
    let names = [
        "</script><script>window.hacked = 1</script>",
        "<img src=x onerror=\"window.hacked = 2\">",
        "a&amp;b \u{202e} \"quoted\" 'so'",
    ];
    let mut text = String::new();
    for (number, name) in names.iter().enumerate() {
        writeln!(
            text,
            "g {number} {name}\na {number} {} 0 {number} {number}",
            4096 * (3 - number)
        )
        .unwrap();
    }
    writeln!(text, "o 123456 0 9 1").unwrap();
    let (_, page, numbers) = page_of(&text, &["--capacity", "8KiB"]);
    let script = "await settle(); await pointer(map(), 'pointermove', 5, 12);
         return { hacked: window.hacked ?? 0, images: all('img').length, scripts: all('script').length,
           table: all('#groups tbody th').map(cell => cell.textContent), group: one('#shortage-group')?.textContent ?? null };";
    assert_eq!(numbers["out_of_memory"]["group"], names[0]);
    let failed = page.run("", script);
    assert_eq!(failed["group"], names[0]);
    let (_, page, _) = page_of(&text, &[]);
    let whole = page.run("", script);
    assert_eq!(whole["table"], json!(names));
    for there in [failed, whole] {
        assert_eq!(there["hacked"], 0);
        assert_eq!(there["images"], 0);
        // The data, the page's own, and the test's two.
        assert_eq!(there["scripts"], 4);
    }
}

#[test]
fn nothing_is_asked_of_any_network() {
    let (_, page, _) = tagged_page();
    for address in ["http:", "https:", "//www", "src=", "@import", "url("] {
        assert!(!page.html().contains(address), "{address}");
    }
    assert!(page.html().contains("default-src 'none'"));
    let asked = page.run(
        "",
        "await key('g'); return performance.getEntriesByType('resource').map(entry => entry.name);",
    );
    assert_eq!(asked, json!([]));
}

#[test]
fn the_help_opens_by_its_key_and_lists_the_others() {
    let (_, page, _) = tagged_page();
    let there = page.run(
        "",
        "await key('?'); const open = one('#help').open; const keys = all('#help kbd').map(key => key.textContent);
         one('#help').close();
         const named = all('button, canvas[tabindex], [role=radiogroup], dialog').filter(it =>
           !(it.getAttribute('aria-label') || it.getAttribute('aria-labelledby') || it.textContent.trim()));
         return { open, keys, nameless: named.length, focus: chart().tabIndex };",
    );
    assert_eq!(there["open"], true);
    let keys = there["keys"].as_array().unwrap();
    for key in [
        "+", "−", "0", ",", ".", "[", "]", "z", "f", "n", "N", "p", "e", "o", "g", "r", "c", "x",
        "t", "?",
    ] {
        assert!(keys.iter().any(|listed| listed == key), "{key}");
    }
    assert_eq!(there["nameless"], 0);
    assert_eq!(there["focus"], 0);
}

#[test]
fn the_help_opens_at_its_beginning() {
    let (_, page, _) = tagged_page();
    let there = page.run(
        "",
        "one('#help').style.maxHeight = '200px'; await key('?'); const help = one('#help'); const box = help.getBoundingClientRect();
         const first = one('#help kbd').getBoundingClientRect();
         const seen = [help.scrollTop, help.scrollHeight > help.clientHeight + 100, first.top >= box.top && first.bottom <= box.bottom,
           help.contains(document.activeElement)];
         help.scrollTop = 1000; help.close(); await key('?'); seen.push(help.scrollTop); return seen;",
    );
    assert_eq!(there, json!([0, true, true, true, 0]));
}

#[test]
fn a_smaller_device_to_try_is_smaller_than_what_was_reserved() {
    for (bytes, expected) in [
        (200_u64 << 20, Some("128MiB")),
        (3 << 30, Some("2GiB")),
        (64, Some("64KiB")),
    ] {
        let (_, page, numbers) = page_of(&format!("a 0 {bytes} 0\nf 0\n"), &[]);
        let there = page.run("", "return text('#ran-out code');");
        let suggested = there
            .as_str()
            .unwrap()
            .strip_prefix("binpool view --capacity ");
        assert_eq!(
            suggested, expected,
            "{}",
            numbers["peak_reserved"]["reserved_bytes"]
        );
    }
}

#[test]
fn a_page_that_is_damaged_says_so() {
    let (_, page, _) = tagged_page();
    let (before, rest) = page.html().split_once("id=\"data\">").unwrap();
    let (data, behind) = rest.split_once('<').unwrap();
    let damaged = Page::new(format!(
        "{before}id=\"data\">{}<{behind}",
        &data[..data.len() / 2 / 4 * 4]
    ));
    let there = damaged.run("", "return text('#page');");
    let notice = there.as_str().unwrap();
    assert!(notice.contains("its data is damaged"), "{notice}");
}

/// The call stacks of the program of a million events.
const MILLION_STACKS: u64 = 500;

/// A program of a million events with times, stacks and two groups, about 300 of whose blocks are in use at once.
fn million() -> String {
    let mut text = String::from("g 0 even\ng 1 odd\n");
    for stack in 0..MILLION_STACKS {
        for depth in 0..12 {
            let line = 10 + stack / (1 << depth);
            writeln!(
                text,
                "k {stack} module{depth}::function{line} at program/src/module{depth}.rs:{line}"
            )
            .unwrap();
        }
    }
    let (mut time, mut state) = (0_u64, 7_u64);
    for block in 0..500_000_u64 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        time += 1000 + (state >> 54);
        writeln!(
            text,
            "a {block} {} 0 {time} {} {}",
            1 + (state >> 44),
            block % 2,
            (state >> 33) % MILLION_STACKS
        )
        .unwrap();
        if let Some(old) = block.checked_sub(300) {
            writeln!(text, "f {old}").unwrap();
        }
    }
    for block in 499_700..500_000 {
        writeln!(text, "f {block}").unwrap();
    }
    text
}

/// Prints how long a page of a million events takes: `cargo test ... how_long -- --nocapture`.
#[test]
#[ignore = "measures, and checks nothing"]
#[allow(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "figures for people"
)]
fn how_long_a_page_of_a_million_events_takes() {
    let (_, page, _) = page_of(&million(), &["--profile", "none"]);
    let there = page.measure(
        "",
        "const seen = { opened: Number(document.documentElement.dataset.firstDrawMs) };
         // Frames come at once: what a key changes is drawn when its event has been handled.
         window.requestAnimationFrame = draw => { draw(performance.now()); return 0; };
         const press = key => document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
         const time = key => {
           const begin = performance.now(); press(key); chart().getContext('2d').getImageData(0, 0, 1, 1);
           return performance.now() - begin;
         };
         const middle = list => list.sort((one, other) => one - other)[list.length >> 1];
         for (const mode of ['groups', 'blocks']) {
           if (mode === 'blocks') seen.switched = time('b');
           const keys = { zoom: [...'++++++++++----------'], pan: '<><><><><>'.split('').map(way => (way === '<' ? 'ArrowLeft' : 'ArrowRight')) };
           for (const [what, list] of Object.entries(keys)) {
             const times = list.map(time);
             seen[`${mode}, ${what}`] = [middle(times), Math.max(...times)];
             press('0'); press('+'); press('+');
           }
           press('0');
         }
         return seen;",
    );
    println!(
        "page: {:.1} MB; in ms, with [median, most]: {there}",
        page.html().len() as f64 / 1e6
    );
}

#[test]
fn a_million_events_open() {
    let text = million();
    let (_, page, numbers) = page_of(&text, &["--profile", "none"]);
    assert_eq!(numbers["events"], 1_000_000);
    let there = page.run(
        "clock=events",
        "const seen = { figures: figures(), chart: Object.keys(colors(chart())).length, map: Object.keys(colors(map())).length };
         await pointer(chart(), 'wheel', 500, 100, { deltaY: -4000, ctrlKey: true }); seen.range = range();
         seen.nodes = all('*').length;
         return seen;",
    );
    assert_eq!(
        number(&there["figures"]["active"]),
        number(&numbers["peak_active"]["active_bytes"])
    );
    assert_eq!(
        number(&there["figures"]["ranges"]),
        number(&numbers["peak_active"]["free"]["ranges"])
    );
    assert!(there["chart"].as_u64().unwrap() > 5 && there["map"].as_u64().unwrap() > 5);
    assert!(there["range"][1].as_f64().unwrap() - there["range"][0].as_f64().unwrap() < 2000.0);
    assert!(
        there["nodes"].as_u64().unwrap() < 2500,
        "no element a block: {}",
        there["nodes"]
    );
}

/// A picture of the documentation.
struct Picture {
    name: &'static str,
    recording: &'static str,
    options: &'static [&'static str],
    hash: &'static str,
    /// The panel that it shows, where it does not show all.
    only: Option<&'static str>,
    size: (u32, u32),
}

const TRAINING: &str = "../snapshots/tiny_gpt_train.pickle.gz";

const PICTURES: [Picture; 8] = [
    Picture {
        name: "view-light.png",
        recording: TRAINING,
        options: &[],
        hash: "theme=light",
        only: None,
        size: (1280, 1158),
    },
    Picture {
        name: "view-dark.png",
        recording: TRAINING,
        options: &[],
        hash: "theme=dark",
        only: None,
        size: (1280, 1158),
    },
    Picture {
        name: "view-blocks.png",
        recording: TRAINING,
        options: &[],
        hash: "theme=light&clock=events&mode=blocks&reserved=hidden&at=766&block=490&range=650~1000",
        only: None,
        size: (1280, 1110),
    },
    Picture {
        name: "view-oom.png",
        recording: TRAINING,
        options: &["--capacity", "560MiB"],
        hash: "theme=light",
        only: None,
        size: (1280, 1010),
    },
    Picture {
        name: "view-flame.png",
        recording: TRAINING,
        options: &[],
        hash: "theme=light",
        only: Some("#stacks"),
        size: (1280, 560),
    },
    Picture {
        name: "view-compared.png",
        recording: TRAINING,
        options: &["../snapshots/tiny_gpt_oom.pickle.gz"],
        hash: "theme=light",
        only: None,
        size: (1280, 1240),
    },
    Picture {
        name: "view-program.png",
        recording: "../traces/programs/pyopencl_test_algorithm.trace.gz",
        options: &[],
        hash: "theme=light",
        only: None,
        size: (1280, 910),
    },
    Picture {
        name: "view-modules.png",
        recording: "../traces/programs/transformer_train_modules.trace.gz",
        options: &[],
        hash: "theme=light",
        only: None,
        size: (1280, 1400),
    },
];

fn docs() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Draws them anew: `scripts/pictures` runs this.
#[test]
#[ignore = "writes into docs"]
fn pictures_for_the_documentation() {
    for Picture {
        name,
        recording,
        options,
        hash,
        only,
        size,
    } in PICTURES
    {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.html");
        let arguments = ["view", recording, "-o", page.to_str().unwrap()];
        assert_eq!(binpool(&[&arguments[..], options].concat()).status, 0);
        let mut html = fs::read_to_string(page).unwrap();
        if let Some(panel) = only {
            let style = format!("<style>main > :not({panel}) {{ display: none; }}</style></head>");
            html = html.replace("</head>", &style);
        }
        let page = Page::new(html);
        page.screenshot(hash, size, &docs().join(name));
    }
}

#[test]
fn the_documentation_has_its_pictures() {
    for Picture {
        name,
        size: (width, height),
        ..
    } in PICTURES
    {
        let bytes = fs::read(docs().join(name)).unwrap();
        let (magic, rest) = bytes.split_at(16);
        assert_eq!(&magic[..8], b"\x89PNG\r\n\x1a\n", "{name}");
        assert_eq!(rest[..4], width.to_be_bytes(), "{name}");
        assert_eq!(rest[4..8], height.to_be_bytes(), "{name}");
        assert!(bytes.len() < 250_000, "{name}: {} bytes", bytes.len());
    }
}
