//! How the command behaves, whatever it is asked: colours, completions, manual pages.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::common::binpool;

const COMMANDS: [&str; 8] = [
    "completions",
    "devices",
    "import",
    "man",
    "record",
    "replay",
    "run",
    "tune",
];

/// Runs `binpool` with these variables, and without those that the tests themselves may run with.
fn with_variables(variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_binpool"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces"))
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE")
        .envs(variables.iter().copied())
        .args(arguments)
        .output()
        .unwrap()
}

/// Whether there are colours on standard output, and on standard error.
fn colours(variables: &[(&str, &str)], arguments: &[&str]) -> (bool, bool) {
    let output = with_variables(variables, arguments);
    (output.stdout.contains(&0x1b), output.stderr.contains(&0x1b))
}

#[test]
fn there_are_colours_where_they_are_asked_for_and_never_in_a_pipe() {
    let replay = [
        "tune",
        "--scale",
        "64",
        "eager_arrays.trace.gz",
        "no such file",
    ];
    let with = |option: &[&'static str]| [option, &replay[..]].concat();
    assert_eq!(colours(&[], &replay), (false, false));
    assert_eq!(colours(&[], &with(&["--color", "auto"])), (false, false));
    assert_eq!(colours(&[], &with(&["--color", "always"])), (true, true));
    assert_eq!(
        colours(&[("NO_COLOR", "1")], &with(&["--color=always"])),
        (true, true)
    );
    let forced = [("CLICOLOR_FORCE", "1")];
    assert_eq!(colours(&forced, &replay), (true, true));
    assert_eq!(
        colours(&forced, &with(&["--color", "never"])),
        (false, false)
    );
    let both = [("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")];
    assert_eq!(colours(&both, &replay), (false, false));
}

#[test]
fn colours_change_no_letter() {
    let tuned = |color| {
        let arguments = [
            "tune",
            "--scale",
            "64",
            "--color",
            color,
            "eager_arrays.trace.gz",
        ];
        let output = with_variables(&[], &arguments);
        String::from_utf8(output.stdout).unwrap()
    };
    let (coloured, plain) = (tuned("always"), tuned("never"));
    assert_ne!(coloured, plain);
    assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
}

#[test]
fn what_programs_read_has_no_colours() {
    let json = [
        "replay",
        "--json",
        "--color",
        "always",
        "eager_arrays.trace.gz",
    ];
    assert_eq!(colours(&[], &json), (false, false));
    assert_eq!(
        colours(&[], &["record", "--color", "always"]),
        (false, false)
    );
    assert_eq!(
        colours(&[], &["completions", "bash", "--color", "always"]),
        (false, false)
    );
}

#[test]
fn there_is_no_progress_where_there_is_no_terminal() {
    let ran = binpool(&["tune", "--scale", "64", "eager_arrays.trace.gz"]);
    assert_eq!((ran.status, &*ran.errors), (0, ""));
}

#[test]
fn completions_of_every_shell_have_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let ran = binpool(&["completions", shell]);
        assert_eq!(ran.status, 0, "{}", ran.errors);
        for command in COMMANDS {
            assert!(ran.output.contains(command), "{shell}: {command}");
        }
        assert!(ran.output.contains("profile"), "{shell}");
    }
    assert_eq!(binpool(&["completions", "abacus"]).status, 2);
}

#[test]
fn bash_takes_its_completions() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("binpool");
    fs::write(&file, binpool(&["completions", "bash"]).output).unwrap();
    let checked = Command::new("bash").arg("-n").arg(&file).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let ran = binpool(&["man"]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    assert!(ran.output.contains(".TH binpool 1"), "{}", ran.output);
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("new/man1");
    let ran = binpool(&["man", "-o", pages.to_str().unwrap()]);
    assert_eq!((ran.status, &*ran.output), (0, ""), "{}", ran.errors);
    for command in COMMANDS {
        let page = fs::read_to_string(pages.join(format!("binpool-{command}.1"))).unwrap();
        assert!(page.contains("Examples:"), "{command}");
    }
    assert!(pages.join("binpool.1").exists());
    let file = folder.path().join("a file");
    fs::write(&file, "").unwrap();
    let ran = binpool(&["man", "-o", file.to_str().unwrap()]);
    assert_eq!(ran.status, 1);
    assert!(
        ran.errors.contains("a file cannot be written"),
        "{}",
        ran.errors
    );
}

#[test]
fn help_names_every_command() {
    let ran = binpool(&["--help"]);
    assert_eq!(ran.status, 0);
    for command in COMMANDS {
        assert!(
            ran.output.contains(&format!("\n  {command} ")),
            "{}",
            ran.output
        );
    }
    assert_eq!(binpool(&[]).status, 2);
    assert_eq!(binpool(&["applaud"]).status, 2);
}
