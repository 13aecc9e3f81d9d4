//! Stacks that a program makes for itself, as coroutines and `stacker` do.

use std::{arch::global_asm, ptr};

use crate::{child::recorded, driver::Device};

// Calls a function on another stack. By the tables, the caller of that is the stack that it came from.
global_asm!(
    "
    .globl binpool_test_on_stack
    .type binpool_test_on_stack,@function
binpool_test_on_stack:
    .cfi_startproc
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp,-16
    movq %rsp,%rbp
    .cfi_def_cfa_register %rbp
    movq %rdi,%rsp
    movq %rdx,%rdi
    callq *%rsi
    movq %rbp,%rsp
    popq %rbp
    .cfi_def_cfa %rsp,8
    ret
    .cfi_endproc
    .size binpool_test_on_stack,.-binpool_test_on_stack
    ",
    options(att_syntax)
);

type Function = extern "C" fn(&Program);

unsafe extern "C" {
    #[allow(improper_ctypes, reason = "the function is one of Rust")]
    fn binpool_test_on_stack(top: *mut u8, function: Function, program: &Program);
}

const BYTES: usize = 1 << 16;

struct Program {
    device: Device,
    /// The end of the stack that makes the request.
    inner: *mut u8,
}

/// Makes stacks, and returns their beginning.
fn stacks(count: usize) -> *mut u8 {
    let (access, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    let begin = unsafe { libc::mmap(ptr::null_mut(), count * BYTES, access, kind, -1, 0) };
    assert_ne!(begin, libc::MAP_FAILED);
    begin.cast()
}

extern "C" fn request(program: &Program) {
    program.device.touch(1);
}

extern "C" fn switch_and_request(program: &Program) {
    unsafe { binpool_test_on_stack(program.inner, request, program) };
}

#[test]
fn a_stack_that_was_entered_from_another_is_walked_after_that_was_unmapped() {
    let ran = recorded(|| {
        // One after the other, so that the frames are in the order of one stack.
        let inner = stacks(2).wrapping_add(BYTES);
        let outer = inner.wrapping_add(BYTES);
        let other = stacks(1).wrapping_add(BYTES);
        let program = Program {
            device: Device::load(),
            inner,
        };
        let enter_from = |outer| unsafe {
            binpool_test_on_stack(outer, switch_and_request, &program);
        };
        enter_from(outer);
        enter_from(outer);
        assert_eq!(unsafe { libc::munmap(inner.cast(), BYTES) }, 0);
        enter_from(other);
    });
    if let Some(ran) = ran {
        assert_eq!(ran.recording().sizes(), [1, 1, 1]);
    }
}
