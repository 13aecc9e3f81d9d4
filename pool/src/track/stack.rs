//! The call stack of a thread.

use std::{ffi::c_void, fmt, path::Path};

/// The most frames of a stack that are kept.
const MAX_FRAMES: usize = 24;

/// The return addresses of a thread's frames, innermost first. Names are looked up when the stack is printed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stack(Box<[usize]>);

impl Stack {
    /// Returns the stack of this thread, from the pool's own frames on.
    pub(crate) fn here() -> Self {
        let mut frames = Vec::with_capacity(MAX_FRAMES);
        backtrace::trace(|frame| {
            frames.push(frame.ip().addr());
            frames.len() < MAX_FRAMES
        });
        Self(frames.into())
    }
}

impl fmt::Display for Stack {
    /// Writes `function at file:line`, one frame a line, without the pool's own frames.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut frames = Vec::new();
        for address in &self.0 {
            backtrace::resolve(*address as *mut c_void, |symbol| {
                let Some(name) = symbol.name() else { return };
                let name = format!("{name:#}");
                let file = symbol.filename();
                let owner = FrameOwner::of(&name, file);
                let line = match (file, symbol.lineno()) {
                    (Some(file), Some(number)) => {
                        let file = file.file_name().map_or(file, Path::new);
                        format!("{name} at {}:{number}", file.display())
                    }
                    _ => name,
                };
                frames.push((owner, line));
            });
        }
        let (owners, lines): (Vec<_>, Vec<_>) = frames.into_iter().unzip();
        f.write_str(&lines[first_of_program(&owners)..].join("\n"))
    }
}

/// Returns the index of the program's first frame. Before it lie the frames of the stack walk, of the pool, and of the
/// standard library that the pool calls. Returns 0 if no frame is the program's.
fn first_of_program(frames: &[FrameOwner]) -> usize {
    let is = |owner| move |frame: &FrameOwner| *frame == owner;
    let own = frames.iter().position(is(FrameOwner::Own)).unwrap_or(0);
    let program = frames[own..].iter().position(is(FrameOwner::Program));
    let end = program.map_or(frames.len(), |index| own + index);
    let last_own = frames[..end].iter().rposition(is(FrameOwner::Own));
    let first = last_own.map_or(0, |index| index + 1);
    if first < frames.len() { first } else { 0 }
}

/// The code that the function of a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameOwner {
    Own,
    Standard,
    Program,
}

impl FrameOwner {
    /// Inlined functions may have lost their paths, and builds may rename files, so either is enough.
    fn of(name: &str, file: Option<&Path>) -> Self {
        let lies_in = |folder: &str| file.is_some_and(|file| file.starts_with(folder));
        let path = name.trim_start_matches('<');
        let is_of = |name: &str| path.starts_with(name);
        if is_of("binpool::") || lies_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src")) {
            Self::Own
        } else if ["std::", "core::", "alloc::"].into_iter().any(is_of) || lies_in("/rustc") {
            Self::Standard
        } else {
            Self::Program
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_belongs_to_the_pool_by_its_path_or_its_file() {
        let own = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/track/stack.rs"));
        let standard = Path::new("/rustc/0123/library/core/src/ops/function.rs");
        let program = Path::new("/home/user/binpool/src/main.rs");
        assert_eq!(
            FrameOwner::of("binpool::pool::MemoryPool<A>::allocate", None),
            FrameOwner::Own
        );
        assert_eq!(
            FrameOwner::of("<binpool::Shared<A> as core::ops::Drop>::drop", None),
            FrameOwner::Own
        );
        assert_eq!(FrameOwner::of("here", Some(own)), FrameOwner::Own);
        assert_eq!(
            FrameOwner::of("call_once<fn()>", Some(standard)),
            FrameOwner::Standard
        );
        assert_eq!(
            FrameOwner::of("core::ops::FnOnce::call_once", None),
            FrameOwner::Standard
        );
        assert_eq!(FrameOwner::of("core_of_it::run", None), FrameOwner::Program);
        assert_eq!(
            FrameOwner::of("train::step<binpool::Pool>", Some(program)),
            FrameOwner::Program
        );
    }

    #[test]
    fn the_programs_frames_begin_after_those_of_the_pool_and_its_callees() {
        use FrameOwner::{Own, Program, Standard};
        let walk = [Program, Standard, Own, Standard, Own, Program, Own, Program];
        assert_eq!(first_of_program(&walk), 5);
        assert_eq!(first_of_program(&[Own, Standard, Program]), 1);
        assert_eq!(first_of_program(&[Standard, Program]), 0);
        assert_eq!(first_of_program(&[Own, Own]), 0);
        assert_eq!(first_of_program(&[]), 0);
    }
}
