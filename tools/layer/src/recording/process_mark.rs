//! A mark that tells a process from its forked children.

use std::io;

use memmap2::MmapMut;

/// A mark that a forked child does not have, even if the fork calls no functions of `pthread_atfork`.
#[derive(Debug)]
pub(crate) struct ProcessMark(MmapMut);

impl ProcessMark {
    /// Marks this process.
    pub(crate) fn new() -> io::Result<Self> {
        let mut page = MmapMut::map_anon(1)?;
        // SAFETY: the advice is about this page alone.
        if unsafe { libc::madvise(page.as_mut_ptr().cast(), 1, libc::MADV_WIPEONFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        page[0] = 1;
        Ok(Self(page))
    }

    /// Returns whether this process was marked, and not its parent.
    pub(crate) fn is_of_this_process(&self) -> bool {
        // SAFETY: a byte of the page. Volatile, since a fork changes it.
        unsafe { self.0.as_ptr().read_volatile() == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_no_function_is_told_of_has_no_mark() {
        let mark = ProcessMark::new().unwrap();
        assert!(mark.is_of_this_process());
        // SAFETY: the child only looks at the mark, and ends.
        let child = unsafe { libc::syscall(libc::SYS_fork) };
        if child == 0 {
            // SAFETY: nothing of the parent is to be done.
            unsafe { libc::_exit(i32::from(mark.is_of_this_process())) };
        }
        let mut status = -1;
        // SAFETY: the child of this test.
        unsafe { libc::waitpid(i32::try_from(child).unwrap(), &raw mut status, 0) };
        assert_eq!(libc::WEXITSTATUS(status), 0);
    }
}
