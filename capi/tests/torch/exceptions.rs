//! What a program in C++ catches.

use std::{env, path::Path, process::Command};

use crate::child::command;

#[test]
fn a_lack_of_memory_is_an_exception_in_a_program_in_c_plus_plus() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("catches");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch/catches.cpp");
    let compiled = Command::new("c++")
        .args(["-std=c++17", "-Wall", "-Werror", "-o"])
        .args([&program, &source])
        .arg("-ldl")
        .status();
    assert!(compiled.unwrap().success());

    // Cargo puts the library beside the tests.
    let tests = env::current_exe().unwrap();
    let library = tests.with_file_name("libbinpool_capi.so");
    assert!(library.exists(), "{}", library.display());
    let output = command(&program).arg(library).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}{errors}", output.status);
    assert!(text.contains("advice: "), "{text}");
}
