//! Programs in C and C++, built against what is installed.

use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

pub(crate) const STRICT: [&str; 3] = ["-Wall", "-Wextra", "-Werror"];

/// Runs a command, and returns what it prints.
pub(crate) fn run(command: &mut Command) -> String {
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

/// The folder that everything for C and C++ is installed in, which was moved since.
pub(crate) fn prefix() -> &'static Path {
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
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        let _ = fs::remove_dir_all(&folder);
        let [first, moved, tree] = ["first", "moved", "build"].map(|name| folder.join(name));
        run(Command::new("cmake")
            .arg("-S")
            .arg(env!("CARGO_MANIFEST_DIR"))
            .arg("-B")
            .arg(&tree)
            .arg(define("BINPOOL_LIBRARIES", library.parent().unwrap()))
            .arg(define("CMAKE_INSTALL_PREFIX", &first))
            .arg("-DCMAKE_INSTALL_LIBDIR=lib"));
        run(Command::new("cmake").arg("--install").arg(&tree));
        fs::rename(first, &moved).unwrap();
        moved
    })
}

/// The option of `CMake` that sets a variable to a path.
fn define(name: &str, path: &Path) -> String {
    format!("-D{name}={}", path.display())
}

/// Builds a project by `CMake` over the installed package, and returns the folder with its programs.
pub(crate) fn build_by_cmake(project: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(project);
    let tree = Path::new(env!("CARGO_TARGET_TMPDIR")).join(project.replace('/', "-"));
    let _ = fs::remove_dir_all(&tree);
    run(Command::new("cmake")
        .arg("-S")
        .arg(source)
        .arg("-B")
        .arg(&tree)
        .arg(define("CMAKE_PREFIX_PATH", prefix()))
        .arg("-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror"));
    run(Command::new("cmake").arg("--build").arg(&tree));
    tree
}

/// Compiles a program in C or C++, with the shared or the static library, and returns the program.
pub(crate) fn compile(compiler: &str, source: &str, is_static: bool) -> PathBuf {
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
    let library = prefix().join("lib");
    command.arg("-I").arg(prefix().join("include"));
    command.arg(root.join(source));
    if is_static {
        command.arg(library.join("libbinpool.a"));
    } else {
        command.arg("-L").arg(&library).arg("-lbinpool");
        command.arg(format!("-Wl,-rpath,{}", library.display()));
    }
    command
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program);
    run(&mut command);
    program
}

/// Returns the command of a program for which the stand-in is the CUDA driver.
pub(crate) fn over_the_stand_in(program: &Path) -> Command {
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
