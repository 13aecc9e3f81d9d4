//! Names of any length in windows of any width: figures stay legible beside them.

use std::{fmt::Write, fs};

use serde_json::{Value, json};

use crate::{
    browser::Page,
    common::binpool,
    view_page::{page_of, snapshot, snapshot_page},
};

const WIDTHS: [u32; 4] = [320, 500, 1000, 1600];

/// Names of 5, 40, 60 and 200 characters, with places for a break and without any.
fn names() -> Vec<String> {
    let of_words = |length: usize| "backward pass of layers ".repeat(9)[..length].to_owned();
    let of_one_word = |length: usize| "x".repeat(length);
    let mut names: Vec<_> = [5, 40, 60, 200].map(of_words).into();
    names.extend([40, 60, 200].map(of_one_word));
    names
}

/// A program with a group and a call stack of each name, the first on top in the picture.
fn program() -> String {
    let names = names();
    let mut text = String::new();
    for (number, name) in names.iter().enumerate() {
        writeln!(text, "g {number} {name}\nk {number} {name}").unwrap();
    }
    for (number, _) in names.iter().enumerate() {
        let bytes = 1_234_567 * (number + 2);
        writeln!(
            text,
            "a {number} {bytes} 0 {}000000 {number} {number}",
            number + 1
        )
        .unwrap();
    }
    text
}

/// What the scripts share. A figure is legible if it is on one line, and not outside of its box.
const LEGIBLE: &str = r"
    const isFigure = it => /^[\d.,]+\s([KMG]i)?B$/.test(it.textContent);
    const linesOf = it => {
        const range = document.createRange();
        range.selectNodeContents(it.querySelector('.change') ?? it);
        return new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size;
    };
    const isIn = (it, box) => {
        const [inner, outer] = [it, box].map(it => it.getBoundingClientRect());
        return inner.width > 0 && inner.left >= outer.left - 0.5 && inner.right <= outer.right + 0.5;
    };
    let seen = 0;
    const wrong = [];
    const check = (where, box, figures) => {
        seen += figures.length;
        for (const it of figures) {
            if (linesOf(it) !== 1 || !isIn(it, box)) wrong.push(`${where}: ${it.textContent}, ${linesOf(it)} lines`);
        }
    };
    const checkTooltip = where => {
        const tip = one('#tooltip');
        const { left, right } = tip.getBoundingClientRect();
        if (tip.hidden || left < 0 || right > innerWidth) wrong.push(`${where}: no tooltip, or not in the window`);
        check(where, tip, [...tip.querySelectorAll('dd')].filter(isFigure));
        for (const it of tip.querySelectorAll('p, dt, dd')) if (!isIn(it, tip)) wrong.push(`${where}: ${it.textContent}`);
    };
    const answer = () => {
        if (document.documentElement.scrollWidth > innerWidth) wrong.push(`the page is wider than the window`);
        return { seen, wrong, width: innerWidth };
    };
";

/// Asserts that a script finds this many figures at least, and none that is not legible, at every width.
fn assert_legible(page: &Page, hash: &str, script: &str, least: u64) {
    for width in WIDTHS {
        let there = page.run_at(
            width,
            hash,
            &format!("{LEGIBLE}\n{script}\nreturn answer();"),
        );
        assert_eq!(there["width"], width);
        assert_eq!(there["wrong"], json!([]), "at {hash} in {width} pixels");
        assert!(there["seen"].as_u64().unwrap() >= least, "{there}");
    }
}

#[test]
fn figures_of_tooltips_are_on_one_line_beside_names_of_any_length() {
    let (_, page, _) = page_of(&program(), &[]);
    // From top to bottom at the end, over every group, block and segment.
    let over_the_chart = "
        const { width, height } = chart().getBoundingClientRect();
        for (let y = 20; y < height - 30; y += 6) {
            await pointer(chart(), 'pointermove', width - 20, y);
            checkTooltip(`chart at ${y}`);
        }";
    for (mode, least) in [("groups", 100), ("blocks", 1), ("segments", 0)] {
        assert_legible(
            &page,
            &format!("clock=events&mode={mode}"),
            over_the_chart,
            least,
        );
    }
    let over_the_map = "
        for (let x = 2; x < map().clientWidth; x += 9) {
            await pointer(map(), 'pointermove', x, 12);
            if (one('#tooltip').hidden) continue;
            checkTooltip(`map at ${x}`);
            seen++;
        }";
    assert_legible(&page, "at=7", over_the_map, 20);
    let over_the_flames = "
        for (const frame of all('.flame-frame')) {
            await pointer(frame, 'pointermove', 2, 5);
            checkTooltip(`frame ${frame.textContent}`);
            seen++;
        }";
    assert_legible(&page, "at=7", over_the_flames, 8);
}

#[test]
fn figures_of_lists_are_on_one_line_beside_names_of_any_length() {
    let (_, page, _) = page_of(&program(), &[]);
    let lists = "
        for (const list of all('.legend, .top, .figures, .stack-list')) {
            check(list.className, list, [...list.querySelectorAll('.number, dd')].filter(isFigure));
        }
        one('#blocks').open = true;
        await settle();
        for (const row of all('tbody tr')) {
            const region = row.closest('.scroll');
            const [name, figure] = row.children;
            if (name.getBoundingClientRect().width < 80) wrong.push(`${row.textContent}: no name`);
            check('the first figure of a row', region, [figure]);
        }
        for (const { children: [, , , size, name] } of all('.event-rows .event')) {
            if (size.scrollWidth > size.clientWidth) wrong.push(`${size.textContent} is cut`);
            if (name.getBoundingClientRect().width < 60) wrong.push(`${name.textContent}: no name`);
        }";
    for hash in ["at=7", "at=7&stacks=tree"] {
        assert_legible(&page, hash, lists, 25);
    }
}

#[test]
fn figures_of_tables_are_in_sight_beside_names_of_any_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [before, after, html] = ["before.trace", "after.trace", "page.html"].map(path);
    fs::write(&before, program()).unwrap();
    fs::write(&after, program().replace(" 2469134 ", " 123 ")).unwrap();
    let ran = binpool(&["view", &before, &after, "-o", &html]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    let compared = Page::new(fs::read_to_string(html).unwrap());
    let mut snapshot = snapshot();
    let names = names();
    let ranges = snapshot["segments"][0]["ranges"].as_array_mut().unwrap();
    let active = ranges.iter_mut().filter(|range| range["state"] == "active");
    for (range, name) in active.zip(names.iter().rev()) {
        range["tag"] = json!(name);
    }
    let rows = "
        for (const row of all('tbody tr')) {
            const [name, first] = row.children;
            if (name.getBoundingClientRect().width < 80) wrong.push(`${row.textContent}: no name`);
            check('the first cell beside a name', row.closest('.scroll'), [first]);
        }";
    assert_legible(&compared, "history=0", rows, 7);
    assert_legible(&snapshot_page(&snapshot), "", rows, 3);
}

#[test]
fn figures_of_a_failure_are_on_one_line_beside_names_of_any_length() {
    // The shortest and the longest.
    for name in names().into_iter().step_by(3) {
        let text = format!(
            "g 0 {name}\na 0 3000000 0 1000 0\na 1 6000000 0 2000 0\na 2 7654321 0 3000 0\n"
        );
        let (_, page, numbers) = page_of(&text, &["--capacity", "12MiB"]);
        assert_eq!(numbers["out_of_memory"]["group"], Value::String(name));
        let script = "
            for (const box of all('#shortage .bar-row, #shortage .top')) check('a bar', box, [...box.querySelectorAll('.number')].filter(isFigure));
            for (const { children: [what, value] } of all('#shortage .figures > div')) {
                for (const side of [what, value]) {
                    if (side.textContent.length > 10 && side.getBoundingClientRect().width < 60) wrong.push(`${side.textContent}: no room`);
                }
            }
            for (const it of all('#shortage p, #ran-out p')) if (it.scrollWidth > it.clientWidth + 1) wrong.push(`${it.textContent} is cut`);";
        assert_legible(&page, "", script, 3);
    }
}

#[test]
fn the_answers_are_side_by_side_where_they_fit() {
    let (_, page, _) = page_of(&program(), &[]);
    let rows = |width| {
        let there = page.run_at(
            width,
            "",
            "return new Set(all('.answer').map(it => Math.round(it.getBoundingClientRect().top))).size;",
        );
        there.as_u64().unwrap()
    };
    assert_eq!([320, 500, 1000, 1600].map(rows), [3, 3, 1, 1]);
}
