//! A child of a fork lacks its parent's threads, and waits for none of them.

#![expect(unsafe_code, reason = "a fork is a system call")]

use std::{env, io, process::Command, time::Duration};

use binpool_mock::MockDevice;

use crate::common::Rig;

const IS_ALONE: &str = "BINPOOL_TEST_FORK";

/// Runs this module's test of this name again, in a process without other threads that use memory, and there `run`.
fn in_its_own_process(name: &str, run: fn()) {
    if env::var_os(IS_ALONE).is_some() {
        return run();
    }
    let alone = Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("forks::{name}"), "--nocapture"])
        .env(IS_ALONE, "1")
        .output()
        .unwrap();
    let [told, failures] = [&alone.stdout, &alone.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(alone.status.success(), "{told}\n{failures}");
    assert!(told.contains("1 passed"), "{told}");
}

/// Forks, and runs `run` in the child, which is ended by a signal if it hangs.
fn in_a_child(run: impl FnOnce()) {
    // SAFETY: the child uses nothing that another thread of this process may have locked.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it ends this process after two minutes.
        unsafe { libc::alarm(120) };
        run();
        // SAFETY: nothing of the parent is to be done.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: the child of this test.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child hangs, or has panicked");
}

#[test]
fn a_child_of_a_recorded_process_records_nothing_and_waits_for_no_writer() {
    in_its_own_process(
        "a_child_of_a_recorded_process_records_nothing_and_waits_for_no_writer",
        || {
            let rig = Rig::on(MockDevice::builder());
            drop(rig.pool.allocate(4096).unwrap());
            let recording = rig.pool.record(io::sink()).unwrap();
            drop(rig.pool.allocate(4096).unwrap());
            let mut of_both = Some(recording);
            in_a_child(|| {
                // A million events is what may wait for the writer.
                for _ in 0..600_000 {
                    drop(rig.pool.allocate(4096).unwrap());
                }
                let error = of_both.take().unwrap().finish().unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::Deadlock);
                drop(rig.pool.allocate(4096).unwrap());
            });
            let written = of_both.unwrap().finish().unwrap();
            assert_eq!((written.allocations, written.frees), (1, 1));
        },
    );
}

#[test]
fn a_child_of_a_process_that_sweeps_does_not_wait_for_the_sweeper() {
    in_its_own_process(
        "a_child_of_a_process_that_sweeps_does_not_wait_for_the_sweeper",
        || {
            let rig = Rig::on(MockDevice::builder());
            let sweeper = rig.pool.sweep_in_background(Duration::from_secs(600));
            let mut of_both = Some(sweeper.unwrap());
            in_a_child(|| drop(of_both.take()));
            drop(of_both);
        },
    );
}
