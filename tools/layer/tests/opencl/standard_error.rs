//! What standard error may be when the layer has something to say there.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Write as _},
    os::fd::AsRawFd,
};

use crate::{child::with_a_fault, driver::Device};

/// Makes a file standard error.
fn become_standard_error(file: &impl AsRawFd) {
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 2) }, 2);
}

fn set_flags(file: &impl AsRawFd, flags: i32) {
    let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) };
    assert_eq!(set, 0);
}

#[test]
fn a_fault_is_said_once_on_standard_error() {
    let ran = with_a_fault(|| {
        let device = Device::load();
        for _ in 0..3 {
            device.touch(1);
        }
    });
    if let Some(ran) = ran {
        let said: Vec<&str> = ran.errors.lines().collect();
        assert!(
            said.len() == 1 && said[0].starts_with("binpool: could not make the recording"),
            "{said:?}"
        );
    }
}

#[test]
fn a_pipe_that_was_closed_by_its_reader_does_not_end_the_program() {
    with_a_fault(|| {
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let (reader, writer) = std::io::pipe().unwrap();
        become_standard_error(&writer);
        drop(reader);
        Device::load().touch(1);
    });
}

#[test]
fn a_pipe_that_is_full_does_not_hold_the_program_up() {
    with_a_fault(|| {
        let (_reader, mut writer) = std::io::pipe().unwrap();
        set_flags(&writer, libc::O_NONBLOCK);
        let full = std::iter::repeat_with(|| writer.write(&[0; 4096])).find_map(Result::err);
        assert_eq!(full.unwrap().kind(), ErrorKind::WouldBlock);
        set_flags(&writer, 0);
        become_standard_error(&writer);
        Device::load().touch(1);
    });
}

#[test]
fn a_full_disk_does_not_end_the_program() {
    with_a_fault(|| {
        become_standard_error(&OpenOptions::new().write(true).open("/dev/full").unwrap());
        Device::load().touch(1);
    });
}

#[test]
fn a_file_of_the_program_that_has_the_number_of_standard_error_is_not_written() {
    let ran = with_a_fault(|| {
        let device = Device::load();
        unsafe { libc::close(2) };
        let mut own = File::create("own").unwrap();
        assert_eq!(own.as_raw_fd(), 2);
        own.write_all(b"what the program writes").unwrap();
        device.touch(1);
    });
    if let Some(ran) = ran {
        assert_eq!(ran.file("own"), "what the program writes");
    }
}
