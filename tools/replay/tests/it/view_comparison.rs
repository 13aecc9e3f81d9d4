//! The pages of `binpool view` that compare two recordings or two snapshots.

use std::{fmt::Write, fs};

use binpool::PoolOptions;
use binpool_recordings::{
    Trace,
    view::{By, Change, ChangeTable, Comparison, History},
};
use binpool_replay::{Profile, simulate};
use binpool_trace::Snapshot;
use serde_json::{Value, json};

use crate::{
    browser::Page,
    common::binpool,
    view_page::{shown, snapshot, tagged},
};

fn history(name: &str, text: &str) -> History {
    let trace = Trace::parse(name, text.as_bytes()).unwrap();
    let pool = PoolOptions::new().segments(true);
    simulate(&trace, &Profile::H200, None, &pool, &|_| {}).unwrap()
}

/// The tagged program, with less scratch, a cache that is twice as large, and a group more.
fn changed() -> String {
    let mut text = tagged().replace(" 1000000 1 ", " 500000 1 ");
    text = text.replace("g 0 weights", "g 0 weights\ng 4 optimizer");
    text = text.replace(" 123456 1 ", " 246912 1 ");
    writeln!(text, "a 999999 5000000 0 2000000000 4").unwrap();
    text
}

/// The comparison of both programs, and its page.
fn compared() -> (Comparison, Page) {
    let before = history("before.trace", &tagged());
    let after = history("after.trace", &changed());
    let sides = [&before, &after];
    let comparison = Comparison::of_histories(sides);
    let page = comparison.clone().page_of_histories(sides, By::Group);
    (comparison, Page::new(page))
}

fn table<'c>(comparison: &'c Comparison, by: &str, at: &str) -> &'c ChangeTable {
    let mut tables = comparison.tables.iter();
    tables.find(|it| it.by == by && it.at == at).unwrap()
}

/// The bytes and blocks of a group at a moment, counted block by block.
fn counted(history: &History, text: &str, group: &str, moment: usize) -> (u64, u64) {
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    let blocks = history.blocks.iter().enumerate();
    let there = blocks.filter(|(block, life)| {
        trace.group_of(*block) == Some(group)
            && life.from < moment
            && life.to.is_none_or(|to| moment <= to)
    });
    there.fold((0, 0), |(bytes, count), (_, life)| {
        (bytes + life.requested_bytes, count + 1)
    })
}

#[test]
fn each_row_has_what_a_count_of_the_blocks_has_in_both() {
    let texts = [tagged(), changed()];
    let sides = [0, 1].map(|side| history("t", &texts[side]));
    let comparison = Comparison::of_histories([&sides[0], &sides[1]]);
    for (at, moment) in [("peak", 0), ("end", 1)] {
        let table = table(&comparison, "group", at);
        for row in &table.rows {
            for side in [0, 1] {
                let numbers = sides[side].numbers();
                let moments = [numbers.peak_active.moment, numbers.at_end.moment];
                let found = counted(&sides[side], &texts[side], &row.name, moments[moment]);
                assert_eq!(
                    found,
                    (row.bytes[side], row.blocks[side]),
                    "{at} {}",
                    row.name
                );
            }
        }
    }
    let end = &table(&comparison, "group", "end").rows;
    let change = |name: &str| {
        end.iter()
            .find(|row| row.name == name)
            .map(|row| row.change)
    };
    assert_eq!(change("optimizer"), Some(Change::New));
    assert_eq!(change("leaky cache"), Some(Change::Grown));
    assert_eq!(change("weights"), Some(Change::Same));
    let peak = &table(&comparison, "group", "peak").rows;
    assert!(
        peak.iter()
            .any(|row| row.change == Change::Shrunk || row.change == Change::Gone)
    );
}

#[test]
fn stacks_are_compared_by_their_frames() {
    let before = "k 0 a at x.rs:1\nk 0 main at m.rs:2\ng 0 x\na 0 4096 0 0 0 0\na 1 100 0 0 0\n";
    let after = "k 7 b at x.rs:9\nk 7 main at m.rs:2\nk 3 a at x.rs:1\nk 3 main at m.rs:2\ng 0 x\n\
                 a 0 8192 0 0 0 3\na 1 100 0 0 0\na 2 50 0 0 0 7\n";
    let sides = [history("t", before), history("t", after)];
    let comparison = Comparison::of_histories([&sides[0], &sides[1]]);
    let rows = table(&comparison, "stack", "end").rows.iter();
    let rows: Vec<_> = rows
        .map(|row| (row.name.as_str(), row.change, row.bytes))
        .collect();
    assert_eq!(
        rows,
        [
            ("a at x.rs:1\nmain at m.rs:2", Change::Grown, [4096, 8192]),
            ("b at x.rs:9\nmain at m.rs:2", Change::New, [0, 50]),
            ("(no stack)", Change::Same, [100, 100]),
        ]
    );
}

/// A difference as the page writes it.
fn difference([before, after]: [u64; 2]) -> String {
    let sign = match after.cmp(&before) {
        std::cmp::Ordering::Greater => "+",
        std::cmp::Ordering::Less => "−",
        std::cmp::Ordering::Equal => "±",
    };
    format!("{sign}{}", shown(&json!(after.abs_diff(before))))
}

/// Script that returns the figures and the table of the page.
const SEEN: &str = "const seen = { figures: all('.answer').map(it => [it.querySelector('h2').textContent, it.querySelector('strong').textContent, it.querySelector('.figure span').textContent]),
    rows: all('#changes tbody tr').map(row => [...row.children].map(cell => cell.textContent)), summary: text('#change-summary') };";

fn assert_rows(seen: &Value, table: &ChangeTable) {
    let rows = seen["rows"].as_array().unwrap();
    assert_eq!(rows.len(), table.rows.len());
    for (there, row) in rows.iter().zip(&table.rows) {
        let change = serde_json::to_value(row.change).unwrap();
        let name = row.name.lines().next().unwrap();
        assert_eq!((&there[0], &there[1]), (&json!(name), &change));
        assert_eq!(there[2], difference(row.bytes));
        assert_eq!(there[3], shown(&json!(row.bytes[0])));
        assert_eq!(there[4], shown(&json!(row.bytes[1])));
        assert_eq!(there[5], format!("{} → {}", row.blocks[0], row.blocks[1]));
    }
}

#[test]
fn the_page_shows_the_figures_and_tables_of_the_comparison() {
    let (comparison, page) = compared();
    for (hash, by, at) in [
        ("", "group", "peak"),
        ("by=stream&compare=end", "stream", "end"),
    ] {
        let seen = page.run(hash, &format!("{SEEN} return seen;"));
        for (there, figure) in seen["figures"]
            .as_array()
            .unwrap()
            .iter()
            .zip(&comparison.figures)
        {
            assert_eq!(there[0], figure.name);
            assert_eq!(there[1], difference(figure.bytes));
            let [before, after] = figure.bytes.map(|bytes| shown(&json!(bytes)));
            assert_eq!(there[2], format!("{before} → {after}"));
        }
        assert_rows(&seen, table(&comparison, by, at));
    }
    let seen = page.run(
        "",
        &format!("await click(all('.switch [data-value=size]')[0]); await click(all('.switch [data-value=end]')[0]); {SEEN} return seen;"),
    );
    assert_rows(&seen, table(&comparison, "size", "end"));
}

#[test]
fn both_pictures_have_one_scale_and_a_group_has_one_colour_in_both() {
    let (_, page) = compared();
    // The highest pixel of the colour of each picture's ground layer, which is the largest group.
    let there = page.run(
        "theme=light",
        "const [first, second] = ['#side-1 .chart', '#side-2 .chart'].map(one);
         const both = { colors: [colors(first), colors(second)].map(Object.keys), headings: all('#side-by-side h2').map(it => it.textContent) };
         // A layer of weights is 80 MiB high in both, at the left of the ground.
         const heightOf = canvas => {
           const pen = canvas.getContext('2d'); const x = Math.round(canvas.width / 2);
           const at = y => [...pen.getImageData(x, y, 1, 1).data].join();
           const ground = at(canvas.height - 32); let y = canvas.height - 32;
           while (at(y) === ground) y--;
           return [ground, canvas.height - y];
         };
         both.layers = [heightOf(first), heightOf(second)];
         await pointer(first, 'wheel', 300, 100, { deltaY: -400, ctrlKey: true });
         both.ranges = ['range-1', 'range-2'].map(name => new URLSearchParams(location.hash.slice(1)).has(name));
         return both;",
    );
    assert_eq!(
        there["headings"],
        json!(["First: before.trace", "Second: after.trace"])
    );
    assert_eq!(there["layers"][0][0], there["layers"][1][0], "{there}");
    let heights = [0, 1].map(|side| there["layers"][side][1].as_i64().unwrap());
    assert!(
        heights[0] > 20 && (heights[0] - heights[1]).abs() <= 1,
        "{there}"
    );
    assert_eq!(there["ranges"], json!([true, false]));
}

#[test]
fn a_menu_leads_from_the_comparison_to_each_history_and_back() {
    let (_, page) = compared();
    let there = page.run(
        "",
        "const seen = []; const look = () => seen.push([text('#origin'), text('#title'), [...one('#history').options].map(it => it.text).join()]);
         const choose = async place => { one('#history').selectedIndex = place; one('#history').dispatchEvent(new Event('change')); await settle(); look(); };
         look(); await choose(2); await choose(1); await choose(0); return seen;",
    );
    let menu = "Compared,before.trace,after.trace";
    assert_eq!(
        there,
        json!([
            ["Compared", "before.trace → after.trace", menu],
            ["Simulated", "after.trace", menu],
            ["Simulated", "before.trace", menu],
            ["Compared", "before.trace → after.trace", menu],
        ])
    );
}

#[test]
fn two_snapshots_are_compared_by_tag_and_by_call_site() {
    let before = snapshot();
    let mut after = before.clone();
    let active = after["segments"][0]["ranges"].as_array_mut().unwrap();
    for range in active {
        if range["tag"].is_string() {
            range["tag"] = json!("renamed");
        }
    }
    let read = |value: &Value| Snapshot::from_json(&value.to_string()).unwrap();
    let (before, after) = (read(&before), read(&after));
    let comparison = Comparison::of_snapshots([("a.json", &before), ("b.json", &after)]);
    let tags = table(&comparison, "tag", "snapshot");
    assert!(
        tags.rows
            .iter()
            .any(|row| row.name == "renamed" && row.change == Change::New)
    );
    assert!(
        tags.rows
            .iter()
            .any(|row| row.change == Change::Gone || row.change == Change::Shrunk)
    );
    let page = Page::new(comparison.page_of_snapshots());
    let seen = page.run("", &format!("{SEEN} return seen;"));
    assert_rows(&seen, tags);
    assert_eq!(seen["figures"][0][0], "in use");
    let seen = page.run("by=call_site", &format!("{SEEN} return seen;"));
    assert_rows(&seen, table(&comparison, "call_site", "snapshot"));
}

#[test]
fn the_command_compares_two_files_of_one_kind() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (name, text) in [("before.trace", tagged()), ("after.trace", changed())] {
        fs::write(path(name), text).unwrap();
    }
    for name in ["now.json", "later.json"] {
        fs::write(path(name), snapshot().to_string()).unwrap();
    }
    let html = path("compared.html");
    let compare = |before: &str, after: &str, more: &[&str]| {
        let (before, after) = (path(before), path(after));
        binpool(&[&["view", &before, &after, "-o", &html], more].concat())
    };
    let ran = compare("before.trace", "after.trace", &["--json"]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let sides = [
        history(&path("before.trace"), &tagged()),
        history(&path("after.trace"), &changed()),
    ];
    let expected = Comparison::of_histories([&sides[0], &sides[1]]);
    let printed: Value = serde_json::from_str(&ran.output).unwrap();
    assert_eq!(printed, serde_json::to_value(&expected).unwrap());
    let page = Page::new(fs::read_to_string(&html).unwrap());
    assert_rows(
        &page.run("", &format!("{SEEN} return seen;")),
        table(&expected, "group", "peak"),
    );
    let ran = compare("now.json", "later.json", &[]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let page = Page::new(fs::read_to_string(&html).unwrap());
    let seen = page.run("", &format!("{SEEN} return seen;"));
    assert_eq!(seen["summary"], "0 new, 0 gone, 0 grown, 0 shrunk, 2 same");
    let ran = compare("before.trace", "now.json", &[]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.errors.contains("are of different kinds"),
        "{}",
        ran.errors
    );
    let ran = binpool(&["view", "-", "-", "-o", &html]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.errors
            .contains("only one of the files can come from standard input"),
        "{}",
        ran.errors
    );
}

#[test]
fn the_figures_stand_in_one_row_and_both_pictures_have_one_axis() {
    let (_, page) = compared();
    let there = page.run(
        "",
        "const tops = () => new Set(all('.answer').map(card => card.getBoundingClientRect().top)).size;
         const chosen = () => one('[data-value=time]').parentElement.querySelector('[aria-checked=true]').dataset.value;
         const seen = [all('.answer').length, tops(), chosen()]; await click(one('[data-value=events]')); seen.push(chosen(), location.hash);
         document.body.style.width = '700px'; return seen;",
    );
    assert_eq!(there, json!([4, 1, "time", "events", "#clock=events"]));
}

#[test]
fn a_line_that_an_edit_moved_is_marked_and_keeps_its_place_in_both_pictures() {
    let text = |line: u32, bytes: u32| {
        format!("g 0 a.py:{line} f\ng 1 b.py:7 g\na 0 {bytes} 0 1000 0\na 1 4096 0 2000 1\n")
    };
    let sides = [
        history("before", &text(31, 64 << 20)),
        history("after", &text(36, 100 << 20)),
    ];
    let comparison = Comparison::of_histories([&sides[0], &sides[1]]);
    let page = comparison.page_of_histories([&sides[0], &sides[1]], By::Group);
    let page = Page::new(page);
    let there = page.run("", &format!("{SEEN} return seen;"));
    let rows = there["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row[0] == "a.py:36 fmoved").unwrap();
    assert_eq!(row[1], "grown", "{there}");
    assert_eq!(there["summary"], "0 new, 0 gone, 1 grown, 0 shrunk, 1 same");
    let there = page.run(
        "",
        "const seen = [];
         for (const c of all('#side-by-side .chart:not(.over)')) {
           await pointer(c, 'pointermove', c.clientWidth - 30, c.clientHeight - 32); seen.push(text('.tip-title + dl dt'));
         }
         return seen;",
    );
    assert_eq!(there, json!(["a.py:36 f", "a.py:36 f"]));
}

#[test]
fn a_figure_that_is_the_same_is_neither_green_nor_red() {
    let sides = ["before", "after"].map(|name| history(name, &tagged()));
    let comparison = Comparison::of_histories([&sides[0], &sides[1]]);
    let page = comparison.page_of_histories([&sides[0], &sides[1]], By::Group);
    let script = "return all('.answer').map(card => [card.querySelector('strong').textContent,
         getComputedStyle(card.querySelector('strong')).color, getComputedStyle(card).borderTopColor]);";
    let same = Page::new(page).run("theme=light", script);
    let (ink, line) = ("rgb(28, 33, 39)", "rgb(195, 201, 209)");
    assert_eq!(same, json!(vec![["±0 B", ink, line]; 4]));

    let (comparison, page) = compared();
    let changed = page.run("theme=light", script);
    for (there, figure) in changed.as_array().unwrap().iter().zip(&comparison.figures) {
        assert_eq!(there[1] == ink, figure.bytes[0] == figure.bytes[1]);
    }
}

#[test]
fn the_menu_is_as_wide_as_its_text_and_long_names_stay_on_the_page() {
    let long =
        "a_training_with_checkpoints_and_mixed_precision_whose_name_has_no_place_to_break.trace";
    let sides = ["before.trace", long].map(|name| history(name, &tagged()));
    let comparison = Comparison::of_histories([&sides[0], &sides[1]]);
    let page = comparison.page_of_histories([&sides[0], &sides[1]], By::Group);
    let page = Page::new(page);
    // No window is narrower than 500.
    for width in [1400, 1000, 500, 360] {
        let narrow = if width < 500 {
            "document.body.style.width = '360px'; await settle();"
        } else {
            ""
        };
        let script = format!(
            "{narrow} const menu = one('#history'); const pen = document.createElement('canvas').getContext('2d');
             pen.font = getComputedStyle(menu).font;
             const right = Math.max(...all('.head, .head *, .panel h2').map(it => it.getBoundingClientRect().right));
             return {{ spare: menu.clientWidth - pen.measureText(menu.selectedOptions[0].text).width, title: menu.title,
               beyond: right - document.body.getBoundingClientRect().right }};"
        );
        for (hash, title) in [("", "Compared"), ("history=2", long)] {
            let there = page.run_at(width.max(500), hash, &script);
            assert_eq!(there["title"], title);
            assert!(there["beyond"].as_f64().unwrap() <= 0.0, "{width}: {there}");
            if title != long {
                let spare = there["spare"].as_f64().unwrap();
                assert!((24.0..70.0).contains(&spare), "{width}: {there}");
            }
        }
    }
}

#[test]
fn the_second_is_a_line_over_the_first_and_stretched_to_its_length() {
    // 2 MiB in the first half, and 8 MiB in the second.
    let steps = |count: usize| "a 9 4096 0\nf 9\n".repeat(count);
    let second = format!("a 0 2097152 0\n{}a 1 6291456 0\n{}", steps(10), steps(10));
    let first = format!("a 0 4194304 0\n{}", steps(3));
    let sides = [history("before", &first), history("after", &second)];
    let comparison = Comparison::of_histories([&sides[0], &sides[1]]);
    let page = comparison.page_of_histories([&sides[0], &sides[1]], By::Size);
    let page = Page::new(page);
    let script = "const c = one('#side-1 .chart'); const ground = c.height - 28; const x = part => Math.round(66 + part * (c.width - 80));
         /** The lines in a column of pixels: how far above the ground, in pixels. */
         const lines = part => [...Array(ground).keys()].filter(y => pixel(c, x(part), y) === '31,95,191,255').map(y => ground - y);
         const look = async () => [lines(0.25), lines(0.75), one('#overlay').checked];";
    let there = page.run(
        "theme=light&clock=events",
        &format!(
            "{script} const seen = [await look()]; await pointer(c, 'pointermove', x(0.75), 100);
             seen.push(all('#tooltip dt').map(it => [it.textContent, it.nextSibling.textContent]));
             await click(one('#overlay')); seen.push(await look(), location.hash); await click(one('#overlay')); seen.push(await look()); return seen;"
        ),
    );
    let height = |part: usize| {
        let lines = there[0][part].as_array().unwrap();
        lines[lines.len() / 2].as_f64().unwrap()
    };
    let ratio = height(1) / height(0);
    assert!((3.8..4.2).contains(&ratio), "{ratio}: {there}");
    let told = there[1].as_array().unwrap();
    assert!(
        told.contains(&json!(["in use in the second", "8.00 MiB"])),
        "{there}"
    );
    assert_eq!(there[2], json!([[], [], false]));
    assert_eq!(there[3], "#theme=light&clock=events&overlay=hidden");
    assert_eq!(there[4], there[0]);
    let there = page.run(
        "theme=light&overlay=hidden",
        &format!("{script} return await look();"),
    );
    assert_eq!(there, json!([[], [], false]));
}
