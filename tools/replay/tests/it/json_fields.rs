//! `docs/json.md` has every field that the command prints as JSON, and no other.

use std::{collections::BTreeSet, fs, path::Path};

use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
use binpool_mock::MockDevice;
use serde_json::Value;

use crate::common::binpool;

type Names = BTreeSet<String>;

/// The fields in the tables of a section.
fn explained(section: &str) -> Names {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split(',').map(|name| name.trim().trim_matches('`')));
    names.map(str::to_owned).collect()
}

fn collect(value: &Value, names: &mut Names) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                names.insert(name.clone());
                // A profile has its own documentation.
                if name != "profile" {
                    collect(value, names);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, names)),
        _ => {}
    }
}

/// The fields that these commands print.
fn printed(commands: &[&[&str]]) -> Names {
    let mut names = Names::new();
    for command in commands {
        let ran = binpool(command);
        let value = serde_json::from_str(&ran.output);
        let value = value.unwrap_or_else(|error| panic!("{command:?}: {error}: {}", ran.errors));
        collect(&value, &mut names);
    }
    names
}

const TRACE: &str = "boxtree_builds.trace.gz";

#[test]
fn every_field_of_a_replay_is_explained() {
    let replay = ["replay", "--json", "--scale", "64", TRACE];
    let with = |options: &'static [&'static str]| [&replay[..], options].concat();
    let commands = [
        with(&["--need"]),
        with(&["--rounds", "3", "--behind", "1ms"]),
        with(&["--allocator", "virtual-memory"]),
        // Long enough for a plan.
        vec![
            "replay",
            "--json",
            "--rounds",
            "6",
            "judges/linalg.trace.gz",
        ],
    ];
    let commands: Vec<&[&str]> = commands.iter().map(|it| &**it).collect();
    assert_eq!(printed(&commands), explained("replay"));
}

#[test]
fn every_field_of_a_trial_is_explained() {
    let names = printed(&[
        &["tune", "--json", "--scale", "64", TRACE],
        &["tune", "--json", "--scale", "64", "--rounds", "1", TRACE],
    ]);
    assert_eq!(names, explained("tune"));
}

#[test]
fn every_field_of_an_import_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.trace");
    let names = printed(&[&["import", TRACE, "--json", "-o", out.to_str().unwrap()]]);
    assert_eq!(names, explained("import"));
}

#[test]
fn every_field_of_a_device_is_explained() {
    let names = printed(&[
        &["devices", "any", "--json", "--measure", "--quick"],
        &["devices", "--json", "--backend", "vulkan"],
    ]);
    assert_eq!(names, explained("devices"));
}

#[test]
fn every_field_of_a_view_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = folder.path().join("snapshot.json");
    let backend = MockDevice::builder().build().backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &queue).unwrap();
    let _block = pool.allocate(4096).unwrap();
    fs::write(&snapshot, pool.snapshot().to_json().unwrap()).unwrap();
    let recordings = [
        "../snapshots/tiny_gpt_oom.pickle.gz",
        "../snapshots/tiny_gpt_train.pickle.gz",
    ];
    let names = printed(&[
        &["view", "--json", recordings[0]],
        &["view", "--json", "--capacity", "60MiB", TRACE],
        &["view", "--json", recordings[0], recordings[1]],
        &["view", "--json", snapshot.to_str().unwrap()],
    ]);
    assert_eq!(names, explained("view"));
}
