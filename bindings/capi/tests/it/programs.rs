//! The examples and other programs in C and C++, built against what is installed, and run.

use std::{fs, path::Path, process::Command};

use crate::common::native::{STRICT, build_by_cmake, compile, over_the_stand_in, prefix, run};

/// What the project of `tests/stranger` prints.
const SUM: &str = concat!(
    "sum 55000, 9 hits, 1 miss, binpool ",
    env!("CARGO_PKG_VERSION"),
    "\n"
);

#[test]
fn the_example_in_c_runs_with_either_library() {
    let folder = tempfile::tempdir().unwrap();
    for is_static in [false, true] {
        let program = compile("cc", "examples/opencl.c", is_static);
        let recording = folder.path().join("recording");
        let report = run(Command::new(&program).arg(&recording));
        assert!(report.contains("1 failed for lack of memory"), "{report}");
        let trace = fs::read_to_string(recording).unwrap();
        assert!(trace.starts_with("h version "), "{trace}");
    }
}

#[test]
fn the_examples_are_built_by_cmake_and_run() {
    let built = build_by_cmake("examples");
    let report = run(&mut Command::new(built.join("opencl-c")));
    assert!(report.contains("1 failed for lack of memory"), "{report}");
    let printed = run(&mut Command::new(built.join("opencl-cpp")));
    assert!(
        printed.starts_with("out of memory: could not allocate 32.0 MiB"),
        "{printed}"
    );
    run(&mut over_the_stand_in(&built.join("cuda-c")));
}

#[test]
fn a_project_finds_what_is_installed_by_cmake_and_by_pkg_config() {
    let built = build_by_cmake("tests/stranger");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stranger");
    let libraries = prefix().join("lib");
    let flags = run(Command::new("pkg-config")
        .args(["--cflags", "--libs", "binpool", "OpenCL"])
        .env("PKG_CONFIG_PATH", libraries.join("pkgconfig")));
    let by_hand = built.join("by-pkg-config");
    run(Command::new("c++")
        .arg("-std=c++17")
        .args(STRICT)
        .args(["main.cpp", "waves.cpp"].map(|file| source.join(file)))
        .args(flags.split_whitespace())
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .arg("-o")
        .arg(&by_hand));
    for program in ["stranger-binpool", "stranger-static"].map(|name| built.join(name)) {
        assert_eq!(run(&mut Command::new(program)), SUM);
    }
    assert_eq!(run(&mut Command::new(by_hand)), SUM);
}

#[test]
fn values_of_cpp_free_themselves_and_say_what_fails() {
    let program = compile("c++", "tests/programs/values.cpp", false);
    run(&mut Command::new(program));
}

#[test]
fn memory_resources_of_cpp_allocate_from_pools() {
    let program = compile("c++", "tests/programs/resources.cpp", false);
    run(over_the_stand_in(&program).arg("cuda"));
    run(Command::new(program).arg("opencl"));
}

#[test]
fn the_header_for_cpp_compiles_by_each_standard_without_warnings() {
    let pedantic = ["-Wpedantic", "-Wconversion", "-Wshadow", "-fsyntax-only"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for compiler in ["c++", "clang++"] {
        if compiler == "clang++" && Command::new(compiler).arg("--version").output().is_err() {
            continue;
        }
        for standard in ["-std=c++17", "-std=c++20"] {
            let mut command = Command::new(compiler);
            command.arg(standard).args(STRICT).args(pedantic);
            command.arg("-I").arg(root.join("include"));
            run(command.arg(root.join("tests/programs/resources.cpp")));
        }
    }
}

#[test]
fn pools_over_cuda_refuse_with_a_message_on_the_thread_that_called() {
    let program = compile("cc", "tests/programs/cuda_refusals.c", false);
    run(&mut over_the_stand_in(&program));
}

#[test]
fn hostile_calls_have_the_answers_that_the_header_promises_and_leave_nothing() {
    let program = compile("cc", "tests/programs/hostile.c", false);
    // Leaks are not looked for: glibc no longer runs the destructors of Rust in a thread whose first call comes from such a destructor.
    let options = "detect_leaks=0:allocator_may_return_null=1";
    for (mut command, kind) in [
        (Command::new(&program), "opencl"),
        (over_the_stand_in(&program), "cuda"),
    ] {
        let output = command.arg(kind).env("ASAN_OPTIONS", options).output();
        let output = output.unwrap();
        let printed = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(output.status.success(), "{kind}: {printed:?}");
        assert_eq!(printed, ["", ""], "{kind}");
    }
}

/// Returns the programs of a language in a text of Markdown.
fn programs_in<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    let blocks: Vec<_> = text.split(&begin).skip(1).collect();
    let blocks = blocks.into_iter();
    blocks
        .map(|block| block.split_once("```").unwrap().0)
        .collect()
}

#[test]
fn the_programs_of_the_readme_and_the_guide_compile() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    for page in ["README.md", "../../pool/guide/c_and_cpp.md"] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        assert_eq!(programs_in(&text, "c").len(), 1, "{page}");
        for (language, compiler, standard) in
            [("c", "cc", "-std=c11"), ("cpp", "c++", "-std=c++17")]
        {
            for program in programs_in(&text, language) {
                // Headers that are not ours to have.
                if program.contains("<rmm/") {
                    continue;
                }
                let source = folder.path().join("program").with_extension(language);
                fs::write(&source, program).unwrap();
                let mut command = Command::new(compiler);
                command.args([standard, "-fsyntax-only"]).args(STRICT);
                command.args(["-Wno-unused-variable", "-Wno-unused-but-set-variable"]);
                command.arg("-I").arg(root.join("include"));
                command.arg("-I").arg(root.join("tests/stubs"));
                run(command.arg(source));
            }
        }
    }
}

#[test]
fn the_lines_of_c_in_the_header_compile() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = fs::read_to_string(root.join("include/binpool.h")).unwrap();
    let comments = header
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("//"));
    let comments: String = comments
        .flat_map(|line| [line.trim_start(), "\n"])
        .collect();
    let examples = programs_in(&comments, "c");
    assert!(!examples.is_empty());
    let folder = tempfile::tempdir().unwrap();
    for example in examples {
        let source = folder.path().join("lines.c");
        fs::write(
            &source,
            format!("#include <binpool.h>\nvoid lines(void) {{\n{example}\n}}\n"),
        )
        .unwrap();
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-fsyntax-only"]).args(STRICT);
        command
            .arg("-Wno-unused-variable")
            .arg("-I")
            .arg(root.join("include"));
        run(command.arg(source));
    }
}

#[test]
fn the_header_is_c_and_cpp_by_itself() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    for (compiler, language) in [("cc", "c"), ("c++", "c++")] {
        let mut command = Command::new(compiler);
        command
            .args(STRICT)
            .args(["-pedantic", "-fsyntax-only", "-x", language, "-include"]);
        run(command.arg(include.join("binpool.h")).arg("/dev/null"));
    }
}
