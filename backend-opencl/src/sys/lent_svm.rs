//! Memory that the host lends to the device for a call, as shared virtual memory.

use std::sync::Arc;

use binpool_allocators::Align;

use super::{ClResult, ContextHandle, SvmAllocation, buffer::Gone, svm::LentSvm};

/// Makes a block of `bytes` and passes it to `run`. Returns, even by a panic, only when the block has been dropped, which
/// is after the commands that use it have ended (rule 1 of `sys`). So `bytes` is borrowed exclusively as long as any
/// command uses it.
///
/// # Errors
///
/// A failure of the runtime: `run` was not called.
pub(crate) fn with_block_over<R>(
    context: &ContextHandle,
    bytes: &mut [u8],
    alignment: Align,
    run: impl FnOnce(SvmAllocation) -> R,
) -> ClResult<R> {
    struct Wait(Arc<Gone>);
    impl Drop for Wait {
        fn drop(&mut self) {
            self.0.wait();
        }
    }

    let gone = Arc::<Gone>::default();
    let lent = LentSvm(Arc::clone(&gone));
    let block = SvmAllocation::of_lent(context, bytes, alignment, lent)?;
    let _wait = Wait(gone);
    Ok(run(block))
}
