//! Where a thread is in the program, frame by frame.

use std::{ffi::c_void, fmt, path::Path};

/// How many frames are kept.
const MOST_FRAMES: usize = 24;

/// The return addresses of a thread's frames, innermost first. They get their names when somebody wants to read them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stack(Box<[usize]>);

impl Stack {
    /// That of this thread, from the pool's own frames on.
    pub(crate) fn here() -> Self {
        let mut frames = Vec::with_capacity(MOST_FRAMES);
        backtrace::trace(|frame| {
            frames.push(frame.ip().addr());
            frames.len() < MOST_FRAMES
        });
        Self(frames.into())
    }
}

impl fmt::Display for Stack {
    /// `function at file:line`, one a line, without the pool's own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut frames = Vec::new();
        for address in &self.0 {
            backtrace::resolve(*address as *mut c_void, |symbol| {
                let Some(name) = symbol.name() else { return };
                let name = format!("{name:#}");
                let file = symbol.filename();
                let whose = Whose::of(&name, file);
                let line = match (file, symbol.lineno()) {
                    (Some(file), Some(number)) => {
                        let file = file.file_name().map_or(file, Path::new);
                        format!("{name} at {}:{number}", file.display())
                    }
                    _ => name,
                };
                frames.push((whose, line));
            });
        }
        let (whose, lines): (Vec<_>, Vec<_>) = frames.into_iter().unzip();
        f.write_str(&lines[first_of_program(&whose)..].join("\n"))
    }
}

/// Where the program begins: first comes what walks the stack, then the pool with what it calls of the standard library. Where
/// all is the pool's, all is shown.
fn first_of_program(frames: &[Whose]) -> usize {
    let is = |whose| move |frame: &Whose| *frame == whose;
    let own = frames.iter().position(is(Whose::Own)).unwrap_or(0);
    let program = frames[own..].iter().position(is(Whose::Program));
    let end = program.map_or(frames.len(), |place| own + place);
    let last_own = frames[..end].iter().rposition(is(Whose::Own));
    let first = last_own.map_or(0, |place| place + 1);
    if first < frames.len() { first } else { 0 }
}

/// Whose function a frame is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Own,
    Standard,
    Program,
}

impl Whose {
    /// Functions that were inlined may have lost their paths, and builds may rename files: one of the two is enough.
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
    fn a_frame_is_the_pools_by_its_path_or_by_its_file() {
        let own = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/seeing/stack.rs"));
        let standard = Path::new("/rustc/0123/library/core/src/ops/function.rs");
        let program = Path::new("/home/somebody/binpool/src/main.rs");
        assert_eq!(
            Whose::of("binpool::pool::MemoryPool<A>::allocate", None),
            Whose::Own
        );
        assert_eq!(
            Whose::of("<binpool::Shared<A> as core::ops::Drop>::drop", None),
            Whose::Own
        );
        assert_eq!(Whose::of("here", Some(own)), Whose::Own);
        assert_eq!(
            Whose::of("call_once<fn()>", Some(standard)),
            Whose::Standard
        );
        assert_eq!(
            Whose::of("core::ops::FnOnce::call_once", None),
            Whose::Standard
        );
        assert_eq!(Whose::of("core_of_it::run", None), Whose::Program);
        assert_eq!(
            Whose::of("train::step<binpool::Pool>", Some(program)),
            Whose::Program
        );
    }
    #[test]
    fn the_program_begins_behind_the_pool_and_what_it_calls() {
        use Whose::{Own, Program, Standard};
        let walk = [Program, Standard, Own, Standard, Own, Program, Own, Program];
        assert_eq!(first_of_program(&walk), 5);
        assert_eq!(first_of_program(&[Own, Standard, Program]), 1);
        assert_eq!(first_of_program(&[Standard, Program]), 0);
        assert_eq!(first_of_program(&[Own, Own]), 0);
        assert_eq!(first_of_program(&[]), 0);
    }
}
