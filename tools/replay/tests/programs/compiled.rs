//! The programs, compiled.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::stand_in_build;

/// A program of cases.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Its files, besides those with cases: `main.c`, and others.
    sources: &'static [&'static str],
    /// The beginning of the names of its files with cases, or no more of them than these.
    cases: &'static [&'static str],
    libraries: &'static [&'static str],
    compiled: OnceLock<(PathBuf, Vec<Case>)>,
}

/// A case, as the program lists it.
#[derive(Debug)]
pub(crate) struct Case {
    /// The file that it is in.
    pub(crate) kind: String,
    pub(crate) name: String,
    how: String,
    pub(crate) what: String,
}

pub(crate) const OPENCL: &Program = &PROGRAM_OPENCL;
pub(crate) const CUDA: &Program = &PROGRAM_CUDA;
pub(crate) const PROGRAMS: [&Program; 3] = [OPENCL, &PROGRAM_LOADING, CUDA];

static PROGRAM_OPENCL: Program = Program {
    name: "opencl",
    sources: &["main.c", "opencl.c"],
    cases: &[
        "asked_back.c",
        "callbacks.c",
        "cancellation.c",
        "ends.c",
        "events.c",
        "forks.c",
        "limits.c",
        "many.c",
        "memory.c",
        "orders.c",
        "queries.c",
        "sharing.c",
        "stacks.c",
        "wrong.c",
    ],
    libraries: &["-lOpenCL"],
    compiled: OnceLock::new(),
};

static PROGRAM_LOADING: Program = Program {
    name: "loading",
    sources: &["main.c"],
    cases: &["loading.c"],
    libraries: &["-ldl"],
    compiled: OnceLock::new(),
};

static PROGRAM_CUDA: Program = Program {
    name: "cuda",
    sources: &["main.c", "cuda.c"],
    cases: &[
        "cuda_contexts.c",
        "cuda_memory.c",
        "cuda_processes.c",
        "cuda_streams.c",
    ],
    libraries: &["-l:libcuda.so.1"],
    compiled: OnceLock::new(),
};

impl Case {
    /// Whether it may run in one process with others, and beside them.
    pub(crate) fn goes_with_others(&self) -> bool {
        self.how == "together"
    }
}

impl Program {
    pub(crate) fn path(&self) -> &Path {
        &self.compiled().0
    }

    pub(crate) fn cases(&self) -> &[Case] {
        &self.compiled().1
    }

    pub(crate) fn is_on_cuda(&self) -> bool {
        self.name == "cuda"
    }

    fn compiled(&self) -> &(PathBuf, Vec<Case>) {
        self.compiled.get_or_init(|| {
            let sources = self
                .sources
                .iter()
                .chain(self.cases)
                .map(|name| source(name));
            let mut arguments: Vec<_> = sources.map(PathBuf::into_os_string).collect();
            if self.is_on_cuda() {
                arguments.push(format!("-L{}", driver().display()).into());
            }
            arguments.extend(self.libraries.iter().map(Into::into));
            let path = compile(self.name, &arguments);
            let listed = Command::new(&path)
                .arg("--list")
                .env("LD_LIBRARY_PATH", driver())
                .output()
                .unwrap();
            let text = String::from_utf8(listed.stdout).unwrap();
            let cases = text.lines().map(case_of).collect();
            (path, cases)
        })
    }
}

fn case_of(line: &str) -> Case {
    let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
    let [kind, name, how, what] = <[String; 4]>::try_from(fields).unwrap();
    let kind = kind.trim_end_matches(".c").to_owned();
    Case {
        kind,
        name,
        how,
        what,
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

/// A folder of the build's, and of this process.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
        fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// Compiles a program of these files, under the name of another that may be running.
fn compile(name: &str, arguments: &[std::ffi::OsString]) -> PathBuf {
    let path = folder().join(name);
    let temporary = folder().join(format!("{name}.{}", std::process::id()));
    let output = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args([
            "-std=gnu17",
            "-O1",
            "-g",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-Werror",
            "-pthread",
            "-o",
        ])
        .arg(&temporary)
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::rename(temporary, &path).unwrap();
    path
}

/// The program that measures another.
pub(crate) fn measure() -> &'static Path {
    static MEASURE: OnceLock<PathBuf> = OnceLock::new();
    MEASURE.get_or_init(|| compile("measure", &[source("measure.c").into()]))
}

/// The layer that counts calls.
pub(crate) fn probe() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layer/probe.c");
    compile(
        "probe.so",
        &["-shared".into(), "-fPIC".into(), source.into()],
    )
}

/// The stand-in for CUDA's driver.
pub(crate) fn stand_in() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(stand_in_build::build)
}

/// A folder with the stand-in under the driver's name.
pub(crate) fn driver() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let driver = folder().join("driver");
        fs::create_dir_all(&driver).unwrap();
        let link = driver.join(format!("link.{}", std::process::id()));
        symlink(stand_in(), &link).unwrap();
        fs::rename(link, driver.join("libcuda.so.1")).unwrap();
        driver
    })
}
