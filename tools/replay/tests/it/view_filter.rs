//! What the pages of `binpool view` show of a program at the user's wish: filters, the legend, the wheel, and colours.

use std::fmt::Write;

use binpool_recordings::{Trace, view::Life};
use serde_json::{Value, json};

use crate::view_page::{number, page_of, shown, snapshot, snapshot_page, tagged, tagged_page};

const MIB: u64 = 1 << 20;

/// Whether a filter leaves a block, with its number.
/// The number of colours in palette.js.
const SERIES: usize = 11;

type Fits<'a> = &'a dyn Fn(usize, &Life) -> bool;

#[test]
fn a_filter_leaves_the_blocks_that_it_describes_in_all_views() {
    let (history, page, numbers) = tagged_page();
    let trace = Trace::parse("t", tagged().as_bytes()).unwrap();
    let moment = 400;
    let last = history.last_moment();
    let time = |moment: usize| history.times[moment - 1];
    let end = |life: &Life| life.to.map_or(last, |to| to + 1);
    let lifetime = |life: &Life| time(end(life)) - time(life.from + 1);
    let in_use = |life: &Life| life.from < moment && life.to.is_none_or(|to| moment <= to);
    let age = |life: &Life| in_use(life).then(|| time(moment) - time(life.from + 1));
    let name = |block: usize| trace.group_of(block).unwrap();
    let filters: [(&str, Fits<'_>); 9] = [
        ("activ", &|block, _| name(block) == "activations"),
        ("\"leaky cache\"", &|block, _| name(block) == "leaky cache"),
        ("name=weights", &|block, _| name(block) == "weights"),
        (">1MiB", &|_, life| life.requested_bytes > MIB),
        ("size<=1MB", &|_, life| life.requested_bytes <= 1_000_000),
        ("stream=1 <500k", &|_, life| {
            life.stream == 1 && life.requested_bytes < 500 << 10
        }),
        ("life<5ms", &|_, life| lifetime(life) < 5_000_000),
        ("lifetime>=100", &|_, life| {
            end(life) - (life.from + 1) >= 100
        }),
        ("age>20ms", &|_, life| {
            age(life).is_some_and(|age| age > 20_000_000)
        }),
    ];
    for (filter, fits) in filters {
        let script = "const seen = { result: text('#filter-result'), list: text('#event-count'), value: one('#filter').value,
               legend: all('.legend li:not(.sum)').map(line => [line.querySelector('.name').textContent, line.querySelector('.number').textContent]) };
             await key('b');
             const c = chart(); const names = new Set();
             for (let x = 80; x < c.clientWidth - 20; x += 61) for (let y = 20; y < c.clientHeight - 30; y += 37) {
               await pointer(c, 'pointermove', x, y);
               const title = text('#tooltip .tip-title'); if (title.startsWith('block ')) names.add(Number(title.slice(6).replaceAll(',', '')));
             }
             seen.hovered = [...names]; return seen;";
        let hash = format!(
            "at={moment}&clock=events&filter={}",
            filter
                .replace('"', "%22")
                .replace(' ', "+")
                .replace('=', "%3D")
        );
        let there = page.run(&hash, script);
        let fitting = || {
            let blocks = history.blocks.iter().enumerate();
            blocks.filter(|(block, life)| fits(*block, life))
        };
        let count = fitting().count();
        assert!(count > 0 && count < history.blocks.len(), "{filter}");
        assert_eq!(
            there["result"].as_str().unwrap().replace(',', ""),
            format!("{count} of {} blocks", history.blocks.len()),
            "{filter}"
        );
        let events: usize = fitting()
            .map(|(_, life)| 1 + usize::from(life.to.is_some()))
            .sum();
        let list = there["list"].as_str().unwrap().replace(',', "");
        assert!(
            list.starts_with(&format!("{events} of ")),
            "{filter}: {list}"
        );
        // The legend sums up those that are left.
        for row in numbers["groups"].as_array().unwrap() {
            let group = row["name"].as_str().unwrap();
            let now: u64 = fitting()
                .filter(|(block, life)| in_use(life) && name(*block) == group)
                .map(|(_, life)| life.requested_bytes)
                .sum();
            let legend = there["legend"].as_array().unwrap();
            let line = legend.iter().find(|line| line[0] == group).unwrap();
            assert_eq!(line[1], shown(&json!(now)), "{filter}: {group}");
        }
        let hovered = there["hovered"].as_array().unwrap();
        assert!(!hovered.is_empty(), "{filter}");
        for block in hovered {
            let block = usize::try_from(block.as_u64().unwrap()).unwrap() - 1;
            assert!(fits(block, &history.blocks[block]), "{filter}: {block}");
        }
    }
}

#[test]
fn a_filter_that_is_wrong_says_so_and_fades_nothing() {
    let (_, page, _) = tagged_page();
    let (_, untimed, _) = page_of("a 0 4096 0\nf 0\n", &[]);
    let script = "const seen = []; const input = one('#filter');
         for (const filter of [FILTERS]) { input.value = filter; input.dispatchEvent(new Event('input')); await settle();
           seen.push([text('#filter-result'), input.ariaInvalid]); }
         return seen;";
    let there = page.run(
        "",
        &script.replace(
            "FILTERS",
            "'>big', 'stream=x', 'colour=red', 'age>soon', 'name<a', ''",
        ),
    );
    let errors = [
        ">big has no size: write one such as >1MiB",
        "stream=x has no number: write one such as stream=1",
        "colour=red: a block has no colour; it has a name, size, age, life, stream and stack",
        "age>soon has no time: write one such as age>5ms, or a number of events",
        "name<a: a name can only be compared with =",
    ];
    let mut expected: Vec<Value> = errors.iter().map(|error| json!([error, "true"])).collect();
    expected.push(json!(["", "false"]));
    assert_eq!(there, json!(expected));
    let there = untimed.run("", &script.replace("FILTERS", "'age>1ms', 'life=1'"));
    let error = "age>1ms: this recording has no times; compare with a number of events";
    assert_eq!(there, json!([[error, "true"], ["", "false"]]));
}

#[test]
fn the_map_fades_what_a_filter_leaves_out() {
    let (_, page, _) = tagged_page();
    let there = page.run(
        "",
        "const seen = [colors(map())[colorOf('weights')], colors(map())[colorOf('activations')]];
         one('#filter').value = 'activ'; one('#filter').dispatchEvent(new Event('input')); await settle(); await settle();
         return [...seen, colors(map())[colorOf('weights')] ?? 0, colors(map())[colorOf('activations')]];",
    );
    assert!(number(&there[0]) > 1000, "{there}");
    assert_eq!(there[2], 0);
    assert_eq!(there[3], there[1]);
}

#[test]
fn a_click_in_the_legend_isolates_a_group_and_another_brings_all_back() {
    let (history, page, numbers) = tagged_page();
    let there = page.run(
        "",
        "const lines = () => all('.legend li:not(.sum)').map(line => [line.querySelector('.name').textContent, line.querySelector('.number').textContent,
           line.querySelector('button').getAttribute('aria-pressed')]);
         const button = name => all('.legend li:not(.sum) button').find(button => button.textContent.startsWith(name));
         const seen = { before: lines() };
         await click(button('scratch')); await settle(); seen.only = lines(); seen.hash = location.hash; seen.count = text('#filter-result');
         await click(button('scratch')); await settle(); seen.after = lines();
         await click(button('weights')); await settle(); await key('g'); await settle(); seen.regrouped = [location.hash, text('#filter-result')];
         return seen;",
    );
    assert_eq!(there["hash"], "#only=scratch");
    let scratch = numbers["groups"].as_array().unwrap().iter();
    let scratch = scratch
        .clone()
        .find(|row| row["name"] == "scratch")
        .unwrap();
    let count = there["count"].as_str().unwrap().replace(',', "");
    let all = history.blocks.len();
    assert_eq!(count, format!("{} of {all} blocks", scratch["blocks"]));
    let before = there["before"].as_array().unwrap();
    for (line, before) in there["only"].as_array().unwrap().iter().zip(before) {
        let is_scratch = line[0] == "scratch";
        assert_eq!(
            line[1],
            if is_scratch {
                before[1].clone()
            } else {
                json!("0 B")
            }
        );
        assert_eq!(line[2], is_scratch.to_string());
    }
    assert_eq!(there["after"], there["before"]);
    assert_eq!(there["regrouped"], json!(["#by=size", ""]));
}

#[test]
fn the_wheel_scrolls_the_page_unless_ctrl_or_shift_is_held() {
    let (_, page, _) = tagged_page();
    let there = page.run(
        "clock=events",
        "const c = chart();
         const turn = async more => {
           const event = new WheelEvent('wheel', { deltaY: -200, clientX: 400, clientY: 600, bubbles: true, cancelable: true, ...more });
           c.dispatchEvent(event); await settle(); return [event.defaultPrevented, range() !== null];
         };
         const seen = [await turn({}), await turn({ ctrlKey: true })]; await key('0');
         await pointer(c, 'pointerdown', 400, 100); await pointer(c, 'pointerup', 400, 100); c.focus();
         seen.push(await turn({}), await turn({ shiftKey: true }), await turn({ metaKey: true })); return seen;",
    );
    let [left, taken] = [json!([false, false]), json!([true, true])];
    // All is in sight, so there is nowhere to move to.
    let moved = json!([true, false]);
    assert_eq!(there, json!([left, taken, left, moved, taken]));
}

/// The colour and the pattern of each group of a page, from the bottom of the stack to its top.
fn colors_of(groups: &[&str], theme: &str) -> Vec<(String, String)> {
    let mut text = String::new();
    for (number, name) in groups.iter().enumerate() {
        writeln!(text, "g {number} {name}").unwrap();
    }
    for number in 0..groups.len() {
        let bytes = (groups.len() - number) << 20;
        writeln!(text, "a {number} {bytes} 0 0 {number}").unwrap();
    }
    let there = page_of(&text, &[]).1.run(
        &format!("theme={theme}"),
        "return all('.legend li:not(.sum)').reverse().map(line => line.querySelector('.swatch')).map(swatch => [swatch.dataset.color, swatch.style.background]);",
    );
    let pairs = there.as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    pairs.map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

/// How different two colours look, at the least, to eyes with all cones and to eyes without red, green or blue ones: the distance in Oklab of
/// what each of them sees (Machado and others, 2009).
fn distance(one: &str, other: &str) -> f64 {
    const SIGHTS: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152, 1.053, -0.205],
            [0.115, 0.786, 0.099],
            [-0.004, -0.048, 1.052],
        ],
        [
            [0.367, 0.861, -0.228],
            [0.280, 0.673, 0.047],
            [-0.012, 0.043, 0.969],
        ],
        [
            [1.256, -0.077, -0.179],
            [-0.078, 0.931, 0.148],
            [0.005, 0.691, 0.304],
        ],
    ];
    const CONES: [[f64; 3]; 3] = [
        [0.4122, 0.5363, 0.0514],
        [0.2119, 0.6807, 0.1074],
        [0.0883, 0.2817, 0.6300],
    ];
    const LAB: [[f64; 3]; 3] = [
        [0.2105, 0.7936, -0.0041],
        [1.9780, -2.4286, 0.4506],
        [0.0259, 0.7828, -0.8087],
    ];
    let times = |matrix: [[f64; 3]; 3], vector: [f64; 3]| {
        matrix.map(|row| {
            row.iter()
                .zip(vector)
                .map(|(one, other)| one * other)
                .sum::<f64>()
        })
    };
    let lab = |color: &str, sight| {
        let linear = [1, 3, 5].map(|place| {
            let part = f64::from(u8::from_str_radix(&color[place..place + 2], 16).unwrap()) / 255.0;
            ((part + 0.055) / 1.055).powf(2.4)
        });
        let seen = times(sight, linear).map(|part| part.clamp(0.0, 1.0));
        times(LAB, times(CONES, seen).map(f64::cbrt))
    };
    let distances = SIGHTS.map(|sight| {
        let parts = lab(one, sight).into_iter().zip(lab(other, sight));
        parts
            .map(|(one, other)| (one - other).powi(2))
            .sum::<f64>()
            .sqrt()
    });
    distances.into_iter().fold(f64::INFINITY, f64::min)
}

#[test]
fn groups_that_are_drawn_side_by_side_have_colours_that_are_far_apart() {
    let names: Vec<String> = (0..SERIES).map(|group| format!("group {group}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for theme in ["light", "dark"] {
        let colors = colors_of(&names, theme);
        assert_eq!(colors.len(), SERIES);
        for pair in colors.windows(2) {
            let apart = distance(&pair[0].0, &pair[1].0);
            assert!(apart > 0.09, "{theme}: {pair:?}: {apart}");
        }
        for three in colors.windows(3) {
            let apart = distance(&three[0].0, &three[2].0);
            assert!(apart > 0.06, "{theme}: {three:?}: {apart}");
        }
        let mut distinct = colors.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), SERIES, "{colors:?}");
        // Stripes are for those beyond the six hues.
        let plain =
            |(color, ground): &&(String, String)| !ground.contains("gradient") && !color.is_empty();
        assert_eq!(colors.iter().take_while(plain).count(), 6, "{colors:?}");
    }
}

#[test]
fn an_axis_of_time_begins_at_0_where_the_program_began_near_it() {
    for (first, expected) in [(740_000, "0 ms"), (500_000_000_000_u64, "500.000 s")] {
        let last = first + 9_260_000;
        let text = format!("a 0 4096 0 {first}\na 1 4096 0 {last}\n");
        let there = page_of(&text, &[]).1.run(
            "clock=time",
            "const texts = []; const own = CanvasRenderingContext2D.prototype.fillText;
             CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
               if (this.canvas === chart() && this.textBaseline === 'top') texts.push(text);
               return own.call(this, text, x, y);
             };
             await key('t'); await settle(); return texts;",
        );
        assert_eq!(there[0], expected, "{there}");
    }
}

#[test]
fn a_snapshot_tells_of_requests_that_failed_before_it() {
    let mut before = snapshot();
    before.as_object_mut().unwrap().remove("out_of_memory");
    let script =
        "return [text('#ran-out h2'), text('#ran-out strong'), one('#ran-out').className];";
    let there = snapshot_page(&before).run("", script);
    // Of 96 MiB, 64 are reserved.
    let question = "How close was I to running out?";
    assert_eq!(there, json!([question, "32.0 MiB", "answer good"]));
    before["statistics"]["out_of_memory"] = json!(2);
    let there = snapshot_page(&before).run("", script);
    let question = "Why did I run out?";
    assert_eq!(there, json!([question, "2 requests", "answer bad"]));
    // The bar of what is held is made of what is in use, and of what is held.
    let there = snapshot_page(&snapshot()).run(
        "",
        "return all('#leaked .part').map(part => Number.parseFloat(part.style.width));",
    );
    let near = |value: &Value, part: f64| (value.as_f64().unwrap() - part).abs() < 0.01;
    assert!(
        near(&there[0], 30.0 / 64.0 * 100.0) && near(&there[1], 34.0 / 64.0 * 100.0),
        "{there}"
    );
}
