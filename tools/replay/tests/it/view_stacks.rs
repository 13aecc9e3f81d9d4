//! Call stacks on the pages of `binpool view`: the flame graph, the tree, the filter, and a block's own.

use std::{collections::BTreeMap, fmt::Write};

use serde_json::{Value, json};

use crate::{
    browser::Page,
    view_page::{number, page_of, shown, tagged, tagged_page},
};

/// The frames of each stack, innermost first.
const STACKS: [&[&str]; 4] = [
    &[
        "model::weights at train/src/model.rs:10",
        "train::main at train/src/main.rs:3",
    ],
    &[
        "layer::forward at train/src/layer.rs:7",
        "model::step at train/src/model.rs:20",
        "train::main at train/src/main.rs:9",
    ],
    &[
        "scratch at train/src/scratch.rs:1",
        "layer::forward at train/src/layer.rs:8",
        "model::step at train/src/model.rs:20",
        "train::main at train/src/main.rs:9",
    ],
    &[
        "cache::keep at train/src/cache.rs:5",
        "worker at train/src/worker.rs:2",
    ],
];

/// The program of [`tagged`], with a stack for each of its groups but the last, which has two.
fn stacked() -> String {
    let mut text = String::new();
    for (number, stack) in STACKS.iter().enumerate() {
        for frame in *stack {
            writeln!(text, "k {number} {frame}").unwrap();
        }
    }
    for line in tagged().lines() {
        let group = line.rsplit(' ').next().unwrap();
        let is_allocation = line.starts_with('a');
        // The blocks of one group have no stack now and then.
        let id: u64 = line.split(' ').nth(1).unwrap().parse().unwrap();
        let has_stack = is_allocation && (group != "3" || id.is_multiple_of(2));
        let stack = if has_stack {
            format!(" {group}")
        } else {
            String::new()
        };
        writeln!(text, "{line}{stack}").unwrap();
    }
    text
}

/// The bytes and blocks below each path of frames, outermost first, that the rows of the numbers have in these fields.
fn by_path(numbers: &Value, bytes: &str, blocks: &str) -> BTreeMap<Vec<String>, (u64, u64)> {
    let mut sums = BTreeMap::new();
    for row in numbers["stacks"].as_array().unwrap() {
        let frames = row["frames"].as_array().unwrap().iter().rev();
        let frames: Vec<String> = frames.map(|it| it.as_str().unwrap().to_owned()).collect();
        for depth in 1..=frames.len() {
            let (sum, count) = sums.entry(frames[..depth].to_vec()).or_insert((0, 0));
            *sum += row[bytes].as_u64().unwrap();
            *count += row[blocks].as_u64().unwrap();
        }
    }
    sums.retain(|_, (_, blocks)| *blocks > 0);
    sums
}

/// The paths of frames that a graph or a tree shows, with their bytes.
fn shown_paths(rows: &Value) -> BTreeMap<Vec<String>, u64> {
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| {
        let path = row["path"].as_array().unwrap().iter();
        let path = path.map(|frame| frame.as_str().unwrap().to_owned());
        (path.collect(), number(&row["bytes"]))
    })
    .collect()
}

/// Script that returns the frames of the flame graph with the paths that lead to them by their places.
const FRAMES: &str = "const seen = [];
    const rows = all('.flame-row').map(row => [...row.children].map(frame => ({ name: frame.textContent, bytes: Number(frame.dataset.bytes),
      from: parseFloat(frame.style.left), to: parseFloat(frame.style.left) + parseFloat(frame.style.width) })));
    rows.forEach((row, depth) => row.forEach(frame => {
      const path = [];
      for (let above = 1; above < depth; above++) path.push(rows[above].find(it => it.from <= frame.from + 1e-3 && frame.to <= it.to + 1e-3).name);
      if (depth > 0) seen.push({ path: [...path, frame.name], bytes: frame.bytes, width: frame.to - frame.from });
    }));";

fn without_unknown(mut paths: BTreeMap<Vec<String>, u64>) -> (BTreeMap<Vec<String>, u64>, u64) {
    let unknown = paths.remove(&vec!["(no stack)".to_owned()]);
    (paths, unknown.unwrap_or(0))
}

fn stacked_page() -> (Page, Value) {
    let (_, page, numbers) = page_of(&stacked(), &[]);
    (page, numbers)
}

#[test]
fn the_flame_graph_has_the_bytes_of_each_path_of_frames() {
    let (page, numbers) = stacked_page();
    let at_end = format!("at={}", numbers["events"]);
    let moments = [
        (
            "at=3&stacks-at=peak",
            "peak_active",
            ["at_peak_bytes", "at_peak_blocks"],
        ),
        (at_end.as_str(), "at_end", ["end_bytes", "end_blocks"]),
    ];
    for (hash, at, [bytes, blocks]) in moments {
        let there = page.run(
            hash,
            &format!("{FRAMES} return {{ seen, all: {{ ...one('#stacks').dataset }} }};"),
        );
        let expected: BTreeMap<_, _> = by_path(&numbers, bytes, blocks)
            .into_iter()
            .map(|(path, (bytes, _))| (path, bytes))
            .collect();
        let (paths, unknown) = without_unknown(shown_paths(&there["seen"]));
        assert_eq!(paths, expected, "{hash}");
        assert!(unknown > 0);
        let outermost = expected.iter().filter(|(path, _)| path.len() == 1);
        let known: u64 = outermost.map(|(_, bytes)| bytes).sum();
        let all = numbers[at]["active_bytes"].as_u64().unwrap();
        assert_eq!(known + unknown, all);
        assert_eq!(there["all"]["bytes"], all.to_string());
        assert_eq!(there["all"]["moment"], numbers[at]["moment"].to_string());
        for frame in there["seen"].as_array().unwrap() {
            #[allow(clippy::cast_precision_loss, reason = "a part of a width")]
            let part = frame["bytes"].as_f64().unwrap() / all as f64;
            let width = frame["width"].as_f64().unwrap() / 100.0;
            assert!((width - part).abs() < 1e-5, "{frame}");
        }
    }
}

#[test]
fn a_click_gives_a_frame_the_whole_width_and_one_above_it_goes_back() {
    let (page, _) = stacked_page();
    let there = page.run(
        "",
        "const widths = () => Object.fromEntries(all('.flame-frame').map(frame => [frame.textContent, parseFloat(frame.style.width)]));
         const named = name => all('.flame-frame').find(frame => frame.textContent.startsWith(name));
         const before = widths();
         await click(named('layer::forward at train/src/layer.rs:7'));
         const near = widths(); const above = all('.flame-frame.above').map(frame => frame.textContent);
         await click(named('all'));
         return { before, near, above, after: widths() };",
    );
    assert_eq!(
        there["above"],
        json!([
            "all",
            "train::main at train/src/main.rs:9",
            "model::step at train/src/model.rs:20"
        ])
    );
    let near = there["near"].as_object().unwrap();
    assert_eq!(near.len(), 4, "{near:?}");
    assert!(near.values().all(|width| *width == 100.0), "{near:?}");
    assert_eq!(there["before"], there["after"]);
}

#[test]
fn the_tree_has_the_same_bytes_and_opens_where_there_is_one_way() {
    let (page, numbers) = stacked_page();
    let there = page.run(
        "stacks=tree&stacks-at=peak",
        "const rows = () => all('.stack-row').map(row => [row.querySelector('.name').textContent, ...[...row.querySelectorAll('.number')].map(it => it.textContent)]);
         const named = name => all('.stack-row').find(row => row.querySelector('.name').textContent.startsWith(name));
         const first = rows();
         await click(named('worker'));
         const opened = rows();
         await click(named('worker'));
         return { first, opened, closed: rows(), graph: one('#flame').offsetParent === null, expanded: named('all').parentNode.getAttribute('aria-expanded') };",
    );
    assert_eq!(
        (&there["graph"], &there["expanded"]),
        (&json!(true), &json!("true"))
    );
    let expected = by_path(&numbers, "at_peak_bytes", "at_peak_blocks");
    let first = there["first"].as_array().unwrap();
    assert_eq!(first[0][0], "all");
    assert_eq!(first[0][2], shown(&numbers["peak_active"]["active_bytes"]));
    let roots = expected.iter().filter(|(path, _)| path.len() == 1);
    for (path, (bytes, blocks)) in roots.clone() {
        let row = first.iter().find(|row| row[0] == path[0].as_str()).unwrap();
        assert_eq!(row[2], shown(&json!(bytes)));
        assert_eq!(
            row[3],
            format!("{blocks} block{}", if *blocks == 1 { "" } else { "s" })
        );
    }
    // Those without a stack are one more.
    assert_eq!(first.len(), 1 + roots.count() + 1);
    let opened: Vec<_> = there["opened"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row[0])
        .collect();
    assert_eq!(opened.len(), first.len() + 1);
    assert!(opened.contains(&&json!(STACKS[3][0])));
    assert_eq!(there["closed"], there["first"]);
}

#[test]
fn a_filter_by_a_frame_leaves_its_blocks_alone() {
    let (page, numbers) = stacked_page();
    let rows = numbers["stacks"].as_array().unwrap();
    let blocks: u64 = rows[1..3]
        .iter()
        .map(|row| row["blocks"].as_u64().unwrap())
        .sum();
    let there = page.run(
        "filter=stack%3Dlayer.rs&stacks-at=peak",
        &format!("{FRAMES} return {{ result: text('#filter-result'), seen }};"),
    );
    let of_all = |count: u64| {
        let digits = count.to_string();
        let (head, tail) = digits.split_at(digits.len().saturating_sub(3));
        if head.is_empty() {
            digits
        } else {
            format!("{head},{tail}")
        }
    };
    let result = there["result"].as_str().unwrap();
    assert!(result.contains(&of_all(blocks)), "{result}: {blocks}");
    let (paths, unknown) = without_unknown(shown_paths(&there["seen"]));
    assert_eq!(unknown, 0);
    let expected: BTreeMap<_, _> = by_path(&numbers, "at_peak_bytes", "at_peak_blocks")
        .into_iter()
        .filter(|(path, _)| path[0] == "train::main at train/src/main.rs:9")
        .map(|(path, (bytes, _))| (path, bytes))
        .collect();
    assert!(!expected.is_empty());
    assert_eq!(paths, expected);
}

#[test]
fn a_block_shows_its_whole_stack_as_text_that_can_be_copied() {
    let (page, _) = stacked_page();
    let there = page.run(
        "block=11",
        "const before = text('#block-stack'); await click(one('#copy-stack'));
         return { before, selected: getSelection().toString(), says: text('#copy-stack'), frames: text('#block .pinned-head h3') };",
    );
    let stack = STACKS[1].join("\n");
    assert_eq!(there["before"], stack.as_str());
    assert_eq!(there["selected"].as_str().unwrap().trim(), stack);
    assert_eq!(there["frames"], "3 frames");
    assert_ne!(there["says"], "Copy");
    // The page of a program without stacks has nothing about them.
    let (_, page, _) = tagged_page();
    let there = page.run("block=11", "return [one('#stacks'), one('#block-stack')];");
    assert_eq!(there, json!([null, null]));
}

#[test]
fn blocks_without_a_stack_stand_under_what_explains_it() {
    let text = "k 0 a at x.rs:1\ng 0 x\ng 1 (a thread without Python)\na 0 4096 0 0 0 0\na 1 100 0 0 1\na 2 200 0 0\na 3 300 0 0 0\n";
    let (_, page, _) = page_of(text, &[]);
    let there = page.run("at=4", &format!("{FRAMES} return seen;"));
    let expected = [
        ("(a thread without Python)", 100),
        ("(no stack)", 300),
        ("(no tag or line was recorded)", 200),
        ("a at x.rs:1", 4096),
    ];
    let expected = expected.map(|(frame, bytes)| (vec![frame.to_owned()], bytes));
    assert_eq!(shown_paths(&there), BTreeMap::from(expected));
}
