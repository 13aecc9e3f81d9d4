//! Single blocks on the pages of `binpool view`: over time, pinned, and in the list of events.

use std::{collections::BTreeMap, fmt::Write};

use binpool::PoolOptions;
use binpool_recordings::{
    Trace,
    view::{By, History, Life, page_of as page_of_histories},
};
use binpool_replay::{Profile, simulate};
use serde_json::{Value, json};

use crate::{
    browser::Page,
    view_page::{event_of, number, page_of, shown, tagged, tagged_page, with_functions},
};

fn history_of(text: &str) -> History {
    let trace = Trace::parse("t", text.as_bytes()).unwrap();
    let pool = PoolOptions::new().segments(true);
    simulate(&trace, &Profile::H200, None, &pool, &|_| {}).unwrap()
}

fn in_use(life: &Life, moment: usize) -> bool {
    life.from < moment && life.to.is_none_or(|to| moment <= to)
}

#[test]
fn the_blocks_in_use_and_the_largest_numbers_are_those_that_a_look_at_all_finds() {
    let (_, page, _) = page_of("a 0 1 0\n", &[]);
    let page = with_functions(&page, "Program, BlocksInUse, Peaks");
    let there = page.run(
        "",
        "let state = 1; const random = below => (state = (state * 48271) % 2147483647) % below;
         const [frees, asked, live] = [[], [], []];
         for (let event = 0; event < 6000; event++) {
           if (live.length > 0 && random(100) < 48) frees.push(asked.length - live.splice(random(live.length), 1)[0]);
           else { live.push(asked.length); asked.push(2 ** random(20) + random(1000)); frees.push(0); }
         }
         const zeros = asked.map(() => 0);
         const columns = { frees, times: [], asked, more: zeros, segment: zeros, offset: zeros, segment_bytes: [], segment_from: [], segment_to: [] };
         const program = new Program({ numbers: { events: frees.length, stacks: [], shortages: [], pool_events: [] }, columns, groupings: [] });
         const mask = Uint8Array.from(asked, (_, block) => block % 3 === 0 ? 0 : 1);
         const wrong = [];
         let most = 0;
         for (const of of [null, mask]) {
           const found = new Int32Array(asked.length);
           const index = new BlocksInUse(program, of);
           for (let tries = 0; tries < 400; tries++) {
             const [moment, least] = [random(frees.length + 1), tries % 2 ? random(1 << 18) / 2 : 2 ** random(18)];
             const all = asked.map((_, block) => block).filter(block => program.from[block] < moment && moment <= program.to[block]
               && asked[block] >= least && (!of || of[block]));
             const count = index.find(moment, least, found);
             most = Math.max(most, count);
             if (all.join() !== found.subarray(0, count).join()) wrong.push([moment, least]);
           }
         }
         const peaks = new Peaks(program.active);
         for (let tries = 0; tries < 400; tries++) {
           const [one, other] = [random(frees.length), random(frees.length)];
           const [from, to] = [Math.min(one, other), Math.max(one, other)];
           let best = from;
           for (let place = from; place <= to; place++) if (program.active[place] > program.active[best]) best = place;
           if (peaks.between(from, to) !== best) wrong.push(['peak', from, to]);
         }
         return { wrong, most };",
    );
    assert_eq!(there["wrong"], json!([]));
    assert!(number(&there["most"]) > 100, "{there}");
}

#[test]
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "pixels"
)]
fn each_block_is_where_those_allocated_before_it_end() {
    let (history, page, numbers) = tagged_page();
    let events = history.last_moment() as f64;
    for moment in [25, 300, 1501] {
        let there = page.run(
            "mode=blocks&clock=events&reserved=hidden",
            &format!(
                "const c = chart(); const x = 66 + ({moment} + 0.5) / ({events} + 1) * (c.clientWidth - 80); const seen = [];
                 for (let y = 15; y < c.clientHeight - 28; y += 4) {{
                   await pointer(c, 'pointermove', x, y);
                   const rows = Object.fromEntries(all('#tooltip dt').map(title => [title.textContent, title.nextSibling.textContent]));
                   const title = text('#tooltip .tip-title');
                   seen.push([y, title, rows, text('#legend-moment')]);
                 }}
                 return {{ seen, height: c.clientHeight }};"
            ),
        );
        let tall = there["height"].as_f64().unwrap() - 14.0 - 28.0;
        let high = numbers["peak_active"]["active_bytes"].as_f64().unwrap() * 1.06;
        let least = high / tall / 2.0;
        let (mut blocks, mut small) = (0, 0);
        for seen in there["seen"].as_array().unwrap() {
            let title = seen[1].as_str().unwrap();
            // A column of pixels shows the moment in it with the most in use.
            let moment = event_of(&json!(seen[3].as_str().unwrap().replace("At ", "")));
            let bytes = (1.0 - (seen[0].as_f64().unwrap() - 14.0) / tall) * high;
            let there = history.blocks.iter().enumerate();
            let there: Vec<_> = there.filter(|(_, life)| in_use(life, moment)).collect();
            let all: u64 = there.iter().map(|(_, life)| life.requested_bytes).sum();
            let mut sum = 0.0;
            let found = there.iter().find(|(_, life)| {
                let size = life.requested_bytes as f64;
                sum += if size >= least { size } else { 0.0 };
                size >= least && bytes < sum
            });
            if let Some((block, life)) = found {
                assert_eq!(title, format!("block {}", block + 1).as_str(), "{seen}");
                assert_eq!(seen[2]["stream"], life.stream.to_string());
                assert_eq!(event_of(&seen[2]["allocated"]), life.from + 1);
                blocks += 1;
            } else if bytes <= all as f64 {
                let rest = all - sum as u64;
                assert_eq!(seen[2]["together"], shown(&json!(rest)), "{seen}");
                small += 1;
            } else {
                assert!(title.starts_with("event "), "{seen}");
            }
        }
        assert!(blocks > 10, "{blocks} at {moment}");
        assert!(moment < 1000 || small > 0);
    }
}

#[test]
fn a_block_moves_down_when_one_below_it_ends_and_small_ones_are_one_area_on_top() {
    // Every third block has its group's colour without a shade.
    let mut text = String::from(
        "g 0 low\ng 1 high\na 0 4194304 0 0 0\na 1 512 0 0 0\na 2 512 0 0 0\na 3 4194304 0 0 1\n",
    );
    for block in 4..260 {
        writeln!(text, "a {block} 8192 0 0 0").unwrap();
    }
    text += "f 0\n";
    let (_, page, _) = page_of(&text, &[]);
    let there = page.run(
        "mode=blocks&clock=events&reserved=hidden&range=242~262",
        "const c = chart(); const x = moment => Math.round(66 + (moment - 242 + 0.5) / 20 * (c.clientWidth - 80));
         const high = (4194304 * 2 + 1024 + 256 * 8192) * 1.06; const y = mib => Math.round(14 + (c.clientHeight - 42) * (1 - mib * 1048576 / high));
         const names = { low: colorOf('low'), high: colorOf('high'), small: '197,203,212,255', ground: '0,0,0,0' };
         const at = (moment, mib) => Object.keys(names).filter(name => isColored(c, x(moment), y(mib), names[name]));
         return [[0.5, 3.5], [4.5, 7.5], [8.5, 9.5]].map(places => places.map(mib => [at(259, mib), at(261, mib)]));",
    );
    let [low, high, small, none] = ["low", "high", "small", "ground"].map(|name| json!([name]));
    let expected = json!([
        [[low, high], [low, high]],
        [[high, small], [high, none]],
        [[small, none], [small, none]],
    ]);
    assert_eq!(there, expected);
}

#[test]
fn a_click_on_a_block_pins_it_with_its_whole_name_as_text() {
    let name = format!("outer/{}/model.py:12 forward", "long".repeat(60));
    let text = format!(
        "g 0 {name}\ng 1 other\na 0 4194304 0 1000 0\na 1 4194304 1 2000 1\na 2 8388608 2 3000 0\nf 0 4000\nf 2 6000\n"
    );
    let (history, page, _) = page_of(&text, &[]);
    let there = page.run(
        "mode=blocks&clock=events&reserved=hidden",
        "const c = chart(); const seen = { before: one('#block').hidden };
         const click = async (part, y) => { const x = 66 + part * (c.clientWidth - 80);
           await pointer(c, 'pointerdown', x, y); await pointer(c, 'pointerup', x, y); };
         // The third block is the topmost at the moment after its allocation.
         await click(3.5 / 6, 60);
         const rows = () => Object.fromEntries(all('#block dt').map(title => [title.textContent, title.nextSibling.textContent]));
         seen.name = text('#block-name'); seen.rows = rows(); seen.hash = location.hash; seen.moment = figures().moment;
         const selection = getSelection(); selection.selectAllChildren(one('#block-name')); seen.selected = String(selection);
         seen.outline = Object.entries(colors(one('.chart.over'))).filter(([color]) => color === '28,33,39,255').map(([, count]) => count)[0];
         await click(2.5 / 6, 300); seen.second = text('#block .pinned-title').trim();
         one('#block-life').click(); await settle(); seen.range = range();
         one('#block-close').click(); await settle(); seen.closed = [one('#block').hidden, location.hash.includes('block=')];
         await key('b'); await key('b'); seen.mode = [location.hash.includes('mode='), one('#blocks-note').hidden]; return seen;",
    );
    assert_eq!(there["before"], true);
    assert_eq!(there["name"], name);
    assert_eq!(there["selected"], name);
    assert!(there["hash"].as_str().unwrap().contains("block=2"));
    let rows = &there["rows"];
    assert_eq!(rows["asked"], "8.00 MiB (8,388,608 bytes)");
    assert_eq!(rows["stream"], "2");
    let life = history.blocks[2];
    assert_eq!(event_of(&rows["allocated"]), life.from + 1);
    assert_eq!(event_of(&rows["freed"]), life.to.unwrap() + 1);
    assert_eq!(rows["lifetime"], "3.00 µs, 2 events");
    assert_eq!(there["moment"], 3);
    // Two moments of six, on both sides.
    assert!(there["outline"].as_u64().unwrap() > 500, "{there}");
    assert_eq!(there["second"], "Block 1");
    let range = [0, 1].map(|end| there["range"][end].as_f64().unwrap());
    assert!(range[0] <= 1.0 && range[1] >= 4.0, "{range:?}");
    assert_eq!(there["closed"], json!([true, false]));
    assert_eq!(there["mode"], json!([false, true]));
}

/// Colours of groups in this picture would be read as groups.
#[test]
fn segments_are_grey_and_the_legend_beside_them_has_no_groups() {
    let (_, page, _) = page_of(&tagged(), &["--no-segments"]);
    for theme in ["light", "dark"] {
        let there = page.run(
            &format!("mode=segments&clock=events&theme={theme}"),
            "const there = () => ({ colors: Object.keys(colors(chart())).map(color => color.split(',').map(Number)),
               legend: all('.legend li').map(line => line.querySelector('.name').textContent), note: text('#blocks-note'),
               hidden: one('#blocks-note').hidden });
             const segments = there(); await key('b'); const groups = there(); return { segments, groups };",
        );
        // How far a pixel is from grey. The line of the pinned moment is on another canvas; soft edges of text are not exact.
        let tints = |of: &Value| {
            let colors = of["colors"].as_array().unwrap().iter();
            let colors = colors.filter(|color| color[3] == 255);
            let tint = |color: &Value| {
                let parts: Vec<u64> = (0..3).map(|part| color[part].as_u64().unwrap()).collect();
                parts.iter().max().unwrap() - parts.iter().min().unwrap()
            };
            colors.map(tint).max().unwrap()
        };
        let [segments, groups] = ["segments", "groups"].map(|mode| &there[mode]);
        assert!(tints(segments) < 48, "{theme}: {}", tints(segments));
        assert!(tints(groups) > 100, "{theme}: {}", tints(groups));
        assert_eq!(segments["legend"], json!(["reserved", "in use"]));
        assert_eq!(groups["legend"].as_array().unwrap().len(), 6);
        let note = segments["note"].as_str().unwrap();
        assert!(note.contains("greys without a meaning"), "{note}");
        assert_eq!(
            [&segments["hidden"], &groups["hidden"]],
            [&json!(false), &json!(true)]
        );
    }
}

#[test]
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "pixels"
)]
fn each_segment_is_drawn_over_the_time_in_which_it_is_reserved() {
    let (history, page, numbers) = page_of(&tagged(), &["--no-segments"]);
    assert_ne!(history.segments.len(), 0);
    let there = page.run(
        "mode=segments&clock=events",
        "const c = chart(); const seen = [];
         for (let y = 15; y < c.clientHeight - 28; y += 4) {
           await pointer(c, 'pointermove', c.clientWidth - 60, y);
           seen.push([y, text('#tooltip .tip-title'), all('#tooltip dd').map(it => it.textContent), text('#legend-moment')]);
         }
         const last = seen.findLast(([, title]) => title.startsWith('segment '));
         await pointer(c, 'pointerdown', c.clientWidth - 60, last[0]); await pointer(c, 'pointerup', c.clientWidth - 60, last[0]);
         const pinned = [last[1], text('#block .pinned-title').trim(), all('#block dd').map(it => it.textContent).at(-1)];
         const list = one('#event-kinds'); list.value = 'segments'; list.dispatchEvent(new Event('change')); await settle();
         return { seen, pinned, height: c.clientHeight, taken: text('#event-count'), on: text('.switch [aria-checked=true]') };",
    );
    assert_eq!(there["on"], "Segments");
    // A click pins the block that the segment was taken for, which lies in it.
    let of = |place: usize| there["pinned"][place].as_str().unwrap();
    let segment: usize = of(0).trim_start_matches("segment ").parse().unwrap();
    let block: usize = of(1).trim_start_matches("Block ").parse().unwrap();
    let life = history.blocks[block - 1];
    assert_eq!(life.from, history.segments[segment - 1].from);
    assert_eq!(life.segment, Some(segment - 1));
    assert!(of(2).starts_with(&format!("segment {segment},")));
    let tall = there["height"].as_f64().unwrap() - 14.0 - 28.0;
    let most = numbers["peak_reserved"]["reserved_bytes"].as_f64().unwrap() * 1.06;
    let mut told = BTreeMap::new();
    for seen in there["seen"].as_array().unwrap() {
        let bytes = (1.0 - (seen[0].as_f64().unwrap() - 14.0) / tall) * most;
        let Some(name) = seen[1].as_str().unwrap().strip_prefix("segment ") else {
            continue;
        };
        let size = seen[2][0].as_str().unwrap();
        told.insert(name.to_owned(), (bytes, size.to_owned()));
        assert!(
            event_of(&seen[2][1]) <= event_of(&json!(seen[3].as_str().unwrap().replace("At ", "")))
        );
    }
    // The highest that is told of is not above what is reserved there.
    let at_end = numbers["at_end"]["reserved_bytes"].as_f64().unwrap();
    assert!(told.len() > 3, "{told:?}");
    assert!(
        told.values()
            .all(|(bytes, _)| *bytes <= at_end + most / tall)
    );
}

#[test]
fn the_list_has_what_the_pool_did_as_the_recording_says_it() {
    let text = "h version 2\nh device pocl\nh capacity 8589934592\nh blocks segments\ng 0 weights\n\
                p miss 4096 1 too little is free\ns 9 65536 2\nb 1 9 4096 1024 3\na 257 1000 0 4 0\np trim 2048 5 to 0 bytes\n\
                p wait 0 6 for queue 1\nf 257 9\n";
    let (_, page, numbers) = page_of(text, &[]);
    let there = page.run(
        "",
        "const select = one('#event-kinds'); const seen = {};
         const rows = () => all('.event-rows .event').map(row => [...row.children].map(cell => cell.textContent));
         const choose = async kind => { select.value = kind; select.dispatchEvent(new Event('change')); await settle(); return rows(); };
         seen.pool = await choose('pool'); seen.all = (await choose('all')).map(row => row[2]);
         const filter = async text => { one('#filter').value = text; one('#filter').dispatchEvent(new Event('input')); await settle(); await settle(); return rows().map(row => row[2]); };
         seen.trims = await filter('trim'); seen.stacks = await filter('stack=main');
         return seen;",
    );
    let mut events = numbers["pool_events"].as_array().unwrap().clone();
    events.retain(|event| event["what"] != "taken");
    let rows = there["pool"].as_array().unwrap();
    assert_eq!((rows.len(), events.len()), (3, 3));
    for (row, event) in rows.iter().zip(&events) {
        assert_eq!((&row[2], &row[4]), (&event["what"], &event["text"]));
        assert_eq!(row[3], shown(&event["bytes"]));
        assert_eq!(row[0], event["moment"].to_string());
    }
    let all = [
        "miss",
        "segment taken",
        "allocated",
        "trim",
        "wait",
        "freed",
    ];
    assert_eq!(there["all"], json!(all));
    assert_eq!(there["trims"], json!(["trim"]));
    assert_eq!(there["stacks"], json!([]));
}

#[test]
fn a_pinned_block_has_all_streams_that_it_was_used_on() {
    let text = "h version 3\na 1 4096 0 1\na 2 4096 0 2\nu 1 2 3\nu 1 5 4\nu 1 3 5\nu 2 4 6\n";
    let (_, page, _) = page_of(text, &[]);
    let rows = |block| {
        page.run(
            &format!("block={block}&at=2"),
            "return Object.fromEntries(all('#block dt').map(title => [title.textContent, title.nextSibling.textContent]));",
        )
    };
    let there = [rows(0), rows(1)];
    assert_eq!(there[0]["stream"], "2");
    assert_eq!(there[0]["also used on stream"], "5, 3");
    assert_eq!(there[1]["stream"], "4");
    assert_eq!(there[1].get("also used on stream"), None);
}

#[test]
fn the_list_has_every_event_and_follows_the_pinned_moment() {
    let text = tagged().replacen("a 10 ", "o 999999999 1 10500000 1\na 10 ", 1);
    let (history, page, numbers) = page_of(&text, &["--capacity", "2GiB"]);
    let events = history.last_moment();
    let there = page.run(
        "at=100",
        "const seen = {}; const select = one('#event-kinds'); const view = one('#events-view');
         const rows = () => all('.event-rows .event').map(row => ({ moment: Number(row.dataset.moment), kind: row.dataset.kind,
           cells: [...row.children].map(cell => cell.textContent), chosen: row.ariaSelected === 'true' }));
         const choose = async kind => { select.value = kind; select.dispatchEvent(new Event('change')); await settle(); return [text('#event-count'), rows()]; };
         seen.count = text('#event-count'); seen.at = rows();
         seen.kinds = {}; for (const kind of ['allocated', 'freed', 'segments', 'failed', 'all']) seen.kinds[kind] = await choose(kind);
         await key('e'); seen.end = rows();
         // There are no frames, without which there is no event of it.
         view.scrollTop = 0; view.dispatchEvent(new Event('scroll')); await settle(); seen.top = rows();
         await click(all('.event-rows .event')[3]); seen.clicked = [figures().moment, rows()[3], location.hash];
         await key('ArrowDown', view); seen.down = figures().moment; await key('End', view); seen.last = figures().moment;
         seen.nodes = all('.event-rows .event').length;
         return seen;",
    );
    let segments =
        history.segments.len() + history.segments.iter().filter(|it| it.to.is_some()).count();
    let all = events + segments + 1;
    let text = |count: usize| {
        let count = count.to_string();
        let (front, back) = count.split_at(count.len().saturating_sub(3));
        if front.is_empty() {
            back.to_owned()
        } else {
            format!("{front},{back}")
        }
    };
    assert_eq!(there["count"], format!("{} events", text(all)));
    let some = |kind: &str| there["kinds"][kind][0].as_str().unwrap().to_owned();
    let of = |count: usize| format!("{} of {} events", text(count), text(all));
    let frees = history.frees.iter().filter(|free| free.is_some()).count();
    assert_eq!(some("allocated"), of(history.blocks.len()));
    assert_eq!(some("freed"), of(frees));
    assert_eq!(some("segments"), of(segments));
    assert_eq!(some("failed"), of(1));
    let failed = &there["kinds"]["failed"][1][0];
    assert_eq!(failed["moment"], numbers["shortages"][0]["moment"]);
    assert_eq!(failed["cells"][4], "activations");
    // Each row is the event that it says.
    let trace = Trace::parse("t", tagged().as_bytes()).unwrap();
    let mut checked = 0;
    for list in ["at", "end", "top"] {
        for row in there[list].as_array().unwrap() {
            let event = usize::try_from(row["moment"].as_u64().unwrap()).unwrap() - 1;
            let block = match row["kind"].as_str().unwrap() {
                "allocated" => history.blocks.iter().position(|life| life.from == event),
                "freed" => history.frees[event],
                _ => continue,
            };
            let block = block.unwrap();
            let life = history.blocks[block];
            assert_eq!(row["cells"][3], shown(&json!(life.requested_bytes)));
            assert_eq!(row["cells"][4], trace.group_of(block).unwrap());
            assert_eq!(row["cells"][5], life.stream.to_string());
            checked += 1;
        }
    }
    assert!(checked > 20);
    let chosen = |list: &Value| -> Vec<u64> {
        let rows = list.as_array().unwrap().iter();
        let chosen = rows.filter(|row| row["chosen"] == true);
        chosen.map(|row| row["moment"].as_u64().unwrap()).collect()
    };
    assert_eq!(chosen(&there["at"]), [100]);
    assert_eq!(chosen(&there["end"]), [events as u64]);
    assert_eq!(there["top"][0]["moment"], 1);
    let [pinned, row] = [&there["clicked"][0], &there["clicked"][1]];
    assert_eq!(number(pinned), number(&row["moment"]));
    assert_eq!(number(&there["down"]), number(pinned) + 1);
    assert_eq!(number(&there["last"]), events as u64);
    assert!(there["nodes"].as_u64().unwrap() < 30);
}

#[test]
fn the_blocks_that_would_have_to_end_are_listed_and_framed() {
    // Blocks of 100 and 200 KiB side by side, two of which were freed.
    let mut text = String::from("g 0 first\ng 1 second\n");
    for block in 0..40 {
        let bytes = if block % 3 == 0 { 102_400 } else { 204_800 };
        writeln!(text, "a {block} {bytes} 0 {block} {}", block % 2).unwrap();
    }
    text += "f 3 50\nf 5 51\na 100 921600 0 60 0\n";
    let (_, page, numbers) = page_of(&text, &["--capacity", "7200000"]);
    let failed = &numbers["out_of_memory"];
    let cheapest = &failed["cheapest"];
    let there = page.run(
        "",
        "const seen = { room: text('#room'), most: text('#holds-most'),
           blocks: all('#room-blocks li').map(line => [line.firstChild.textContent, line.lastChild.textContent]),
           framed: colors(map())['179,38,30,255'] ?? 0 };
         await click(one('#room-blocks button')); seen.block = text('#block .pinned-title').trim();
         await key(','); await key(','); seen.before = colors(map())['179,38,30,255'] ?? 0; return seen;",
    );
    let blocks = cheapest["blocks"].as_array().unwrap();
    assert!(blocks.len() > 1, "{cheapest}");
    let lines = blocks
        .iter()
        .map(|block| json!([block["group"], shown(&block["bytes"])]));
    assert_eq!(there["blocks"], json!(lines.collect::<Vec<_>>()));
    let room = there["room"].as_str().unwrap();
    for bytes in [&cheapest["bytes"], &cheapest["room_bytes"]] {
        assert!(room.contains(&shown(bytes)), "{room}");
    }
    assert!(cheapest["room_bytes"].as_u64() >= failed["class_bytes"].as_u64());
    let most = &failed["holds_most"];
    let sentence = format!(
        "{}: {} in {} blocks.",
        most["name"].as_str().unwrap(),
        shown(&most["bytes"]),
        most["blocks"]
    );
    assert_eq!(there["most"], sentence);
    assert_eq!(
        there["block"],
        format!("Block {}", blocks[0]["block"].as_u64().unwrap() + 1)
    );
    assert!(there["framed"].as_u64().unwrap() > 50, "{there}");
    assert_eq!(there["before"], 0);
}

#[test]
fn a_menu_chooses_one_of_several_histories() {
    let [small, large] = ["a 0 4096 0\n", &tagged()].map(history_of);
    let page = |histories: &[(&str, &History)]| Page::new(page_of_histories(histories, By::Group));
    let there = page(&[("device 0", &small), ("device 1", &large)]).run(
        "",
        "const seen = { names: all('#history option').map(option => option.textContent), first: figures() };
         const choose = async place => { const menu = one('#history'); menu.selectedIndex = place; menu.dispatchEvent(new Event('change')); await settle(); };
         await choose(1); seen.second = figures(); seen.hash = location.hash;
         await key('.'); seen.next = figures().moment;
         await choose(0); seen.back = figures(); return seen;",
    );
    assert_eq!(there["names"], json!(["device 0", "device 1"]));
    let peak = |history: &History| history.numbers().peak_active;
    assert_eq!(number(&there["first"]["active"]), 4096);
    assert_eq!(
        number(&there["second"]["active"]),
        peak(&large).active_bytes
    );
    assert_eq!(there["hash"], "#history=2");
    // A key is heard once, however many histories were shown.
    assert_eq!(number(&there["next"]), peak(&large).moment as u64 + 1);
    assert_eq!(there["back"], there["first"]);
    let alone = page(&[("device 0", &small)]).run("", "return all('#history').length;");
    assert_eq!(alone, 0);
}
