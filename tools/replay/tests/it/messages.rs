//! What the command says of what it cannot do: in words, without the names of its own types.

use std::{fs, path::Path, process::Stdio};

use crate::common::{Ran, binpool, binpool_with};

/// A text without what stands between backticks, which is code that a user writes.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect()
}

/// The parts of a message that only the author of a type would write.
fn names_of_types(message: &str) -> Vec<&str> {
    ["::", " { ", "{}", "Some(", "None", "Ok(", "Err("]
        .into_iter()
        .filter(|part| without_code(message).contains(part))
        .collect()
}

fn assert_in_words(arguments: &[&str], ran: &Ran) {
    assert_ne!(ran.status, 0, "{arguments:?}: {}", ran.output);
    assert!(ran.errors.len() > 20, "{arguments:?}: {}", ran.errors);
    let found = names_of_types(&ran.errors);
    assert!(
        found.is_empty(),
        "{arguments:?}: {found:?} in {}",
        ran.errors
    );
}

#[test]
fn the_report_of_a_type_is_told_from_words() {
    let debug = "binpool: AllocationFailure { requested: 5242880, free: 3014656 }";
    assert_eq!(names_of_types(debug), [" { "]);
    assert_eq!(names_of_types("use `MemoryPool::watch`"), [""; 0]);
}

#[test]
fn no_failure_is_told_with_the_names_of_types() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let write = |name: &str, content: &[u8]| {
        fs::write(path(name), content).unwrap();
        path(name)
    };
    // What cannot be read, by each of the ways in which it can be wrong.
    let mut unreadable = vec![path("missing.trace"), path("")];
    for (name, content) in [
        ("empty.trace", &b""[..]),
        ("number.trace", b"a 0 many 0\n"),
        ("letter.trace", b"x 1 2 3\n"),
        ("twice.trace", b"a 0 1 0\na 0 1 0\n"),
        ("never.trace", b"a 0 1 0\nf 9\n"),
        ("words.trace", b"a 0 1 0 1 1 1 1\n"),
        ("time.trace", b"a 0 1 0 9\nf 0 1\n"),
        ("group.trace", b"a 0 1 0 9 7\n"),
        ("groups.trace", b"g 1 x\ng 1 y\na 0 1 0\n"),
        ("header.trace", b"a 0 1 0\nh version 2\n"),
        ("version.trace", b"h version 99\na 0 1 0\n"),
        ("report.trace", b"a 0 1 0\nr verdict=limited\n"),
        ("step.trace", b"a 0 1 0\nm x\n"),
        ("binary.trace", b"a 0 1 0\n\xff\xfe\n"),
        ("cut.trace.gz", b"\x1f\x8b\x08\0\0\0\0\0"),
        ("cut.pickle", b"\x80\x04\x95"),
        ("call.pickle", b"cos\nsystem\n(S'true'\ntR."),
        ("wrong.json", b"{\"segments\": 1}"),
        ("cut.json", b"{\"segments\": ["),
        ("pool.json", b"{\"format\": 99}"),
        (
            "rmm.csv",
            b"Thread,Time,Action,Pointer,Size,Stream\n1,x,allocate,0x1,5,0\n",
        ),
    ] {
        unreadable.push(write(name, content));
    }
    for file in &unreadable {
        for command in ["replay", "tune", "view", "import"] {
            let arguments = [command, file];
            assert_in_words(&arguments, &binpool(&arguments));
        }
        let arguments = ["replay", "--profile", file, "eager_arrays.trace.gz"];
        assert_in_words(&arguments, &binpool(&arguments));
    }

    let trace = write("good.trace", b"a 0 1000000 0\na 1 1000000 0\nf 0\n");
    let trace = trace.as_str();
    let nowhere = path("no such folder/file.html");
    let over_a_folder = folder.path().to_str().unwrap();
    let snapshot = write("snapshot.json", include_bytes!("../imports/snapshot.json"));
    for arguments in [
        // Memory runs out.
        &["replay", "--capacity", "1MiB", trace][..],
        &["replay", "--capacity", "1MiB", "--no-pool", trace],
        &["tune", "--capacity", "1KiB", trace],
        // Devices and options that are not there.
        &["replay", "--device", "no such device", trace],
        &[
            "replay",
            "--backend",
            "cuda",
            "--device",
            "no such device",
            trace,
        ],
        &["devices", "no such device"],
        &["devices", "--backend", "cuda", "no such device"],
        &["replay", "--scale", "0", trace],
        &["replay", "--retain", "much", trace],
        &["replay", "--capacity", "lots", trace],
        &["replay", "--touch", "fill", "--no-such-option", trace],
        &["replay", "--need", "--allocator", "deferred", trace],
        &["replay", "--backend", "mock", "--device", "gpu", trace],
        &["tune", "--allocator", "deferred", trace],
        &["tune", "--reserve", "x", trace],
        &["import", "--device", "9", &snapshot],
        &["view", "--device", "9", trace],
        &["completions", "abacus"],
        &["applaud"],
        // What cannot be written.
        &["view", trace, "-o", &nowhere],
        &["view", trace, "-o", "page.pdf"],
        &["view", trace, "-o", trace],
        &["import", trace, "-o", &nowhere],
        &["import", trace, "-o", over_a_folder],
        &["man", "-o", trace],
        &["view", "-", "-"],
    ] {
        assert_in_words(arguments, &binpool(arguments));
    }
}

/// The names of one file: as it is, by another spelling, by a symbolic link, by one to that, and by a hard link.
#[cfg(unix)]
fn names_of_one(folder: &Path, name: &str, content: &str) -> [String; 5] {
    use std::os::unix::fs::symlink;

    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    fs::create_dir_all(folder.join("inner")).unwrap();
    let names = [
        path(name),
        path(&format!("inner/../{name}")),
        path(&format!("soft-{name}")),
        path(&format!("softer-{name}")),
        path(&format!("hard-{name}")),
    ];
    fs::write(&names[0], content).unwrap();
    symlink(name, &names[2]).unwrap();
    symlink(&names[2], &names[3]).unwrap();
    fs::hard_link(&names[0], &names[4]).unwrap();
    names
}

#[cfg(unix)]
#[test]
fn no_command_writes_over_what_it_reads_whatever_that_is_called() {
    const TRACE: &str = "a 0 1000000 0\na 1 1000000 0\nf 0\n";
    let folder = tempfile::tempdir().unwrap();
    let names = names_of_one(folder.path(), "in.html", TRACE);
    let input = names[0].as_str();
    let other = folder.path().join("other.trace");
    fs::write(&other, TRACE).unwrap();
    let other = other.to_str().unwrap();
    let refused = |ran: &Ran, arguments: &[&str]| {
        assert_eq!(ran.status, 1, "{arguments:?}: {}", ran.errors);
        assert!(
            ran.errors.contains("which would be lost"),
            "{arguments:?}: {}",
            ran.errors
        );
        assert_eq!(ran.output, "", "{arguments:?}");
        assert_eq!(fs::read_to_string(input).unwrap(), TRACE, "{arguments:?}");
    };
    for output in &names {
        for arguments in [
            &["view", "--json", input, "-o", output][..],
            &["view", other, input, "-o", output],
            &["view", "--json", "--simulate", input, other, "-o", output],
            &["import", input, "-o", output],
        ] {
            refused(&binpool(arguments), arguments);
        }
        let arguments = ["view", "--json", "-", "-o", output];
        let ran = binpool_with(&arguments, |command| {
            command.stdin(Stdio::from(fs::File::open(input).unwrap()));
        });
        refused(&ran, &arguments);
    }
    // The name that the page has by itself.
    let arguments = ["view", "in.html"];
    let ran = binpool_with(&arguments, |command| {
        command.current_dir(folder.path());
    });
    refused(&ran, &arguments);
}

#[cfg(unix)]
#[test]
fn a_profile_is_an_input_too_and_what_is_no_file_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let profile = serde_json::to_string(&binpool_mock::DeviceProfile::pocl()).unwrap();
    let names = names_of_one(folder.path(), "gpu.html", &profile);
    for output in &names {
        let trace = "eager_arrays.trace.gz";
        let ran = binpool(&["view", "--profile", &names[0], trace, "-o", output]);
        assert_eq!(ran.status, 1, "{}", ran.errors);
        assert!(ran.errors.contains("which would be lost"), "{}", ran.errors);
        assert_eq!(fs::read_to_string(&names[0]).unwrap(), profile);
    }
    // Standard input and the output are one device, and nothing is lost.
    let ran = binpool_with(&["import", "-", "-o", "/dev/null"], |command| {
        command.stdin(Stdio::null());
    });
    assert!(!ran.errors.contains("lost"), "{}", ran.errors);
}
