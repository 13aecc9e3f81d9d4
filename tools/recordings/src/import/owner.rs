//! Whose code a source file has.

use std::path::Path;

/// The owner of a frame's code. The later ones are more likely to be the program, or to tell what it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// What records stacks, and the allocator.
    Unwinder,
    /// What leads from one function to another, in C++.
    Machinery,
    /// Another function of `PyTorch` in C++.
    Operator,
    /// C++ of the program or of other libraries, and what tells a step of the backward pass.
    Native,
    /// Python itself, `PyTorch`, and code that they generate; packages to look beyond.
    Runtime,
    /// All other Python code.
    Program,
}

/// Returns the owner of a file, by its path with `/` between its parts.
pub(crate) fn owner(file: &str) -> Owner {
    let is_made_up = ["<frozen ", "<string>", "<eval_with_key>"];
    let is_torch = |packages: &str| file.contains(&format!("{packages}/torch/"));
    // The allocator, and the interpreter: `/usr/src/python-3.12/Objects/call.c`.
    let is_interpreter = [".c", ".h"].iter().any(|end| file.ends_with(end))
        && ["/python-3", "/Python-3", "/cpython"]
            .iter()
            .any(|folder| file.contains(folder));
    if file.contains("CachingAllocator.") {
        Owner::Unwinder
    } else if is_interpreter || file.contains("/csu/") {
        Owner::Machinery
    } else if !is_python(file) {
        Owner::Native
    } else if is_made_up.iter().any(|start| file.starts_with(start))
        || ["site-packages", "dist-packages", "pytorch"]
            .into_iter()
            .any(is_torch)
        || file.contains("/torchinductor_")
        || ["/lib/python3", "/Lib/"]
            .iter()
            .any(|folder| file.contains(folder))
            && file.to_ascii_lowercase().contains("/python3")
            && !file.contains("-packages/")
    {
        Owner::Runtime
    } else {
        Owner::Program
    }
}

/// Returns whether it is a file of Python, or one that Python generated, such as `<stdin>`.
fn is_python(file: &str) -> bool {
    let extension = Path::new(file).extension();
    let is_generated = file.starts_with('<') && file != "<unknown>";
    extension.is_some_and(|extension| extension == "py") || is_generated
}
