//! The code of README.md that rustdoc does not compile, since it is for another crate, whose functions this file states.

use std::{error::Error, ffi::c_void};

use binpool::PooledBuffer;
use binpool_opencl::OpenClBackend;

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_code_of_the_readme_is_compiled_here() {
    let source = include_str!("readme.rs");
    let (_, example) = source.split_once("// The example begins.\n").unwrap();
    let (example, _) = example.split_once("// The example ends.\n").unwrap();
    let readme = include_str!("../../README.md");
    let blocks = readme.split("```rust,ignore\n").skip(1);
    let blocks: Vec<String> = blocks
        .map(|block| words(block.split_once("```").unwrap().0))
        .collect();
    assert_eq!(blocks, [words(example)]);
}

/// As in the crate `ocl`.
#[allow(dead_code, reason = "it is used by what is compiled only")]
mod ocl {
    pub(super) mod core {
        use std::ffi::c_void;

        pub(in super::super) struct Mem;

        impl Mem {
            /// # Safety
            ///
            /// It is memory.
            pub(in super::super) unsafe fn from_raw_copied_ptr(_: *mut c_void) -> Self {
                Self
            }
        }
    }
}

/// A context, a device, a queue or a buffer of `ocl`.
#[allow(dead_code, reason = "it is used by what is compiled only")]
struct Object(*mut c_void);

#[allow(dead_code, reason = "it is used by what is compiled only")]
impl Object {
    fn as_core(&self) -> &Self {
        self
    }

    fn as_ptr(&self) -> *mut c_void {
        self.0
    }

    fn as_raw(&self) -> *mut c_void {
        self.0
    }
}

#[rustfmt::skip]
#[allow(
    dead_code,
    unused_variables,
    clippy::needless_pass_by_value,
    reason = "it is compiled as it is printed, and is not run"
)]
fn with_ocl(
    [ocl_context, ocl_device, ocl_queue, ocl_buffer]: [Object; 4], block: PooledBuffer<OpenClBackend>,
) -> Result<(), Box<dyn Error>> {
    // The example begins.
    // In. Each is retained; `ocl` keeps its own.
    let (context, device) = (ocl_context.as_core().as_ptr(), ocl_device.as_core().as_raw());
    // SAFETY: they live.
    let backend = unsafe { OpenClBackend::from_raw(context.cast(), device.cast()) }?;
    // SAFETY: it lives, and is of the context.
    let queue = unsafe { backend.wrap_raw_queue(ocl_queue.as_core().as_ptr().cast()) }?;
    // SAFETY: it lives, and is of the context.
    let memory = unsafe { backend.wrap_raw_memory(ocl_buffer.as_core().as_ptr().cast(), true) }?;

    // Out. `from_raw_copied_ptr` retains.
    let lent = backend.lend(&queue, &[&block])?;
    // SAFETY: it is memory, which lives.
    let ocl_mem = unsafe { ocl::core::Mem::from_raw_copied_ptr(lent[0].kernel_argument()?.cast()) };
    // Set it as an argument, and enqueue the kernel, here.
    lent.end()?;
    // The example ends.
    Ok(())
}
