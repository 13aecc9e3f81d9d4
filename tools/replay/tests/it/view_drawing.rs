//! Where the pages of `binpool view` draw what they draw.

use std::fs;

use serde_json::Value;

use crate::{browser::Page, common::binpool};

/// The page of a trace.
fn page_of(text: &str, options: &[&str]) -> Page {
    let folder = tempfile::tempdir().unwrap();
    let [file, page] = ["program.trace", "page.html"].map(|name| folder.path().join(name));
    fs::write(&file, text).unwrap();
    let arguments = ["view", file.to_str().unwrap(), "-o", page.to_str().unwrap()];
    let ran = binpool(&[&arguments[..], options].concat());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    Page::new(fs::read_to_string(page).unwrap())
}

fn numbers(value: &Value) -> Vec<f64> {
    let numbers = value.as_array().unwrap().iter();
    numbers.map(|number| number.as_f64().unwrap()).collect()
}

/// Notes what is drawn from here on: the canvas, the call, its numbers, and the color or the text.
const NOTE: &str = "
    const drawn = [];
    for (const call of ['fillRect', 'strokeRect', 'fillText']) {
      const own = CanvasRenderingContext2D.prototype[call];
      CanvasRenderingContext2D.prototype[call] = function (...rest) {
        const where = this.canvas === chart() ? 'chart' : this.canvas === one('.whole') ? 'whole' : this.canvas === map() ? 'map' : '';
        drawn.push([where, call, ...rest, this.fillStyle]);
        return own.apply(this, rest);
      };
    }
    const on = (where, call) => drawn.filter(one => one[0] === where && one[1] === call).map(one => one.slice(2));
    /** Draws everything again, in the other theme. */
    const redraw = async () => { drawn.length = 0; await key('t'); await settle(); };
";

/// Two blocks of 1 MiB in four steps.
const STEPS: &str = "a 0 1048576 0\na 1 1048576 0\nf 0\nf 1\n";

#[test]
fn what_lies_outside_the_range_is_veiled_on_both_sides() {
    let page = page_of(STEPS, &[]);
    let there = page.run(
        "clock=events&range=1~3",
        &format!(
            "{NOTE} await redraw();
             return {{ rects: on('whole', 'fillRect').slice(-2).map(one => one.slice(0, 4)), width: one('.whole').clientWidth }};"
        ),
    );
    let plot = (66.0, there["width"].as_f64().unwrap() - 66.0 - 14.0);
    let [left, right] = [0, 1].map(|side| numbers(&there["rects"][side]));
    // Of five moments, one is left of the range and two are right of it.
    let near = |seen: f64, expected: f64| assert!((seen - expected).abs() < 1.0, "{there}");
    near(left[0], plot.0);
    near(left[2], plot.1 / 5.0);
    near(right[0], plot.0 + plot.1 * 3.0 / 5.0);
    near(right[2], plot.1 * 2.0 / 5.0);
}

#[test]
fn segments_lie_within_the_map_and_frames_around_them() {
    let page = page_of(&STEPS[..28], &[]);
    let there = page.run(
        "",
        &format!(
            "{NOTE} await redraw();
             const plain = list => list.map(one => one.slice(0, 4));
             return {{ fills: plain(on('map', 'fillRect')), frames: plain(on('map', 'strokeRect')), width: map().clientWidth }};"
        ),
    );
    let width = there["width"].as_f64().unwrap();
    let all = |name: &str| -> Vec<Vec<f64>> {
        there[name]
            .as_array()
            .unwrap()
            .iter()
            .map(numbers)
            .collect()
    };
    let (fills, frames) = (all("fills"), all("frames"));
    assert!(!fills.is_empty() && !frames.is_empty(), "{there}");
    for rect in fills.iter().chain(&frames) {
        assert!(
            rect[0] >= 0.0 && rect[0] + rect[2] <= width,
            "{rect:?} of {width}"
        );
    }
    for frame in frames {
        // A line of one pixel is drawn along its middle.
        let inside = |rect: &&Vec<f64>| {
            (rect[0] - (frame[0] - 0.5)).abs() < 0.01
                && (rect[1] - (frame[1] - 0.5)).abs() < 0.01
                && (rect[3] - (frame[3] + 1.0)).abs() < 0.01
        };
        assert!(fills.iter().any(|rect| inside(&rect)), "{frame:?}: {there}");
    }
}

#[test]
fn each_step_is_as_high_as_what_is_in_use_from_its_first_pixel_on() {
    let page = page_of(STEPS, &[]);
    let there = page.run(
        "clock=events",
        "const c = chart(); const plot = c.clientWidth - 66 - 14;
         // In a row between one and two blocks.
         const y = Math.round(c.clientHeight * 0.35);
         const isDrawn = x => isColored(c, Math.round(x), y, colorOf('512 KiB – 1 MiB'));
         const at = place => isDrawn(66 + plot * place);
         return { one: at(0.3), begins: isDrawn(66 + plot * 0.4 + 1), middle: at(0.5), after: at(0.7) };",
    );
    let [is_drawn, is_not] = [Value::from(true), Value::from(false)];
    assert_eq!([&there["begins"], &there["middle"]], [&is_drawn, &is_drawn]);
    assert_eq!([&there["one"], &there["after"]], [&is_not, &is_not]);
}

#[test]
fn the_capacity_is_drawn_where_it_is_near_what_was_reserved() {
    for (capacity, is_drawn) in [("5MiB", true), ("8MiB", false)] {
        let page = page_of("a 0 4194304 0\n", &["--capacity", capacity]);
        let line = page.run("", "return redLines().line;").as_u64().unwrap();
        assert_eq!(line > 300, is_drawn, "{capacity}: {line}");
    }
}

#[test]
fn the_name_of_a_mark_at_the_right_end_lies_to_its_left() {
    // 38 pairs before it.
    let text = "a 2 4096 0\nf 2\n".repeat(38) + "a 0 4194304 0\na 1 4194304 0\n";
    let page = page_of(&text, &["--capacity", "5MiB"]);
    let there = page.run(
        "clock=events",
        &format!(
            "{NOTE} await redraw(); const pen = chart().getContext('2d'); pen.font = '600 12px system-ui, sans-serif';
             return {{ texts: on('chart', 'fillText').map(([text, x]) => [text, x, pen.measureText(text).width]), width: chart().clientWidth }};"
        ),
    );
    // Of 78 moments, the last one is that of the failure.
    let width = there["width"].as_f64().unwrap() - 66.0 - 14.0;
    let mark = 66.0 + width * 77.0 / 78.0;
    let texts = there["texts"].as_array().unwrap();
    let name = texts
        .iter()
        .find(|text| text[0] == "out of memory")
        .unwrap();
    let end = name[1].as_f64().unwrap() + name[2].as_f64().unwrap();
    assert!(
        end < mark - 8.0 && end > mark - 20.0,
        "{end} beside {mark}: {there}"
    );
}

#[test]
fn nothing_is_told_beside_the_plot() {
    let page = page_of(STEPS, &[]);
    let there = page.run(
        "clock=events",
        "const c = chart(); const width = c.clientWidth;
         const shown = async x => { await pointer(c, 'pointermove', x, 200); return !one('#tooltip').hidden; };
         return { inside: await shown(width - 20), beside: await shown(width - 8), left: await shown(60) };",
    );
    assert_eq!(there["inside"], true, "{there}");
    assert_eq!(
        (&there["beside"], &there["left"]),
        (&Value::from(false), &Value::from(false))
    );
}

#[test]
fn keys_of_the_browser_are_left_to_it_on_the_map() {
    let page = page_of(&STEPS[..28], &[]);
    let there = page.run(
        "",
        "const pressed = async more => {
           const event = new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: false, cancelable: true, ...more });
           map().dispatchEvent(event); await settle(); return event.defaultPrevented;
         };
         return { plain: await pressed({}), ctrl: await pressed({ ctrlKey: true }), meta: await pressed({ metaKey: true }), alt: await pressed({ altKey: true }) };",
    );
    assert_eq!(there["plain"], true, "{there}");
    for modifier in ["ctrl", "meta", "alt"] {
        assert_eq!(there[modifier], false, "{modifier}");
    }
}

#[test]
fn a_part_of_nothing_is_not_drawn() {
    let page = page_of(STEPS, &[]);
    let widths = page.run(
        "",
        "return all('.share .part').map(part => part.style.width);",
    );
    let widths = widths.as_array().unwrap();
    assert!(!widths.is_empty());
    assert!(widths.iter().all(|width| width != "0%"), "{widths:?}");
}

#[test]
fn the_folder_that_all_groups_are_in_is_not_repeated_where_there_is_little_room() {
    let names = |groups: [&str; 3]| {
        let [one, two, three] = groups;
        let text = format!(
            "g 0 {one}\ng 1 {two}\ng 2 {three}\na 0 3000000 0 0 0\na 1 2000000 0 0 1\na 2 1000000 0 0 2\n"
        );
        page_of(&text, &[]).run(
            "",
            "const texts = (at, of) => all(at).map(of);
             return [texts('.legend li:not(.sum) .name', name => name.textContent), texts('.legend li:not(.sum) button', button => button.title.split('\\n')[0]),
                     texts('.top .name', name => name.textContent).slice(0, 3)];",
        )
    };
    let in_one = ["app/model.py:12 a/b", "app/train.py:3 step", "weights"];
    let there = names(in_one);
    let short = ["model.py:12 a/b", "train.py:3 step", "weights"];
    let reversed = |names: [&'static str; 3]| {
        let [one, two, three] = names;
        serde_json::json!([three, two, one])
    };
    assert_eq!(there[0], reversed(short));
    assert_eq!(there[1], reversed(in_one));
    assert_eq!(there[2], serde_json::json!(short));

    let in_two = ["app/model.py:12 a/b", "other/train.py:3 step", "weights"];
    assert_eq!(names(in_two)[0], reversed(in_two));
}

#[test]
fn a_long_name_keeps_its_file_and_line_and_is_whole_in_its_title() {
    let long = "/home/someone/.venv/lib/python3.12/site-packages/transformers/modeling_llama.py:1234 LlamaDecoderLayer.forward";
    let text =
        format!("g 0 {long}\ng 1 app/train.py:3 step\na 0 3000000 0 0 0\na 1 2000000 0 0 1\n");
    let there = page_of(&text, &[]).run(
        "",
        "const isCut = part => part.scrollWidth > part.clientWidth;
         return ['.legend', '.top', '.event-rows', '#groups'].map(list => {
           const name = all(`${list} .parted`).find(name => name.textContent.startsWith('/home'));
           return [name.textContent, name.title || name.parentElement.title.split('\\n')[0], name.querySelector('.file').textContent,
             isCut(name.querySelector('.file')), isCut(name.querySelector('.folder'))];
         });",
    );
    for list in there.as_array().unwrap() {
        assert_eq!((&list[0], &list[1]), (&long.into(), &long.into()));
        assert_eq!(list[2], "modeling_llama.py:1234");
        assert_eq!(list[3], false, "{there}");
    }
    // There is little room in the first two.
    assert_eq!([&there[0][4], &there[1][4]], [true, true], "{there}");
}
