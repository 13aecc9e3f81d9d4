//! The list of cases in README.md of this folder, and of the functions that they call.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use crate::{
    compiled::{CUDA, Case, OPENCL, PROGRAMS, Program, probe},
    ran::{Ran, Way},
};

const BEGIN: &str = "<!-- the list -->\n";

/// The functions that the cases of a program call, but for cases that do not end as programs do.
fn called(program: &'static Program) -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let counts = folder.path().join("counts");
    let probe = probe();
    let variables = [
        ("OPENCL_LAYERS", probe.to_str().unwrap()),
        ("PROBE_COUNTS", counts.to_str().unwrap()),
    ];
    let name = |case: &'static Case| &*case.name;
    let (together, alone): (Vec<_>, Vec<_>) = program
        .cases()
        .iter()
        .partition(|case| case.goes_with_others());
    let together = together.into_iter().map(name).collect();
    for names in alone
        .into_iter()
        .map(|case| vec![name(case)])
        .chain([together])
    {
        Ran::new(program, &names, Way::Bare, &variables);
    }
    let text = fs::read_to_string(counts).unwrap();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn list() -> String {
    let mut page = String::new();
    for program in PROGRAMS {
        let mut kind = "";
        for case in program.cases() {
            if case.kind != kind {
                kind = &case.kind;
                let _ = write!(page, "\n## {kind}\n\n| case | what it does |\n|---|---|\n");
            }
            let _ = writeln!(page, "| `{}` | {} |", case.name, case.what);
        }
    }
    for (interface, program) in [("OpenCL", OPENCL), ("CUDA", CUDA)] {
        let names: Vec<String> = called(program)
            .into_iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let _ = write!(
            page,
            "\n## Functions of {interface}\n\n{}\n",
            wrapped(&names)
        );
    }
    page
}

/// The names in lines of a page.
fn wrapped(names: &[String]) -> String {
    let mut text = String::new();
    let mut width = 0;
    for (number, name) in names.iter().enumerate() {
        let end = if number + 1 == names.len() { "" } else { "," };
        if width > 0 && width + name.len() > 135 {
            text.push('\n');
            width = 0;
        } else if width > 0 {
            text.push(' ');
        }
        text.push_str(name);
        text.push_str(end);
        width += name.len() + 2;
    }
    text
}

/// With `BINPOOL_WRITE_LIST` set, it writes the list.
#[test]
fn the_page_lists_the_cases_and_the_functions_that_they_call() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/README.md");
    let page = fs::read_to_string(&path).unwrap();
    let (head, listed) = page.split_once(BEGIN).unwrap();
    let list = list();
    if std::env::var_os("BINPOOL_WRITE_LIST").is_some() {
        fs::write(path, format!("{head}{BEGIN}{list}")).unwrap();
        return;
    }
    let missing: Vec<&str> = list.lines().filter(|line| !listed.contains(line)).collect();
    assert!(
        listed == list,
        "run it with BINPOOL_WRITE_LIST=1, which writes the page; it lacks {missing:#?}"
    );
}
