//! What a stack says about who asked for a block.

use std::path::Path;

/// One call on a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) file: &'a str,
    pub(crate) line: i64,
    pub(crate) function: &'a str,
}

/// How likely a frame is the program's own code, the likeliest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// C and C++: the allocator and what calls it.
    Native,
    /// Python itself, `PyTorch`, and code that they made up.
    Runtime,
    /// All other Python code.
    Program,
}

/// The name of the group of blocks that were asked for on this stack, whose innermost frame comes first: the innermost frame
/// that is the program's own, as `FILE:LINE FUNCTION` with the last two parts of the file's path. Where there is none, the
/// innermost one of Python and `PyTorch`; where there is no Python, the innermost one. `None` for an empty stack.
pub(crate) fn group_name<'a>(stack: impl Iterator<Item = Frame<'a>>) -> Option<String> {
    let mut best: Option<(Owner, Frame<'_>)> = None;
    for frame in stack {
        let owner = owner(frame.file);
        if best.is_none_or(|(found, _)| owner > found) {
            best = Some((owner, frame));
        }
        if owner == Owner::Program {
            break;
        }
    }
    let (_, frame) = best?;
    let path = frame.file.replace('\\', "/");
    let mut parts: Vec<&str> = path.rsplit('/').take(2).collect();
    parts.reverse();
    let name = format!("{}:{} {}", parts.join("/"), frame.line, frame.function);
    // One line, whatever the names are.
    Some(name.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn owner(file: &str) -> Owner {
    let file = file.replace('\\', "/");
    let is_made_up = ["<frozen ", "<string>", "<eval_with_key>"];
    let is_torch = |packages: &str| file.contains(&format!("{packages}/torch/"));
    if !is_python(&file) {
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

/// Whether it is a file of Python, or one that Python made up, such as `<stdin>`.
fn is_python(file: &str) -> bool {
    let extension = Path::new(file).extension();
    extension.is_some_and(|extension| extension == "py") || file.starts_with('<')
}

#[cfg(test)]
mod tests {
    use super::*;

    const NATIVE: Frame<'_> = Frame {
        file: "/build/c10/cuda/CUDACachingAllocator.cpp",
        line: 9,
        function: "malloc",
    };
    const TORCH: Frame<'_> = Frame {
        file: "/env/lib/python3.12/site-packages/torch/nn/modules/linear.py",
        line: 125,
        function: "forward",
    };
    const LIBRARY: Frame<'_> = Frame {
        file: "/env/lib/python3.12/site-packages/timm/layers/mlp.py",
        line: 44,
        function: "forward",
    };
    const SCRIPT: Frame<'_> = Frame {
        file: "train.py",
        line: 30,
        function: "<module>",
    };

    fn name(stack: &[Frame<'_>]) -> Option<String> {
        group_name(stack.iter().copied())
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
    }

    #[test]
    fn a_notebook_is_the_programs_own_and_code_that_nobody_wrote_is_not() {
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
    fn a_name_is_one_line() {
        let frame = Frame {
            file: "/a b/c\nd.py",
            line: 1,
            function: "f\r\n",
        };
        assert_eq!(name(&[frame]).as_deref(), Some("a b/c d.py:1 f"));
    }
}
