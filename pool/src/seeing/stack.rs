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
        let mut lines = Vec::new();
        for frame in &self.0 {
            backtrace::resolve(*frame as *mut c_void, |symbol| {
                let Some(name) = symbol.name() else { return };
                let mut line = format!("{name:#}");
                if let (Some(file), Some(number)) = (symbol.filename(), symbol.lineno()) {
                    let file = file.file_name().map_or(file, Path::new);
                    line = format!("{line} at {}:{number}", file.display());
                }
                lines.push(line);
            });
        }
        let is_own = |line: &&String| line.starts_with("backtrace::") || line.contains("binpool::");
        let user: Vec<_> = lines.iter().skip_while(is_own).cloned().collect();
        f.write_str(&if user.is_empty() { lines } else { user }.join("\n"))
    }
}
