//! Finds the caller that requested a block, by its stack.

use std::borrow::Cow;

use binpool_trace::cut;

use super::{
    cpp::Function,
    owner::{Owner, owner},
};

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
    /// The function, if it is one of C++.
    pub(crate) cpp: &'a Function,
}

impl Frame<'_> {
    fn owner(&self) -> Owner {
        match self.file.owner {
            Owner::Native => self.cpp.owner,
            owner => owner,
        }
    }

    fn is_cpp(&self) -> bool {
        self.file.owner <= Owner::Native
    }

    fn function(&self) -> Cow<'_, str> {
        let name = if self.is_cpp() {
            &self.cpp.name
        } else {
            self.function
        };
        cut(name, LONGEST_PART)
    }

    /// Where it is, if that is known: C++ is often compiled without its lines.
    fn place(&self) -> Option<String> {
        let is_known = self.line > 0 || !self.is_cpp();
        is_known.then(|| format!("{}:{}", self.file.name, self.line))
    }

    /// The frame as a line of a call stack: `FUNCTION at FILE:LINE`.
    pub(crate) fn text(&self) -> String {
        let function = self.function();
        one_line(&match self.place() {
            Some(place) => format!("{function} at {place}"),
            None => function.into_owned(),
        })
    }
}

impl File {
    /// The file at a path. Those of the packages `beyond` count as libraries that the program looks through.
    pub(crate) fn new(path: &str, beyond: &[String]) -> Self {
        let path = path.replace('\\', "/");
        let mut parts: Vec<&str> = path.rsplit('/').take(2).collect();
        parts.reverse();
        let owner = match owner(&path) {
            Owner::Program if beyond.iter().any(|package| is_in(&path, package)) => Owner::Runtime,
            owner => owner,
        };
        Self {
            owner,
            name: cut(&parts.join("/"), LONGEST_PART).into_owned(),
        }
    }
}

/// Returns whether a file belongs to a package, or is it: `einops` or `vllm.worker`.
fn is_in(path: &str, package: &str) -> bool {
    let path = path.strip_suffix(".py").unwrap_or(path);
    let inner = format!("/{}/", package.replace('.', "/"));
    !package.is_empty() && format!("/{path}/").contains(&inner)
}

/// Returns the name of the group of the blocks that were requested on this stack, whose innermost frame comes first: the
/// innermost frame of the program itself, as `FILE:LINE FUNCTION` with the last two parts of the file's path. Without such a
/// frame, it is the innermost one of Python and `PyTorch`; without Python, the innermost one that tells what was done; `None` for an empty stack.
pub(crate) fn group_name<'a>(stack: impl Iterator<Item = Frame<'a>>) -> Option<String> {
    let mut best: Option<Frame<'_>> = None;
    for frame in stack {
        if best.is_none_or(|found| frame.owner() > found.owner()) {
            best = Some(frame);
        }
        if frame.owner() == Owner::Program {
            break;
        }
    }
    let frame = best?;
    let function = frame.function();
    Some(one_line(&match frame.place() {
        Some(place) => format!("{place} {function}"),
        None => function.into_owned(),
    }))
}

/// Returns the frames of a stack from the program's innermost one to its outermost one, without those of machinery. Without a frame of the program,
/// all frames from the one on that [`group_name`] chooses.
pub(crate) fn program_part<'f>(stack: &[Frame<'f>]) -> Vec<Frame<'f>> {
    let best = stack.iter().map(Frame::owner).max();
    let is_best = |frame: &Frame<'_>| Some(frame.owner()) == best;
    let from = stack.iter().position(is_best).unwrap_or(0);
    let to = match best {
        Some(Owner::Program) => stack.iter().rposition(is_best).map(|last| last + 1),
        _ => None,
    };
    let part = stack[from..to.unwrap_or(stack.len())].iter().copied();
    part.filter(|frame| is_best(frame) || frame.owner() >= Owner::Native)
        .collect()
}

/// The text in one line without control characters, for any names.
pub(crate) fn one_line(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
        with_frames(stack, &[], |frames| group_name(frames.iter().copied()))
    }

    fn with_frames<T>(stack: &[Call], beyond: &[&str], of: impl FnOnce(&[Frame<'_>]) -> T) -> T {
        let beyond: Vec<String> = beyond.iter().map(|package| (*package).to_owned()).collect();
        let parts = stack.iter().map(|(path, _, function)| {
            (File::new(path, &beyond), Function::new(function, &beyond))
        });
        let parts: Vec<(File, Function)> = parts.collect();
        let frames = parts.iter().zip(stack);
        let frames = frames.map(|((file, cpp), (_, line, function))| Frame {
            file,
            line: *line,
            function,
            cpp,
        });
        of(&frames.collect::<Vec<_>>())
    }

    /// As PyTorch records it in a thread of its autograd engine.
    const BACKWARD: [Call; 16] = [
        ("??", 0, "torch::unwind::unwind()"),
        (
            "??",
            0,
            "torch::CapturedTraceback::gather(bool, bool, bool)",
        ),
        (
            "memory_snapshot.cpp",
            0,
            "torch::cuda::(anonymous namespace)::gather_with_cpp()",
        ),
        (
            "",
            0,
            "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)",
        ),
        (
            "??",
            0,
            "at::detail::empty_generic(c10::ArrayRef<long>, c10::Allocator*)",
        ),
        ("??", 0, "at::native::empty_cuda(c10::ArrayRef<long>)"),
        (
            "RegisterCUDA_0.cpp",
            0,
            "at::(anonymous namespace)::create_out(c10::ArrayRef<long>)",
        ),
        (
            "RegisterCUDA_0.cpp",
            0,
            "at::(anonymous namespace)::wrapper_CUDA_bmm(at::Tensor const&, at::Tensor const&)",
        ),
        (
            "??",
            0,
            "at::_ops::bmm::redispatch(c10::DispatchKeySet, at::Tensor const&, at::Tensor const&)",
        ),
        (
            "VariableType_4.cpp",
            0,
            "torch::autograd::VariableType::(anonymous namespace)::bmm(c10::DispatchKeySet, at::Tensor const&)",
        ),
        (
            "??",
            0,
            "at::_ops::bmm::call(at::Tensor const&, at::Tensor const&)",
        ),
        (
            "??",
            0,
            "torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)",
        ),
        (
            "??",
            0,
            "torch::autograd::Node::operator()(std::vector<at::Tensor>&&)",
        ),
        (
            "??",
            0,
            "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)",
        ),
        ("??", 0, "execute_native_thread_routine"),
        ("??", 0, "clone"),
    ];

    fn texts(stack: &[Call]) -> Vec<String> {
        with_frames(stack, &[], |frames| {
            program_part(frames).iter().map(Frame::text).collect()
        })
    }

    #[test]
    fn the_backward_pass_is_the_first_frame_that_tells_what_it_did() {
        assert_eq!(name(&BACKWARD).as_deref(), Some("VariableType::bmm"));
        assert_eq!(texts(&BACKWARD), ["VariableType::bmm", "BmmBackward0"]);
        let mut of_a_node = BACKWARD;
        of_a_node[9] = BACKWARD[8];
        assert_eq!(name(&of_a_node).as_deref(), Some("BmmBackward0"));
        // Without both, an operation says more than the machinery around it.
        assert_eq!(
            name(&BACKWARD[..9]).as_deref(),
            Some("at::_ops::bmm::redispatch")
        );
        assert_eq!(
            name(&BACKWARD[..8]).as_deref(),
            Some("at::detail::empty_generic")
        );
        assert_eq!(
            name(&BACKWARD[..2]).as_deref(),
            Some("torch::unwind::unwind")
        );
        let with_lines = ("/b/autograd/VariableType_4.cpp", 70, BACKWARD[9].2);
        assert_eq!(
            name(&[BACKWARD[0], with_lines]).as_deref(),
            Some("autograd/VariableType_4.cpp:70 VariableType::bmm")
        );
    }

    #[test]
    fn frames_of_cpp_and_of_the_interpreter_are_left_out_between_those_of_python() {
        let interpreter = (
            "/usr/local/src/conda/python-3.14.6/Objects/call.c",
            361,
            "_PyObject_Call",
        );
        let unnamed = ("", 0, "cfunction_call.lto_priv.0");
        let binding = (
            "python_torch_functions_2.cpp",
            0,
            "torch::autograd::THPVariable_empty(_object*)",
        );
        let extension = ("??", 0, "flash::mha_fwd(int)");
        let stack = [
            BACKWARD[0],
            BACKWARD[3],
            binding,
            unnamed,
            interpreter,
            TORCH,
            interpreter,
            LIBRARY,
            unnamed,
            extension,
            interpreter,
            TORCH,
            ("??", 0, "_PyEval_EvalFrameDefault"),
            SCRIPT,
            interpreter,
            ("./csu/../csu/libc-start.c", 360, "__libc_start_main_impl"),
            ("??", 0, "_start"),
        ];
        assert_eq!(name(&stack).as_deref(), Some("layers/mlp.py:44 forward"));
        assert_eq!(
            texts(&stack),
            [
                "forward at layers/mlp.py:44",
                "flash::mha_fwd",
                "forward at modules/linear.py:125",
                "<module> at train.py:30"
            ]
        );
    }

    #[test]
    fn a_stack_ends_with_the_outermost_frame_of_the_program() {
        let stack = [NATIVE, SCRIPT, TORCH, SCRIPT, TORCH];
        let own = "<module> at train.py:30";
        let inner = "forward at modules/linear.py:125";
        assert_eq!(texts(&stack), [own, inner, own]);
        assert_eq!(texts(&[NATIVE, TORCH, TORCH]), [inner, inner]);
    }

    #[test]
    fn a_package_can_be_looked_beyond() {
        let einops: Call = (
            "/env/lib/python3.12/site-packages/einops/einops.py",
            302,
            "reduce",
        );
        let named = |beyond: &[&str], stack: &[Call]| {
            with_frames(stack, beyond, |frames| group_name(frames.iter().copied()))
        };
        let stack = [NATIVE, einops, TORCH, LIBRARY, SCRIPT];
        assert_eq!(
            named(&[], &stack).as_deref(),
            Some("einops/einops.py:302 reduce")
        );
        assert_eq!(
            named(&["einops"], &stack).as_deref(),
            Some("layers/mlp.py:44 forward")
        );
        assert_eq!(
            named(&["einops", "timm.layers"], &stack).as_deref(),
            Some("train.py:30 <module>")
        );
        for other in ["einop", "layers.timm", "train.p", ""] {
            assert_eq!(named(&[other], &stack), named(&[], &stack), "{other}");
        }
        // A module without a folder; and where there is nothing beyond.
        assert_eq!(
            named(&["train"], &[NATIVE, SCRIPT, LIBRARY]).as_deref(),
            Some("layers/mlp.py:44 forward")
        );
        assert_eq!(
            named(&["einops"], &[NATIVE, einops]).as_deref(),
            Some("einops/einops.py:302 reduce")
        );
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
        let owner = |path| File::new(path, &[]).owner;
        assert_eq!(owner("<ipython-input-3-0a1b>"), Owner::Program);
        assert_eq!(owner("<eval_with_key>.3"), Owner::Runtime);
        assert_eq!(owner("<frozen importlib._bootstrap>"), Owner::Runtime);
        assert_eq!(owner("/usr/lib/python3.12/threading.py"), Owner::Runtime);
        assert_eq!(
            owner("C:\\env\\site-packages\\torch\\nn\\x.py"),
            Owner::Runtime
        );
        assert_eq!(
            owner("C:\\Programs\\Python\\Python311\\Lib\\threading.py"),
            Owner::Runtime
        );
        assert_eq!(owner("/tmp/torchinductor_ada/4q/c4q7.py"), Owner::Runtime);
        assert_eq!(owner("/home/ada/Lib/train.py"), Owner::Program);
        assert_eq!(owner("/home/torch/train.py"), Owner::Program);
        assert_eq!(owner("<unknown>"), Owner::Native);
        // C of the interpreter, of the program, and Python beside the interpreter.
        assert_eq!(
            owner("/usr/src/python-3.12/Objects/call.c"),
            Owner::Machinery
        );
        assert_eq!(owner("/home/ada/kernels/scale.c"), Owner::Native);
        assert_eq!(owner("/opt/python-3.12/own/train.py"), Owner::Program);
    }

    #[test]
    fn a_name_is_one_line_without_control_characters() {
        let call = ("/a b/c\nd.py", 1, "f\r\n\x1b[31m");
        assert_eq!(name(&[call]).as_deref(), Some("a b/c d.py:1 f [31m"));
    }
}
