//! What a program in C++ catches.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use crate::child::command;

/// Compiles a source of this folder with further arguments, and returns the result.
fn compile<'a>(
    folder: &TempDir,
    source: &str,
    result: &str,
    arguments: impl IntoIterator<Item = &'a str>,
) -> PathBuf {
    let result = folder.path().join(result);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch");
    let compiled = Command::new("c++")
        .args(["-std=c++17", "-Wall", "-Werror", "-o"])
        .args([&result, &sources.join(source)])
        .args(arguments)
        .status();
    assert!(compiled.unwrap().success());
    result
}

/// Runs a program with the library, and returns what it prints.
fn run(program: &Path) -> String {
    // Cargo puts the library beside the tests.
    let tests = env::current_exe().unwrap();
    let library = tests.with_file_name("libbinpool_capi.so");
    assert!(library.exists(), "{}", library.display());
    let output = command(program).arg(library).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}{errors}", output.status);
    text.into_owned()
}

#[test]
fn a_lack_of_memory_is_an_exception_in_a_program_in_c_plus_plus() {
    let folder = tempfile::tempdir().unwrap();
    let text = run(&compile(&folder, "catches.cpp", "catches", ["-ldl"]));
    assert!(text.contains("advice: "), "{text}");
}

#[test]
fn a_lack_of_memory_is_an_exception_of_pytorch_where_the_program_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let library = ["-shared", "-fPIC", "-Wl,-soname,libc10.so"];
    let library = compile(&folder, "c10.cpp", "libc10.so", library);
    let here = format!("-Wl,-rpath,{}", folder.path().display());
    let linked = [library.to_str().unwrap(), &here, "-ldl"];
    let text = run(&compile(&folder, "catches_torch.cpp", "catches", linked));
    assert!(text.contains("advice: "), "{text}");
}
