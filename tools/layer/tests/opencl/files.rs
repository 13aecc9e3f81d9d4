//! The file of a recording, whatever the program has of files.

use std::fs::File;

use crate::{child::recorded, driver::Device};

/// Makes two lines of some 25 bytes for each of `count` buffers, of 1 byte, 2 bytes and so on.
fn write_much(device: Device, count: usize) {
    for bytes in 1..=count {
        device.touch(bytes);
    }
}

/// Sets the most of a resource that this process may have.
fn limit(resource: libc::__rlimit_resource_t, most: libc::rlim_t) {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    let set = unsafe { libc::setrlimit(resource, &raw const limit) };
    assert_eq!(set, 0);
}

#[test]
fn a_recording_of_more_than_three_mib_is_whole() {
    let ran = recorded(|| write_much(Device::load(), 70_000));
    if let Some(ran) = ran {
        let recording = ran.recording();
        assert!(recording.bytes() > 3 << 20);
        assert!(recording.sizes().into_iter().eq(1..=70_000));
        assert_eq!(recording.count("f "), 70_000);
    }
}

#[test]
fn a_recording_as_large_as_a_file_may_be_ends_and_says_so() {
    const MOST: u64 = 3 << 20;
    let ran = recorded(|| {
        limit(libc::RLIMIT_FSIZE, MOST);
        write_much(Device::load(), 80_000);
    });
    if let Some(ran) = ran {
        let said: Vec<&str> = ran.errors.lines().collect();
        assert!(
            said.len() == 1 && said[0].contains("the program goes on without it"),
            "{said:?}"
        );
        let text = ran.file("out.trace");
        let lines = text.trim_end_matches('\0');
        assert!(lines.len() as u64 > MOST - 100, "{}", lines.len());
        assert!(lines.ends_with('\n'), "the last line is whole");
    }
}

#[test]
fn a_program_with_as_many_open_files_as_it_may_have_is_recorded_on_later() {
    let ran = recorded(|| {
        let device = Device::load();
        device.touch(1);
        limit(libc::RLIMIT_NOFILE, 64);
        let files: Vec<File> = std::iter::repeat_with(|| File::open("/dev/null"))
            .map_while(Result::ok)
            .collect();
        // More than was mapped before.
        write_much(device, 25_000);
        let buffer = device.create(30_000);
        drop(files);
        device.release(buffer);
    });
    if let Some(ran) = ran {
        assert_eq!(ran.errors, "");
        let recording = ran.recording();
        let expected = [1].into_iter().chain(1..=25_000).chain([30_000]);
        assert!(recording.bytes() > 1 << 20);
        assert!(recording.sizes().into_iter().eq(expected));
    }
}
