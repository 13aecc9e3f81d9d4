//! Finds the caller that requested a block, by its stack.

use std::path::Path;

use crate::trace::name::cut;

/// The most characters of a file and of a function in a group's name. With the line, the name is within the limit.
const LONGEST_PART: usize = 240;

/// A source file. Its path is examined once, though a recording names it on many stacks.
#[derive(Debug)]
pub(crate) struct File {
    owner: Owner,
    /// The last two parts of its path.
    name: String,
}

/// A call on a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) file: &'a File,
    pub(crate) line: i64,
    pub(crate) function: &'a str,
}

/// The owner of a frame's code. The later ones are more likely to be the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// C and C++: the allocator and its callers.
    Native,
    /// Python itself, `PyTorch`, and code that they generate.
    Runtime,
    /// All other Python code.
    Program,
}

impl Frame<'_> {
    /// The frame as a line of a call stack: `FUNCTION at FILE:LINE`.
    pub(crate) fn text(&self) -> String {
        let function = cut(self.function, LONGEST_PART);
        one_line(&format!("{function} at {}:{}", self.file.name, self.line))
    }
}

impl File {
    pub(crate) fn new(path: &str) -> Self {
        let path = path.replace('\\', "/");
        let mut parts: Vec<&str> = path.rsplit('/').take(2).collect();
        parts.reverse();
        Self {
            owner: owner(&path),
            name: cut(&parts.join("/"), LONGEST_PART).into_owned(),
        }
    }
}

/// Returns the name of the group of the blocks that were requested on this stack, whose innermost frame comes first: the
/// innermost frame of the program itself, as `FILE:LINE FUNCTION` with the last two parts of the file's path. Without such a
/// frame, it is the innermost one of Python and `PyTorch`; without Python, the innermost one; `None` for an empty stack.
pub(crate) fn group_name<'a>(stack: impl Iterator<Item = Frame<'a>>) -> Option<String> {
    let mut best: Option<Frame<'_>> = None;
    for frame in stack {
        if best.is_none_or(|found| frame.file.owner > found.file.owner) {
            best = Some(frame);
        }
        if frame.file.owner == Owner::Program {
            break;
        }
    }
    let frame = best?;
    let function = cut(frame.function, LONGEST_PART);
    Some(one_line(&format!(
        "{}:{} {function}",
        frame.file.name, frame.line
    )))
}

/// Returns the frames of a stack from the program's innermost one to its outermost one. Without a frame of the program, all frames from the
/// one on that [`group_name`] chooses.
pub(crate) fn program_part<'s, 'f>(stack: &'s [Frame<'f>]) -> &'s [Frame<'f>] {
    let best = stack.iter().map(|frame| frame.file.owner).max();
    let is_best = |frame: &Frame<'_>| Some(frame.file.owner) == best;
    let from = stack.iter().position(is_best).unwrap_or(0);
    let to = match best {
        Some(Owner::Program) => stack.iter().rposition(is_best).map(|last| last + 1),
        _ => None,
    };
    &stack[from..to.unwrap_or(stack.len())]
}

/// The text in one line without control characters, for any names.
fn one_line(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the owner of a file, by its path with `/` between its parts.
fn owner(file: &str) -> Owner {
    let is_made_up = ["<frozen ", "<string>", "<eval_with_key>"];
    let is_torch = |packages: &str| file.contains(&format!("{packages}/torch/"));
    if !is_python(file) {
        Owner::Native
    } else if is_made_up.iter().any(|start| file.starts_with(start))
        || ["site-packages", "dist-packages", "pytorch"]
            .into_iter()
            .any(is_torch)
        || file.contains("/lib/python3") && !file.contains("-packages/")
    {
        Owner::Runtime
    } else {
        Owner::Program
    }
}

/// Returns whether it is a file of Python, or one that Python generated, such as `<stdin>`.
fn is_python(file: &str) -> bool {
    let extension = Path::new(file).extension();
    extension.is_some_and(|extension| extension == "py") || file.starts_with('<')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path of a file, a line in it, and a function.
    type Call = (&'static str, i64, &'static str);

    const NATIVE: Call = ("/build/c10/cuda/CUDACachingAllocator.cpp", 9, "malloc");
    const TORCH: Call = (
        "/env/lib/python3.12/site-packages/torch/nn/modules/linear.py",
        125,
        "forward",
    );
    const LIBRARY: Call = (
        "/env/lib/python3.12/site-packages/timm/layers/mlp.py",
        44,
        "forward",
    );
    const SCRIPT: Call = ("train.py", 30, "<module>");

    fn name(stack: &[Call]) -> Option<String> {
        let files: Vec<File> = stack.iter().map(|(path, ..)| File::new(path)).collect();
        let frames = files.iter().zip(stack);
        group_name(frames.map(|(file, (_, line, function))| Frame {
            file,
            line: *line,
            function,
        }))
    }

    #[test]
    fn a_group_is_the_innermost_frame_outside_of_the_allocator_and_torch() {
        let stack = [NATIVE, TORCH, LIBRARY, SCRIPT];
        assert_eq!(name(&stack).as_deref(), Some("layers/mlp.py:44 forward"));
        assert_eq!(
            name(&[NATIVE, TORCH, SCRIPT]).as_deref(),
            Some("train.py:30 <module>")
        );
        assert_eq!(
            name(&[NATIVE, TORCH]).as_deref(),
            Some("modules/linear.py:125 forward")
        );
        assert_eq!(
            name(&[NATIVE]).as_deref(),
            Some("cuda/CUDACachingAllocator.cpp:9 malloc")
        );
        assert_eq!(name(&[]), None);
        // Of several of a kind, the innermost.
        let outer = |(path, _, function): Call| (path, 1000, function);
        for call in [NATIVE, TORCH, LIBRARY] {
            assert_eq!(name(&[call, outer(call)]), name(&[call]));
        }
    }

    #[test]
    fn a_notebook_counts_as_the_program_and_generated_code_does_not() {
        let owner = |path| File::new(path).owner;
        assert_eq!(owner("<ipython-input-3-0a1b>"), Owner::Program);
        assert_eq!(owner("<eval_with_key>.3"), Owner::Runtime);
        assert_eq!(owner("<frozen importlib._bootstrap>"), Owner::Runtime);
        assert_eq!(owner("/usr/lib/python3.12/threading.py"), Owner::Runtime);
        assert_eq!(
            owner("C:\\env\\site-packages\\torch\\nn\\x.py"),
            Owner::Runtime
        );
        assert_eq!(owner("/home/torch/train.py"), Owner::Program);
    }

    #[test]
    fn a_name_is_one_line_without_control_characters() {
        let call = ("/a b/c\nd.py", 1, "f\r\n\x1b[31m");
        assert_eq!(name(&[call]).as_deref(), Some("a b/c d.py:1 f [31m"));
    }
}
