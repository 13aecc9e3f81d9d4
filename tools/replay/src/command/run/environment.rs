//! What a program is run with: environment variables, and the files that they name.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use binpool_trace::shown;
use tempfile::TempDir;

use super::{
    options::Run,
    pools::{Pools, SIGN},
};
use crate::command::output::remark;

/// The shared object that is loaded into the program, beside this program.
const LAYER: &str = "binpool-layer";

/// The variable for one that lies elsewhere.
const LAYER_VARIABLE: &str = "BINPOOL_LAYER";

/// The names by which programs load CUDA's driver.
const DRIVER_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// Set if the layer can be in front of CUDA's driver: how it passes calls on is written for one kind of processor.
pub(super) const POOLS_CUDA: bool = cfg!(target_arch = "x86_64");

/// What each Python of the program loads first: the file, and its text.
const HOOK: (&str, &str) = (
    "sitecustomize.py",
    include_str!("../../../hook/sitecustomize.py"),
);

/// The variables by which JAX and TensorFlow allocate each block from the driver, and JAX not most of the device at once.
const SWITCHES: [(&str, &str); 3] = [
    ("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async"),
    ("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
    ("TF_GPU_ALLOCATOR", "cuda_malloc_async"),
];

/// What the program is run with. Temporary files are removed when it is dropped.
#[derive(Debug)]
pub(super) struct Environment {
    /// Variables to set, or to remove.
    variables: Vec<(&'static str, Option<OsString>)>,
    /// The recording of the first process, as the user names it.
    recording: Option<PathBuf>,
    /// The files of this run.
    folder: TempDir,
    is_pooled: bool,
}

/// There is no shared object to load into the program.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}, which is loaded into the program, was not found: `cargo install binpool-replay` installs it next to `binpool`, and \
     `cargo build -p binpool-replay --bins` builds it; the variable {LAYER_VARIABLE} names another place",
    shown(.0.display())
)]
struct NoLayer(PathBuf);

/// Temporary files could not be made.
#[derive(Debug, thiserror::Error)]
#[error(
    "could not make a temporary folder in {}: set TMPDIR to a writable folder",
    shown(env::temp_dir().display())
)]
struct NoFolder(#[source] io::Error);

impl Environment {
    pub(super) fn new(options: &Run) -> Result<Self, Box<dyn std::error::Error>> {
        let layer = layer()?;
        let folder = tempfile::Builder::new().prefix("binpool-").tempdir();
        let folder = folder.map_err(NoFolder)?;
        let part = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).map_err(NoFolder)?;
            Ok::<_, NoFolder>(path)
        };
        let mut recording = options.record.clone();
        if recording.is_none() && options.reports() {
            recording = Some(part("recordings")?.join("recording.trace"));
        }
        let python = part("python")?;
        let (name, text) = HOOK;
        fs::write(python.join(name), text).map_err(NoFolder)?;

        // A variable that is not for this run may come from another one, which this command is part of.
        let flag = |is_set: bool| is_set.then(|| "1".into());
        let limit = options.limit.map(|size| size.as_u64().to_string().into());
        let absolute = recording.as_deref().map(std::path::absolute).transpose()?;
        let pooled = options.pool.then(|| part("pools")).transpose()?;
        let mut variables = vec![
            ("BINPOOL_RECORD", absolute.map(PathBuf::into_os_string)),
            ("BINPOOL_NO_STACKS", flag(options.no_stacks)),
            ("BINPOOL_MODULES", flag(options.modules)),
            ("BINPOOL_POOL", flag(options.pool)),
            ("BINPOOL_LIMIT", limit),
            (
                "BINPOOL_POOLED",
                pooled.map(|folder| folder.join(SIGN).into()),
            ),
            ("BINPOOL_RUN", Some(folder.path().into())),
            (LAYER_VARIABLE, Some(layer.clone().into())),
            ("OPENCL_LAYERS", Some(with_layer(&layer))),
            (
                "PYTHONPATH",
                Some(before(&python, env::var_os("PYTHONPATH"))),
            ),
        ];
        let is_unset = |name: &str| env::var_os(name).is_none_or(|value| value.is_empty());
        let switches = SWITCHES
            .iter()
            .filter(|(name, _)| options.switch && is_unset(name));
        variables.extend(switches.map(|(name, value)| (*name, Some(value.into()))));
        if recording.is_some() {
            variables.push(injection(&layer));
        }
        // Without a driver, programs are to find none.
        if POOLS_CUDA && binpool_layer::cuda_driver().is_some() {
            let driver = part("driver")?;
            for name in DRIVER_NAMES {
                symlink(&layer, driver.join(name)).map_err(NoFolder)?;
            }
            let path = before(&driver, env::var_os("LD_LIBRARY_PATH"));
            variables.push(("LD_LIBRARY_PATH", Some(path)));
        }
        Ok(Self {
            variables,
            recording,
            folder,
            is_pooled: options.pool,
        })
    }

    /// The recording of the first process, if there is to be one.
    pub(super) fn recording(&self) -> Option<&Path> {
        self.recording.as_deref()
    }

    /// Passes the variables on to a program.
    pub(super) fn pass_to(&self, command: &mut Command) {
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }

    /// Returns what is known of pools, after the program has ended; `None` if none was asked for.
    pub(super) fn pools(&self) -> Option<Pools> {
        let folder = self.folder.path().join("pools");
        self.is_pooled.then(|| Pools::in_folder(&folder))
    }
}

/// Returns the path of the shared object.
fn layer() -> Result<PathBuf, Box<dyn std::error::Error>> {
    let path = match env::var_os(LAYER_VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => std::path::absolute(path)?,
        None => env::current_exe()?.with_file_name(LAYER),
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(NoLayer(path).into())
}

/// Returns the layers of OpenCL with this one as the last, which is the one that the program calls.
fn with_layer(layer: &Path) -> OsString {
    let others = env::var_os("OPENCL_LAYERS").unwrap_or_default();
    let is_there = env::split_paths(&others).any(|other| other == layer);
    match others.is_empty() {
        true => layer.into(),
        // As it is in a program that such a program starts.
        false if is_there => others,
        false => {
            let mut layers = others;
            layers.push(":");
            layers.push(layer);
            layers
        }
    }
}

/// Returns the variable of the library that CUDA's driver loads, which is one only.
fn injection(layer: &Path) -> (&'static str, Option<OsString>) {
    const NAME: &str = "CUDA_INJECTION64_PATH";
    let other = env::var_os(NAME).filter(|other| !other.is_empty() && other != layer.as_os_str());
    if let Some(other) = other {
        let other = shown(other.display());
        remark(&format!(
            "CUDA does not load {other}, which {NAME} names: it loads only one library, which here is the one that records"
        ));
    }
    (NAME, Some(layer.into()))
}

/// Returns a list of folders that begins with this one.
fn before(folder: &Path, others: Option<OsString>) -> OsString {
    let mut all = folder.as_os_str().to_owned();
    // An empty name in the list would be the current folder.
    if let Some(others) = others.filter(|others| others != OsStr::new("")) {
        all.push(":");
        all.push(others);
    }
    all
}
