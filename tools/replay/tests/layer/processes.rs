//! Processes: how they end, what they open and close, and their children.

use std::{fs::File, io::Write as _, process::Command};

use opencl_sys::*;

use crate::{
    rig::say,
    runs::{rule, rule_that_fails, under},
};

#[test]
fn a_program_may_close_all_files_and_open_its_own() {
    rule(|rig| {
        let first = rig.buffer(1024);
        rig.release(first);
        let kept = rig.file_number();
        for number in 3..200 {
            if number != kept {
                // SAFETY: that is what programs do that become a daemon.
                unsafe { libc::close(number) };
            }
        }
        let mut files = Vec::new();
        for number in 0..8 {
            let mut file = File::create(format!("own-{number}")).unwrap();
            file.write_all(b"what the program writes").unwrap();
            files.push(file);
        }
        // Enough lines for another window of the recording.
        for size in 1..12_000 {
            let buffer = rig.buffer(size % 7 + 1);
            rig.release(buffer);
        }
        say!(rig, "{}", files.len());
        std::process::exit(0);
    });
}

#[test]
fn a_program_whose_files_must_be_small_is_not_ended_by_a_large_recording() {
    let runs = rule_that_fails(|rig| {
        let limit = libc::rlimit {
            rlim_cur: 4096,
            rlim_max: 4096,
        };
        // SAFETY: the place is a limit.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
        let buffer = rig.buffer(1024);
        rig.fill(rig.queue, buffer, 1, 1024);
        say!(rig, "{set} {:?}", rig.read(rig.queue, buffer, 2));
    });
    if let Some(runs) = runs {
        assert!(
            runs.recorded
                .errors
                .contains("could not make the recording"),
            "{}",
            runs.recorded.errors
        );
    }
}

#[test]
fn a_program_that_ends_without_releasing_anything_ends_as_it_would() {
    let runs = rule(|rig| {
        let buffers: Vec<cl_mem> = (1..9).map(|size| rig.buffer(size * 100)).collect();
        rig.fill(rig.queue, buffers[0], 1, 100);
        rig.release(buffers[1]);
        say!(rig, "{:?}", rig.read(rig.queue, buffers[0], 2));
        std::process::exit(7);
    });
    if let Some(runs) = runs {
        for run in [&runs.recorded, &runs.pooled] {
            assert_eq!((run.count("a "), run.count("f ")), (8, 1));
            assert!(
                run.calls("clCreateBuffer") > 0,
                "the totals of the calls are there"
            );
        }
    }
}

#[test]
fn a_program_that_is_ended_by_a_signal_leaves_its_recording() {
    let runs = rule(|rig| {
        let buffer = rig.buffer(100);
        rig.fill(rig.queue, buffer, 1, 100);
        say!(rig, "{:?}", rig.read(rig.queue, buffer, 2));
        // SAFETY: the program ends itself.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    });
    if let Some(runs) = runs {
        for run in [&runs.recorded, &runs.pooled] {
            assert_eq!((run.count("a 1 100 "), run.count("u 1 1")), (1, 1));
        }
    }
}

#[test]
fn a_program_with_a_pool_says_so_to_the_command_and_in_its_recording() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pooled");
    let runs = under(&[("BINPOOL_POOLED", path.to_str().unwrap())], |rig| {
        let buffer = rig.buffer(100);
        rig.release(buffer);
    });
    if let Some((recorded, pooled)) = runs {
        assert_eq!(std::fs::read(path).unwrap(), b"");
        assert_eq!(recorded.count("h pooled"), 0);
        assert_eq!(pooled.count("h pooled yes"), 1);
    }
}

#[test]
fn a_child_that_never_uses_a_device_has_no_recording() {
    let runs = rule(|rig| {
        let buffer = rig.buffer(100);
        rig.fill(rig.queue, buffer, 1, 100);
        rig.finish(rig.queue);
        // SAFETY: the child calls what a child of several threads may.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(5) };
        }
        let mut status = 0;
        // SAFETY: the place is one for a status.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        say!(rig, "{} {}", ended == child, libc::WEXITSTATUS(status));
        let status = Command::new("sh").args(["-c", "exit 3"]).status().unwrap();
        say!(
            rig,
            "{:?} {:?}",
            status.code(),
            rig.read(rig.queue, buffer, 2)
        );
        rig.release(buffer);
    });
    if let Some(runs) = runs {
        assert_eq!((runs.recorded.processes(), runs.pooled.processes()), (1, 1));
    }
}

#[test]
fn a_child_that_ends_as_a_program_does_leaves_the_recording_of_its_parent_alone() {
    let runs = rule(|rig| {
        let buffer = rig.buffer(100);
        rig.release(buffer);
        // SAFETY: this thread is the only one that the child needs.
        let child = unsafe { libc::fork() };
        if child == 0 {
            std::process::exit(6);
        }
        let mut status = 0;
        // SAFETY: the place is one for a status.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        say!(rig, "{}", libc::WEXITSTATUS(status));
        for size in 1..50 {
            let buffer = rig.buffer(size);
            rig.release(buffer);
        }
    });
    if let Some(runs) = runs {
        for run in [&runs.recorded, &runs.pooled] {
            assert_eq!(
                (run.count("a "), run.count("f "), run.processes()),
                (50, 50, 1)
            );
        }
    }
}

#[test]
fn a_child_that_is_another_program_has_its_own_recording() {
    let runs = rule(|rig| {
        let buffer = rig.buffer(100);
        rig.release(buffer);
        if std::env::var_os("BINPOOL_RULE_IS_CHILD").is_none() {
            let own = std::env::args().skip(1);
            let status = Command::new(std::env::current_exe().unwrap())
                .args(own)
                .env("BINPOOL_RULE_IS_CHILD", "1")
                .env("BINPOOL_RULE", "transcript-of-the-child")
                .stdout(std::process::Stdio::null())
                .status()
                .unwrap();
            say!(rig, "{:?}", status.code());
        }
        say!(rig, "done");
    });
    if let Some(runs) = runs {
        assert_eq!((runs.recorded.processes(), runs.pooled.processes()), (2, 2));
    }
}

#[test]
fn a_program_without_standard_files_is_not_disturbed() {
    rule_that_fails(|rig| {
        for number in 0..3 {
            // SAFETY: that is what programs do that become a daemon.
            unsafe { libc::close(number) };
        }
        // The first file that is opened now is standard output, by its number.
        let mut own = File::create("own").unwrap();
        let buffer = rig.buffer(64);
        rig.release(buffer);
        own.write_all(b"the program's").unwrap();
        say!(rig, "{}", std::os::fd::AsRawFd::as_raw_fd(&own));
        drop(own);
        std::process::exit(0);
    });
}
