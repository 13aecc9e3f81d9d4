//! What a C++ frame of PyTorch's call stacks tells, by the name of its function.
//!
//! PyTorch records such frames unless it is told not to. Its autograd threads have no others: the backward pass is known by them alone. Most are of
//! the unwinder, the allocator, the dispatcher and the interpreter, and are the same on every stack.

use super::owner::Owner;

/// The beginnings of the names of what records a stack, and of what allocates.
const UNWINDER: &str = "torch::unwind torch::CapturedTraceback torch::cuda::gather torch::cuda::CUDAPluggableAllocator \
     c10::cuda::CUDACachingAllocator DeviceCachingAllocator NativeCachingAllocator";

/// The same of what leads from one function to another, in PyTorch, in C++'s library and in the interpreter.
const MACHINERY: &str = "?? c10:: at::detail:: at::empty at::_ops::empty at::native::empty at::_ops::resize at::native::resize \
     at::wrapper_ at::create_out at::structured_ at::meta:: at::TensorIterator at::functionalization \
     torch::ADInplaceOrView:: torch::autograd::Engine:: torch::autograd::Node:: torch::autograd::PyNode:: \
     torch::autograd::python:: torch::autograd::THP torch::detail:: torch::dynamo:: torch::jit:: THP pybind11:: \
     std:: execute_native_thread_routine start_thread clone _start __ _dl_ Py _Py pymain pyrun run_mod \
     run_eval_code_obj builtin_ bounded_lru_cache_wrapper call_function cfunction_ classmethod_ context_run \
     do_call_core function_code_fastcall gen_ instancemethod_ lru_cache method_ object_vacall partial_ slot_tp_ \
     thread_run trampoline type_call vectorcall";

/// A function of C++.
#[derive(Debug)]
pub(crate) struct Function {
    /// Its name, without parameters.
    pub(crate) name: String,
    pub(crate) owner: Owner,
}

impl Function {
    /// A function with this demangled name. Those of the namespaces `beyond` count as machinery.
    pub(crate) fn new(demangled: &str, beyond: &[String]) -> Self {
        let name = bare(demangled);
        let begins = |table: &str| table.split(' ').any(|with| name.starts_with(with));
        let is_beyond = |space: &String| name.split("::").next() == Some(space.as_str());
        // An operation that is differentiated, and a step of the backward pass.
        let operation = name.find("VariableType::").map(|place| &name[place..]);
        let step = name.strip_prefix("torch::autograd::");
        let step = step.and_then(|step| step.strip_suffix("::apply"));
        let step = step.map(|step| step.strip_prefix("generated::").unwrap_or(step));
        let (name, owner) = if begins(UNWINDER) {
            (name.as_str(), Owner::Unwinder)
        } else if begins(MACHINERY) || name.starts_with("operator ") || beyond.iter().any(is_beyond)
        {
            (name.as_str(), Owner::Machinery)
        } else if let Some(telling) = operation.or(step) {
            (telling, Owner::Native)
        } else if name.starts_with("at::") || name.starts_with("torch::") {
            (name.as_str(), Owner::Operator)
        } else {
            (name.as_str(), Owner::Native)
        };
        Self {
            name: name.to_owned(),
            owner,
        }
    }
}

/// Returns the qualified name of a function, without its return type, the arguments of templates, its parameters and unnamed namespaces.
fn bare(demangled: &str) -> String {
    let mut name = String::new();
    let mut depth = 0_usize;
    for letter in demangled.replace("(anonymous namespace)::", "").chars() {
        match letter {
            '<' if !name.ends_with("operator") => depth += 1,
            '>' if depth > 0 => depth -= 1,
            // Parameters, a clone of the compiler, or the suffix that it gives one.
            '(' | '[' | '.' if depth == 0 && !name.ends_with("operator") && !name.is_empty() => {
                break;
            }
            _ if depth == 0 => name.push(letter),
            _ => {}
        }
    }
    let name = name.trim();
    match name.rsplit_once(' ') {
        Some((before, _)) if before.ends_with("operator") => name.to_owned(),
        Some((_, last)) => last.to_owned(),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_its_qualified_name() {
        for (demangled, name) in [
            ("malloc", "malloc"),
            ("torch::unwind::unwind()", "torch::unwind::unwind"),
            ("void f<int, g<2> >(int (*)(char))", "f"),
            (
                "at::Tensor c10::Dispatcher::redispatch<at::Tensor, long>(c10::TypedOperatorHandle<at::Tensor (long)> const&) const",
                "c10::Dispatcher::redispatch",
            ),
            (
                "at::(anonymous namespace)::(anonymous namespace)::wrapper_CUDA_memory_format_empty(c10::ArrayRef<c10::SymInt>)",
                "at::wrapper_CUDA_memory_format_empty",
            ),
            ("a::f(int)::{lambda()#1}::operator()() const", "a::f"),
            ("cfunction_call.lto_priv.0", "cfunction_call"),
            (
                "_PyEval_EvalFrameDefault [clone .cold]",
                "_PyEval_EvalFrameDefault",
            ),
            ("a::operator()(int)", "a::operator()"),
            ("a::operator->()", "a::operator->"),
            ("std::vector<int>::push_back(int)", "std::vector::push_back"),
            ("a<b<c> >::f<d>(e)", "a::f"),
            ("operator new(unsigned long)", "operator new"),
            ("a::operator<(a const&, a const&)", "a::operator<"),
            ("", ""),
        ] {
            assert_eq!(bare(demangled), name, "{demangled}");
        }
    }

    #[test]
    fn an_operation_and_a_step_of_the_backward_pass_tell_more_than_what_leads_to_them() {
        let of = |demangled| {
            let function = Function::new(demangled, &[]);
            (function.owner, function.name)
        };
        let telling = |name: &str| (Owner::Native, name.to_owned());
        assert_eq!(
            of(
                "torch::autograd::VariableType::(anonymous namespace)::bmm(c10::DispatchKeySet, at::Tensor const&)"
            ),
            telling("VariableType::bmm")
        );
        assert_eq!(
            of("torch::autograd::generated::KthvalueBackward0::apply(std::vector<at::Tensor>&&)"),
            telling("KthvalueBackward0")
        );
        assert_eq!(
            of("torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)"),
            telling("AccumulateGrad")
        );
        assert_eq!(of("flash::mha_fwd(int)"), telling("flash::mha_fwd"));
        assert_eq!(of("c10d::Reducer::f()").0, Owner::Native);
        for (owner, demangled) in [
            (
                Owner::Unwinder,
                "torch::CapturedTraceback::gather(bool, bool, bool)",
            ),
            (
                Owner::Unwinder,
                "torch::cuda::(anonymous namespace)::gather_with_cpp()",
            ),
            (
                Owner::Machinery,
                "c10::impl::wrap_kernel_functor_unboxed_<torch::autograd::VariableType::bmm>::call()",
            ),
            (
                Owner::Machinery,
                "at::_ops::empty_memory_format::redispatch(c10::DispatchKeySet)",
            ),
            (
                Owner::Machinery,
                "torch::autograd::Engine::evaluate_function(int)",
            ),
            (Owner::Machinery, "torch::autograd::PyNode::apply(int)"),
            (Owner::Machinery, "_start"),
            (Owner::Machinery, "__libc_start_call_main"),
            (Owner::Operator, "at::native::matmul(at::Tensor const&)"),
            (Owner::Operator, "at::_ops::bmm::call(at::Tensor const&)"),
        ] {
            assert_eq!(of(demangled).0, owner, "{demangled}");
        }
        assert_eq!(
            Function::new("flash::f()", &["flash".to_owned()]).owner,
            Owner::Machinery
        );
    }
}
