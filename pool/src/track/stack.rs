//! The call stack of a thread.

use std::{ffi::c_void, fmt, iter, path::Path};

/// The most frames of a stack that are kept. Further ones are only counted.
const MAX_FRAMES: usize = 256;

/// The most characters of a frame's text. Names of generic functions can be far longer than a line of a recording.
const LONGEST_FRAME: usize = 1024;

/// The return addresses of a thread's frames, innermost first. Names are looked up when the stack is printed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stack {
    addresses: Box<[usize]>,
    /// The number of outermost frames that are not among the addresses.
    left_out: usize,
    /// The stack begins beyond the crates whose names begin with one of these.
    beyond: &'static [&'static str],
}

impl Stack {
    /// Returns the stack of this thread, from the pool's own frames on.
    pub(crate) fn here(beyond: &'static [&'static str]) -> Self {
        let mut frames = Vec::with_capacity(MAX_FRAMES);
        let mut left_out = 0;
        backtrace::trace(|frame| {
            if frames.len() < MAX_FRAMES {
                frames.push(frame.ip().addr());
            } else {
                left_out += 1;
            }
            true
        });
        Self {
            addresses: frames.into(),
            left_out,
            beyond,
        }
    }
}

impl fmt::Display for Stack {
    /// Writes `function at crate/src/file.rs:line`, one frame a line: those of the program.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut frames = Vec::new();
        for address in &self.addresses {
            backtrace::resolve(*address as *mut c_void, |symbol| {
                let Some(name) = symbol.name() else { return };
                let name = format!("{name:#}");
                let file = symbol.filename();
                let owner = FrameOwner::of(&name, file, self.beyond);
                let text = match (file, symbol.lineno()) {
                    (Some(file), Some(number)) => format!("{name} at {}:{number}", short(file)),
                    _ => name,
                };
                frames.push((owner, text));
            });
        }
        let (owners, texts): (Vec<_>, Vec<_>) = frames.into_iter().unzip();
        let chosen = of_program(&owners);
        let has_begun = owners.contains(&FrameOwner::Begin);
        let mut lines: Vec<String> = chosen.iter().map(|index| cut(&texts[*index])).collect();
        if self.left_out > 0 && !has_begun {
            lines.push(format!("({} more frames)", self.left_out));
        }
        f.write_str(&lines.join("\n"))
    }
}

/// Returns the indices of the program's frames: from the first one after those of the stack walk, of the pool and of the named crates,
/// to where the thread begins, without those of the standard library and of binpool. If no frame is the program's, those of the named crates, or else all.
fn of_program(frames: &[FrameOwner]) -> Vec<usize> {
    let begin = frames
        .iter()
        .position(|frame| *frame == FrameOwner::Begin)
        .unwrap_or(frames.len());
    let frames = &frames[..begin];
    // The stack walk is code of another crate, so the pool's first frame comes before the program's.
    let own = frames.iter().position(|frame| *frame == FrameOwner::Own);
    let behind_walk = own.unwrap_or(0);
    let first = |wanted: FrameOwner| {
        let found = frames[behind_walk..].iter().position(|it| *it == wanted);
        found.map(|index| behind_walk + index)
    };
    let first = first(FrameOwner::Program).or_else(|| first(FrameOwner::Named));
    let Some(first) = first else {
        return (0..begin).collect();
    };
    (first..begin)
        .filter(|index| !matches!(frames[*index], FrameOwner::Standard | FrameOwner::Own))
        .collect()
}

/// The code that the function of a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameOwner {
    /// Crates of binpool.
    Own,
    /// A crate that the program named.
    Named,
    Standard,
    /// Where the program or its thread begins.
    Begin,
    Program,
}

impl FrameOwner {
    /// Inlined functions may have lost their paths, and builds may rename files, so either is enough.
    fn of(name: &str, file: Option<&Path>, beyond: &[&str]) -> Self {
        const BEGINS: [&str; 7] = [
            "main",
            "_start",
            "__libc_start_main",
            "__libc_start_call_main",
            "start_thread",
            "clone",
            "clone3",
        ];
        let lies_in = |folder: &str| file.is_some_and(|file| file.starts_with(folder));
        if BEGINS.contains(&name) || name.contains("__rust_begin_short_backtrace") {
            return Self::Begin;
        }
        let of = crate_of(name);
        // Code of the standard library that was compiled for a type of the program may have a path of the program.
        if ["std", "core", "alloc"].contains(&of) || lies_in("/rustc") {
            Self::Standard
        } else if beyond.iter().any(|named| of.starts_with(named)) {
            Self::Named
        } else if of == "binpool"
            || of.starts_with("binpool_")
            || lies_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))
        {
            Self::Own
        } else {
            Self::Program
        }
    }
}

/// Returns the crate of a function, from a path such as `<&mut tensor::Shape as core::fmt::Debug>::fmt`; empty for a function without
/// a path.
fn crate_of(name: &str) -> &str {
    let mut path = name.trim_start_matches(['<', '&', '*', '[', '(']);
    for word in ["mut ", "const ", "dyn "] {
        path = path.strip_prefix(word).unwrap_or(path);
    }
    path.split_once("::").map_or("", |(first, _)| first)
}

/// Returns a source file's path from the folder of its crate on.
fn short(file: &Path) -> String {
    let parts: Vec<_> = file
        .components()
        .map(|part| part.as_os_str().to_string_lossy())
        .collect();
    let is_root = |part: &str| ["src", "tests", "examples", "benches"].contains(&part);
    let root = parts.iter().rposition(|part| is_root(part));
    let start = root.unwrap_or(parts.len().saturating_sub(1));
    parts[start.saturating_sub(1)..].join("/")
}

/// Cuts a frame's text to [`LONGEST_FRAME`] characters, and says so.
fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST_FRAME) {
        None => text.to_owned(),
        Some((end, _)) => text[..end].chars().chain(iter::once('…')).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str, file: Option<&str>) -> FrameOwner {
        FrameOwner::of(name, file.map(Path::new), &["tensor"])
    }

    #[test]
    fn a_frame_belongs_to_its_crate_by_its_path_or_its_file() {
        let own = concat!(env!("CARGO_MANIFEST_DIR"), "/src/track/stack.rs");
        let standard = "/rustc/0123/library/core/src/ops/function.rs";
        let program = "/home/user/binpool/src/main.rs";
        for name in [
            "binpool::pool::MemoryPool<B>::allocate",
            "<binpool::Shared<B> as core::ops::Drop>::drop",
            "<&mut binpool_allocators::Limit<B> as binpool_allocators::Allocator>::allocate",
        ] {
            assert_eq!(owner(name, None), FrameOwner::Own, "{name}");
        }
        assert_eq!(owner("here", Some(own)), FrameOwner::Own);
        for name in ["core::ops::FnOnce::call_once", "<[T] as x>::y"] {
            let file = name.starts_with('<').then_some(standard);
            assert_eq!(owner(name, file), FrameOwner::Standard, "{name}");
        }
        for name in ["tensor::empty", "<tensor_ops::Shape as x::Y>::z"] {
            assert_eq!(owner(name, Some(program)), FrameOwner::Named, "{name}");
        }
        for name in ["core_of_it::run", "train::step<binpool::Pool>", "run"] {
            assert_eq!(owner(name, Some(program)), FrameOwner::Program, "{name}");
        }
        for name in [
            "std::sys::backtrace::__rust_begin_short_backtrace<fn(), ()>",
            "main",
            "clone3",
        ] {
            assert_eq!(owner(name, None), FrameOwner::Begin, "{name}");
        }
        assert_eq!(owner("train::main", None), FrameOwner::Program);
    }

    #[test]
    fn a_stack_is_from_the_first_frame_beyond_to_where_the_program_begins() {
        use FrameOwner::{Begin, Named, Own, Program, Standard};
        let walk = [
            Program, Standard, Own, Standard, Own, Named, Standard, Program, Standard, Own, Named,
            Program, Begin, Standard, Program,
        ];
        assert_eq!(of_program(&walk), [7, 10, 11]);
        // A block of the named crate itself.
        assert_eq!(of_program(&[Own, Named, Standard, Named, Begin]), [1, 3]);
        assert_eq!(of_program(&[Own, Standard, Program]), [2]);
        assert_eq!(of_program(&[Standard, Program]), [1]);
        assert_eq!(of_program(&[Own, Own]), [0, 1]);
        assert!(of_program(&[]).is_empty());
    }

    #[test]
    fn a_file_has_the_folder_of_its_crate() {
        for (path, expected) in [
            (
                "/home/user/programs/tensor/src/ops/add.rs",
                "tensor/src/ops/add.rs",
            ),
            (
                "/root/.cargo/registry/src/index.crates.io-1949/rand-0.9.1/src/lib.rs",
                "rand-0.9.1/src/lib.rs",
            ),
            ("/home/src/train/examples/gpt.rs", "train/examples/gpt.rs"),
            ("src/main.rs", "src/main.rs"),
            ("/generated/out/kernels.rs", "out/kernels.rs"),
            ("lib.rs", "lib.rs"),
        ] {
            assert_eq!(short(Path::new(path)), expected);
        }
    }

    #[inline(never)]
    fn deep(levels: usize) -> Stack {
        if levels == 0 {
            return Stack::here(&[]);
        }
        std::hint::black_box(deep(levels - 1))
    }

    #[test]
    #[cfg_attr(
        miri,
        ignore = "Miri names frames by pointers, and a stack keeps their numbers"
    )]
    fn frames_that_are_not_kept_are_counted() {
        let levels = 2 * MAX_FRAMES;
        let stack = deep(levels);
        assert!(stack.addresses.len() + stack.left_out > levels);
        assert_eq!(stack.addresses.len(), MAX_FRAMES);
        let text = stack.to_string();
        let last = text.lines().next_back().unwrap();
        assert_eq!(last, format!("({} more frames)", stack.left_out));
        assert!(!deep(1).to_string().contains("more frames"));
        let long = cut(&"é".repeat(LONGEST_FRAME + 1));
        assert_eq!(long.chars().count(), LONGEST_FRAME + 1);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn a_stack_says_how_many_frames_it_left_out_where_the_thread_does_not_begin() {
        let stack = |left_out| Stack {
            addresses: Box::default(),
            left_out,
            beyond: &[],
        };
        assert_eq!(stack(0).to_string(), "");
        assert_eq!(stack(3).to_string(), "(3 more frames)");
    }
}
