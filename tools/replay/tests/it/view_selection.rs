//! A range of events that is selected on memory over time, and the search that jumps from block to block.

use serde_json::{Value, json};

use crate::view_page::page_of;

/// Two groups: at the end, `weights` has 1 MiB and `cache` 3 MiB.
const RECORDED: &str = "\
g 0 weights
g 1 cache
a 1 1048576 0 1000 0
a 2 2097152 0 2000 1
f 1 3000
a 3 3145728 0 4000 1
f 2 5000
a 4 1048576 0 6000 0
";

/// Text with ordinary spaces.
fn plain(there: &Value) -> Value {
    serde_json::from_str(&there.to_string().replace('\u{a0}', " ")).unwrap()
}

/// Script that defines what the panel of the selection says.
const SUMS: &str = "const sums = () => ({ title: text('#selection .pinned-title'),
    figures: ['allocated', 'released', 'in-use', 'peak'].map(name => text(`#selection-${name}`)),
    rows: all('#selection tbody tr').map(row => [...row.children].map(cell => cell.textContent)) });";

#[test]
fn a_selection_has_the_sums_of_its_events_by_group() {
    let (_, page, _) = page_of(RECORDED, &[]);
    let there = page.run("selection=1~5", &format!("{SUMS} return sums();"));
    let there = plain(&there);
    assert_eq!(there["title"], "Events 2 to 5, 4.00 µs");
    assert_eq!(
        there["figures"],
        json!([
            "5.00 MiB in 2 blocks",
            "3.00 MiB in 2 blocks",
            "1.00 MiB → 3.00 MiB",
            "5.00 MiB at event 4 (4.0000 µs)"
        ])
    );
    let cache = [
        "cache",
        "5.00 MiB",
        "2",
        "2.00 MiB",
        "1",
        "+3.00 MiB",
        "5.00 MiB",
    ];
    let weights = [
        "weights",
        "0 B",
        "0",
        "1.00 MiB",
        "1",
        "−1.00 MiB",
        "1.00 MiB",
    ];
    assert_eq!(there["rows"], json!([cache, weights]));
}

#[test]
fn a_selection_has_only_the_blocks_that_a_filter_leaves() {
    let (_, page, _) = page_of(RECORDED, &[]);
    let there = page.run(
        "selection=1~5&filter=cache",
        &format!("{SUMS} return sums();"),
    );
    let there = plain(&there);
    assert_eq!(there["figures"][0], "5.00 MiB in 2 blocks");
    assert_eq!(there["figures"][1], "2.00 MiB in 1 block");
    assert_eq!(there["rows"].as_array().unwrap().len(), 1);
}

#[test]
fn keys_select_zoom_in_and_select_nothing() {
    let (_, page, _) = page_of(RECORDED, &[]);
    let there = page.run(
        "clock=events&at=1",
        "const of = () => new URLSearchParams(location.hash.slice(1)).get('selection'); const seen = [one('#selection').hidden];
         await key('['); seen.push(of());
         for (let step = 0; step < 4; step++) await key('.');
         await key(']'); seen.push(of()); await key('z'); seen.push(range());
         await key('Escape'); seen.push(of(), one('#selection').hidden); await key(']'); seen.push(of()); return seen;",
    );
    assert_eq!(
        there,
        json!([true, "1~6", "1~5", [1, 6], null, true, "0~5"])
    );
}

#[test]
fn dragging_with_shift_selects_and_is_seen_on_the_chart() {
    let (_, page, _) = page_of(RECORDED, &[]);
    let there = page.run(
        "clock=events",
        "const c = chart(); const x = place => 66 + (c.clientWidth - 80) * place / 7;
         const over = one('.chart.over'); const before = pixel(over, Math.round(x(3.2)), 30);
         for (const [type, place] of [['pointerdown', 4.5], ['pointermove', 3], ['pointermove', 2.5], ['pointerup', 2.5]]) {
           await pointer(c, type, x(place), 100, { shiftKey: true, buttons: 1 });
         }
         await pointer(c, 'pointerleave', 0, 0);
         const seen = [new URLSearchParams(location.hash.slice(1)).get('selection'), range(), before, pixel(over, Math.round(x(3.2)), 30) !== before];
         await click(one('#selection-zoom')); seen.push(range()); await click(one('#selection-close')); seen.push(one('#selection').hidden); return seen;",
    );
    assert_eq!(
        there,
        json!(["2~4", null, "0,0,0,0", true, [1.5, 5.5], true])
    );
}

#[test]
fn a_search_leads_from_block_to_block_and_hides_none() {
    let (_, page, _) = page_of(RECORDED, &[]);
    let there = page.run(
        "at=1&find=%3E1.5MiB",
        "const seen = [text('#find-result')]; const at = () => [figures().moment, text('#find-result'), new URLSearchParams(location.hash.slice(1)).get('block')];
         for (const name of ['n', 'n', 'n', 'N']) { await key(name); seen.push(at()); }
         await click(one('#find-next')); seen.push(at());
         one('#find').dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', shiftKey: true, bubbles: true, cancelable: true }));
         await settle(); seen.push(at(), text('#filter-result'));
         one('#find').value = 'size>much'; one('#find').dispatchEvent(new Event('input')); await settle(); await settle();
         seen.push(one('#find').getAttribute('aria-invalid'), text('#find-result').includes('size'));
         await key('f'); seen.push(document.activeElement.id); return seen;",
    );
    let first = json!([2, "1 of 2", "1"]);
    let second = json!([4, "2 of 2", "2"]);
    assert_eq!(
        there,
        json!([
            "2 matches",
            first,
            second,
            first,
            second,
            first,
            second,
            "",
            "true",
            true,
            "find"
        ])
    );
}

#[test]
fn a_search_finds_only_what_the_filter_shows() {
    let (_, page, _) = page_of(RECORDED, &[]);
    let there = page.run(
        "at=0&find=cache&filter=%3E2.5MiB",
        "const seen = [text('#find-result')]; await key('n'); seen.push(figures().moment); return seen;",
    );
    assert_eq!(there, json!(["1 match", 4]));
}
