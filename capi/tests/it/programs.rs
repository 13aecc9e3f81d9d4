//! The examples in C and C++, built against the header and the library, and run.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

const STRICT: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

/// Runs a command, and returns what it prints.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{printed}\n{errors}");
    printed
}

/// Builds a library of this workspace without the flags that the tests are built with: a program in C has no runtime for a sanitizer.
fn build(package: &str, file: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plain");
    run(Command::new(env!("CARGO"))
        .args(["build", "--locked", "--quiet", "--package", package])
        .arg("--target-dir")
        .arg(&target)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET")
        .current_dir(env!("CARGO_MANIFEST_DIR")));
    target.join("debug").join(file)
}

/// Returns whether the tests are built for a sanitizer.
fn is_sanitized() -> bool {
    env::var("RUSTFLAGS").is_ok_and(|flags| flags.contains("sanitizer"))
}

/// The folder with the libraries for C.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let library = if is_sanitized() {
            build("binpool-capi", "libbinpool_capi.so")
        } else {
            // Built with the tests, and beside them.
            env::current_exe()
                .unwrap()
                .with_file_name("libbinpool_capi.so")
        };
        assert!(library.exists(), "{}", library.display());
        library.parent().unwrap().to_owned()
    })
}

/// Compiles a program in C or C++, with the shared or the static library, and returns the program.
fn compile(compiler: &str, source: &str, is_static: bool) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kind = if is_static { "static" } else { "shared" };
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{kind}", source.replace('/', "-")));
    let standard = if compiler == "cc" {
        "-std=c11"
    } else {
        "-std=c++17"
    };
    let mut command = Command::new(compiler);
    command.arg(standard).args(STRICT);
    if is_sanitized() {
        // The program, and what the library does with the program's memory: `memcpy`, `malloc` and `free` are the sanitizer's.
        command.args(["-g", "-fsanitize=address"]);
    }
    command.arg("-I").arg(root.join("include"));
    command.arg(root.join(source));
    if is_static {
        command.arg(libraries().join("libbinpool_capi.a"));
    } else {
        command.arg("-L").arg(libraries()).arg("-lbinpool_capi");
        command.arg(format!("-Wl,-rpath,{}", libraries().display()));
    }
    command
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program);
    run(&mut command);
    program
}

/// Returns the command of a program. Cargo has the folder of its own libraries searched, which may be another than that of [`libraries`].
fn command(program: &Path) -> Command {
    let others = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = [libraries().to_owned()].into_iter();
    let folders = folders.chain(env::split_paths(&others));
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", env::join_paths(folders).unwrap());
    command
}

/// Returns the command of a program for which the stand-in is the CUDA driver.
fn over_the_stand_in(program: &Path) -> Command {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver");
        fs::create_dir_all(&folder).unwrap();
        let link = folder.join("libcuda.so.1");
        let _ = fs::remove_file(&link);
        let driver = build("binpool-cuda-stand-in", "libbinpool_cuda_stand_in.so");
        symlink(driver, link).unwrap();
        folder
    });
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", folder);
    command
}

#[test]
fn the_example_in_c_runs_with_either_library() {
    let folder = tempfile::tempdir().unwrap();
    for is_static in [false, true] {
        let program = compile("cc", "examples/opencl.c", is_static);
        let recording = folder.path().join("recording");
        let report = run(command(&program).arg(&recording));
        assert!(report.contains("1 failed for lack of memory"), "{report}");
        let trace = fs::read_to_string(recording).unwrap();
        assert!(trace.starts_with("h version "), "{trace}");
    }
}

#[test]
fn the_example_in_cpp_gets_its_errors_as_exceptions() {
    let program = compile("c++", "examples/opencl.cpp", false);
    let printed = run(&mut command(&program));
    assert!(
        printed.starts_with("out of memory: could not allocate 32.0 MiB"),
        "{printed}"
    );
}

#[test]
fn the_example_of_cuda_runs_over_the_stand_in() {
    let program = compile("cc", "examples/cuda.c", true);
    run(&mut over_the_stand_in(&program));
}

#[test]
fn pools_over_cuda_refuse_with_a_message_on_the_thread_that_called() {
    let program = compile("cc", "tests/programs/cuda_refusals.c", false);
    run(&mut over_the_stand_in(&program));
}

#[test]
fn hostile_calls_have_the_answers_that_the_header_promises_and_leave_nothing() {
    let program = compile("cc", "tests/programs/hostile.c", false);
    // What threads leave whose first call is in a destructor of thread-specific data is not looked for: glibc runs no more of those of Rust.
    let options = "detect_leaks=0:allocator_may_return_null=1";
    for (mut command, kind) in [
        (command(&program), "opencl"),
        (over_the_stand_in(&program), "cuda"),
    ] {
        let output = command.arg(kind).env("ASAN_OPTIONS", options).output();
        let output = output.unwrap();
        let printed = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(output.status.success(), "{kind}: {printed:?}");
        assert_eq!(printed, ["", ""], "{kind}");
    }
}

/// Returns the programs in a text of Markdown.
fn programs_in(text: &str) -> Vec<&str> {
    let blocks = text.split("```c\n").skip(1);
    blocks
        .map(|block| block.split_once("```").unwrap().0)
        .collect()
}

#[test]
fn the_programs_of_the_readme_and_the_guide_compile() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    for page in ["README.md", "../pool/guide/c_and_cpp.md"] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let programs = programs_in(&text);
        assert_eq!(programs.len(), 1, "{page}");
        let source = folder.path().join("program.c");
        fs::write(&source, programs[0]).unwrap();
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-fsyntax-only"]).args(STRICT);
        command.arg("-I").arg(root.join("include"));
        command.arg("-I").arg(root.join("tests/stubs"));
        run(command.arg(source));
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
    let examples = programs_in(&comments);
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
