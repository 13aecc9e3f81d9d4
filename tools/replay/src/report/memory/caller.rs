//! Which frame of a call stack is the program's own.

use binpool_recordings::Trace;
use binpool_trace::cut;

/// The most characters of a caller. The reports of most programs are then as wide as a terminal.
const LONGEST: usize = 64;

/// The folders of what is not the program's own.
const SYSTEM: &str = "/usr/lib /lib /usr/include/ /usr/src/ /usr/local/cuda /opt/cuda /rustc/ <";

/// Parts of the paths of packages: of Python's, also of its own, and of Rust's.
const PACKAGES: &str =
    "/site-packages/ /dist-packages/ /lib/python3 /.cargo/registry/ /.cargo/git/";

/// The beginnings of the names of libraries of OpenCL and CUDA, and of binpool's for PyTorch, wherever they are.
const RUNTIMES: &str = "torch_tracker- torch_allocator- libOpenCL libcuda libcudart libcupti libnvidia libpocl libamdocl libigdrcl";

/// Code that was written into a program, or typed.
const TYPED: &str = "<stdin> <string> <ipython-input";

/// Returns the caller that a stack shows: the module of a model that it is in, if it says so, or else its innermost frame that is neither of the system, nor of a package, nor of OpenCL or CUDA. If there is
/// no such one, what PyTorch's backward pass computes, or else its innermost frame.
///
/// ```
/// use binpool_replay::report::caller;
///
/// let frames = ["clCreateBuffer in /usr/lib/libOpenCL.so.1", "/home/me/train.py:7 in forward"];
/// assert_eq!(caller(&frames.map(str::to_owned)), "me/train.py:7 in forward");
/// ```
#[must_use]
pub fn caller(frames: &[String]) -> String {
    module_of(frames).unwrap_or_else(|| caller_beyond(frames, &[]))
}

/// What frames begin with that say where a program was, as it says itself: the modules of a model, and the part of a step.
const MODULE: &str = "module ";
const PHASE: &str = "phase ";

/// Returns the innermost module that a stack was in, or else the part of a step: `layers.3.mlp, forward`.
fn module_of(frames: &[String]) -> Option<String> {
    let mut outer = frames.iter().rev();
    let phase = outer.next()?.strip_prefix(PHASE)?;
    let module = frames.iter().find_map(|frame| frame.strip_prefix(MODULE));
    Some(module.map_or_else(|| phase.to_owned(), |module| format!("{module}, {phase}")))
}

/// As [`caller`], where these packages are not the program's own either.
fn caller_beyond(frames: &[String], packages: &[String]) -> String {
    let own = frames
        .iter()
        .find(|frame| is_own(frame) && !packages.iter().any(|package| is_in(frame, package)));
    let named = own.map(|frame| short(frame));
    let named = named.or_else(|| gradient_of(frames));
    let named = named.or_else(|| frames.first().map(|frame| short(frame)));
    named.unwrap_or_else(|| "unknown".to_owned())
}

/// Returns the gradient that PyTorch computes on a thread of its own, which has no lines of Python: `LinearBackward0, backward`.
fn gradient_of(frames: &[String]) -> Option<String> {
    let mut names = frames.iter().filter_map(|frame| {
        let (_, after) = frame.split_once("torch::autograd::")?;
        let (name, _) = after.split_once("::apply(")?;
        Some(name.rsplit("::").next().unwrap_or(name))
    });
    names.next().map(|name| format!("{name}, backward"))
}

/// Returns a trace with groups that are named beyond these packages: by the callers of what these allocate. Groups that are no frames, such as
/// tags, stay as they are, and so do those of snapshots of PyTorch, which are named when they are read.
///
/// ```
/// use binpool_replay::report::named_beyond;
/// use binpool_recordings::Trace;
///
/// let text = "h version 3\nh source a program on OpenCL\ng 0 nets/layers.py:7 in dense (buffer, context 1)\n\
///             k 0 /home/me/nets/layers.py:7 in dense\nk 0 /home/me/train.py:3 in forward\na 1 64 0 0 0 0\n";
/// let trace = Trace::parse("recorded", text.as_bytes())?;
/// let trace = named_beyond(trace, &["nets".to_owned()]);
/// assert_eq!(trace.group_of(0), Some("me/train.py:3 in forward (buffer, context 1)"));
/// # Ok::<(), binpool_trace::TraceError>(())
/// ```
#[must_use]
pub fn named_beyond(trace: Trace, packages: &[String]) -> Trace {
    if packages.is_empty() {
        return trace;
    }
    let is_of_program = trace.is_of_program();
    trace.with_groups(|stack, group| {
        if is_of_program {
            let (_, kind) = parts_of_group(group);
            return format!("{} ({kind})", caller_beyond(stack, packages));
        }
        let is_frame = stack.first().is_some_and(|frame| frame == group);
        let is_beyond = |frame: &&String| !packages.iter().any(|package| is_in(frame, package));
        let beyond = stack.iter().filter(|_| is_frame).find(is_beyond);
        beyond.map_or_else(|| group.to_owned(), String::clone)
    })
}

/// Returns the caller, if any, and the kind of a group `caller (buffer, context 1)` or `buffer, context 1`.
pub(super) fn parts_of_group(group: &str) -> (Option<&str>, &str) {
    let (kind, _) = group.rsplit_once(", context ").unwrap_or((group, ""));
    match kind.rfind(" (") {
        Some(end) => {
            let kind = &group[end + 2..];
            (Some(&group[..end]), kind.strip_suffix(')').unwrap_or(kind))
        }
        None => (None, group),
    }
}

/// The parts of a frame: its file, and how the frame is written with another name of the file.
struct Parts<'f> {
    before: &'f str,
    file: &'f str,
    after: &'f str,
}

impl<'f> Parts<'f> {
    /// Returns the parts of `file.py:12 in function`, `function at file.rs:12`, `function in /a/library.so` or `/a/library.so+0x12`.
    fn of(frame: &'f str) -> Option<Self> {
        let without_line = |place: &'f str| {
            let (file, line) = place.rsplit_once(':')?;
            line.parse::<u32>().is_ok().then_some(file)
        };
        let parts = |file: &'f str| {
            let begin = file.as_ptr() as usize - frame.as_ptr() as usize;
            Self {
                before: &frame[..begin],
                file,
                after: &frame[begin + file.len()..],
            }
        };
        let python = frame.rsplit_once(" in ");
        if let Some(file) = python.and_then(|(place, _)| without_line(place)) {
            return Some(parts(file));
        }
        let native = frame.rsplit_once(" at ");
        if let Some(file) = native.and_then(|(_, place)| without_line(place)) {
            return Some(parts(file));
        }
        if let Some((_, file)) = python.filter(|(_, file)| file.starts_with('/')) {
            return Some(parts(file));
        }
        let (file, _) = frame.rsplit_once("+0x")?;
        Some(parts(file))
    }
}

fn is_own(frame: &str) -> bool {
    let Some(Parts { file, .. }) = Parts::of(frame) else {
        return false;
    };
    let (_, name) = file.rsplit_once('/').unwrap_or(("", file));
    let begins = |table: &str, text: &str| table.split(' ').any(|start| text.starts_with(start));
    begins(TYPED, file)
        || !begins(SYSTEM, file)
            && !begins(RUNTIMES, name)
            && !PACKAGES.split(' ').any(|package| file.contains(package))
}

/// Returns whether a frame is in a package: in a folder or a module of Python of this name, or in a namespace or crate.
fn is_in(frame: &str, package: &str) -> bool {
    let Some(Parts { before, file, .. }) = Parts::of(frame) else {
        return false;
    };
    let is_it = |part: &str| part.strip_suffix(".py").unwrap_or(part) == package;
    file.split('/').any(is_it)
        || before.split("::").next() == Some(package) && before.contains("::")
}

/// Returns a frame with the last two parts of the path of its file.
fn short(frame: &str) -> String {
    let Some(Parts {
        before,
        file,
        after,
    }) = Parts::of(frame)
    else {
        return cut(frame, LONGEST).into_owned();
    };
    let mut parts = file.rsplit('/');
    let name = parts.next().unwrap_or(file);
    let place = match parts.next() {
        Some(folder) if !folder.is_empty() => format!("{folder}/{name}{after}"),
        _ => format!("{name}{after}"),
    };
    let room = LONGEST.saturating_sub(place.chars().count()).max(16);
    format!("{}{place}", shortened(before, room))
}

/// Returns the name of a function and the word after it in at most `most` characters.
fn shortened(before: &str, most: usize) -> String {
    if before.chars().count() <= most {
        return before.to_owned();
    }
    let words = [" at ", " in "];
    let word = words.into_iter().find(|word| before.ends_with(word));
    let word = word.unwrap_or_default();
    let function = before.strip_suffix(word).unwrap_or(before);
    format!("{}{word}", cut(function, most.saturating_sub(word.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller_of(frames: &[&str]) -> String {
        caller(&frames.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn what_pytorchs_backward_pass_allocates_is_named_after_what_it_computes() {
        let frames = [
            "(anonymous namespace)::see(c10::TraceEntry const&) in /home/me/.cache/binpool/torch_tracker-2.11.0+cu130-1.so",
            "at::native::layer_norm_backward_cuda(at::Tensor const&) in /venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so",
            "torch::autograd::generated::NativeLayerNormBackward0::apply(std::vector<at::Tensor>&&) in /venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so",
            "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&) in /venv/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so",
        ];
        assert_eq!(caller_of(&frames), "NativeLayerNormBackward0, backward");
        let called = [&frames[..], &["/home/me/train.py:3 in step"]].concat();
        assert_eq!(caller_of(&called), "me/train.py:3 in step");
    }

    #[test]
    fn the_caller_is_the_innermost_frame_of_the_program() {
        let frames = [
            "clCreateBuffer in /usr/lib/x86_64-linux-gnu/libOpenCL.so.1.0.0",
            "/venv/lib/python3.11/site-packages/pyopencl/array.py:12 in __init__",
            "/usr/lib/python3.11/contextlib.py:1 in inner",
            "<frozen importlib._bootstrap>:1027 in _find_and_load",
            "/home/me/model/train.py:12 in Model.forward",
            "/home/me/main.py:1 in <module>",
        ];
        assert_eq!(caller_of(&frames), "model/train.py:12 in Model.forward");
        let frames = [
            "/opt/other/libOpenCL.so.1+0x12",
            "alloc::vec::Vec<T>::push at /rustc/abc/library/alloc/src/vec/mod.rs:1",
            "cl3::memory::create_buffer at /root/.cargo/registry/src/x/cl3-0.13.2/src/memory.rs:9",
            "train::layer at /home/me/train/src/layer.rs:7",
        ];
        assert_eq!(caller_of(&frames), "train::layer at src/layer.rs:7");
        assert_eq!(
            caller_of(&[
                "cuMemAlloc_v2 in /lib/libcuda.so.1",
                "cuptiSubscribe in /opt/cupti/libcupti.so.12",
                "main in /usr/bin/tool"
            ]),
            "main in bin/tool"
        );
        assert_eq!(
            caller_of(&["/srv/tool/libmodel.so+0x1a"]),
            "tool/libmodel.so+0x1a"
        );
        assert_eq!(
            caller_of(&["<stdin>:1 in <module>"]),
            "<stdin>:1 in <module>"
        );
    }

    #[test]
    fn groups_of_a_pool_are_named_beyond_a_crate_unless_they_are_tags() {
        let text = "h version 2\ng 1 nets::dense at nets/src/lib.rs:7\ng 2 weights\nk 1 nets::dense at nets/src/lib.rs:7\n\
                    k 1 train::main at train/src/main.rs:3\na 1 64 0 0 1 1\na 2 64 0 0 2 1\n";
        let trace = Trace::parse("recorded", text.as_bytes()).unwrap();
        let trace = named_beyond(trace, &["nets".to_owned()]);
        assert_eq!(
            trace.group_of(0),
            Some("train::main at train/src/main.rs:3")
        );
        assert_eq!(trace.group_of(1), Some("weights"));
    }

    #[test]
    fn without_an_own_frame_the_caller_is_the_innermost_one() {
        let frames = ["clCreateBuffer in /usr/lib/libOpenCL.so.1", "0x7f00"];
        assert_eq!(caller_of(&frames), "clCreateBuffer in lib/libOpenCL.so.1");
        assert_eq!(caller_of(&["0x7f00"]), "0x7f00");
        assert_eq!(caller_of(&[]), "unknown");
    }

    #[test]
    fn the_place_stays_whole_where_the_name_of_a_function_is_long() {
        let frame = format!(
            "{}<int> at /home/me/src/kernels.cpp:1234",
            "long_name::".repeat(50)
        );
        let text = caller_of(&[&frame]);
        assert!(text.ends_with(" at src/kernels.cpp:1234"), "{text}");
        assert!(text.chars().count() <= LONGEST, "{text}");
    }
}
