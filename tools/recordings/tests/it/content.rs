//! The content of a file that is large, or whose reading fails.

use std::{
    error::Error as _,
    io::{self, Read, Write as _},
};

use binpool_recordings::{Content, Trace};
use binpool_trace::TraceErrorKind;
use flate2::{Compression, write::GzEncoder};

/// Where more than this is expanded, the limits hold.
const ALWAYS: usize = 16 << 20;

const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream\n";
const LINE: &str = "1,14:21:19.998533,allocate,0x30a000000,1048576,0x2\n";

/// A reader that fails.
struct Failing(io::ErrorKind);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(self.0.into())
    }
}

/// The kind of the error of reading a recording that fails after these bytes, so that no more can be read.
fn kind_of_failure(bytes: &[u8], kind: io::ErrorKind) -> Option<TraceErrorKind> {
    let error = Trace::read("t", bytes.chain(Failing(kind)), None).err();
    error.map(|error| error.kind())
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns how many bytes of a compressed file can be read that may expand to `times` its size, and whether that is all of them.
fn expanded(file: &[u8], times: u64) -> (usize, bool) {
    let mut content = Content::new(file).unwrap().expanding_at_most(times);
    let mut read = Vec::new();
    let is_all = content.read_to_end(&mut read).is_ok();
    (read.len(), is_all)
}

#[test]
fn a_file_expands_to_16_mib_whatever_its_size_and_further_as_far_as_its_size_warrants() {
    assert_eq!(expanded(&compressed(&vec![0; ALWAYS]), 1), (ALWAYS, true));
    let (read, is_all) = expanded(&compressed(&vec![0; 2 * ALWAYS]), 1);
    assert!(
        !is_all && (ALWAYS - (1 << 16)..=ALWAYS).contains(&read),
        "{read}"
    );
    // Four random bits in each byte.
    let random =
        (0..ALWAYS as u64 + 1000).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as u8);
    let bytes: Vec<u8> = random.collect();
    let file = compressed(&bytes);
    assert_eq!(expanded(&file, 1 << 10), (bytes.len(), true));
}

#[test]
fn what_expands_too_far_is_not_called_anything_else() {
    let profile = [b"{\"traceEvents\": [", &vec![b' '; 2 * ALWAYS][..]].concat();
    let error = Trace::read("t", &*compressed(&profile), None).unwrap_err();
    assert_eq!(error.kind(), TraceErrorKind::Io);
    let why = error.source().unwrap().to_string();
    assert!(why.contains("expands to more than 100 times"), "{why}");
}

#[test]
fn a_content_whose_first_byte_cannot_be_read_is_none() {
    for kind in [
        io::ErrorKind::UnexpectedEof,
        io::ErrorKind::PermissionDenied,
    ] {
        assert_eq!(Content::new(Failing(kind)).unwrap_err().kind(), kind);
        let mut content = Content::new(b"abc".chain(Failing(kind))).unwrap();
        let mut read = Vec::new();
        assert_eq!(content.read_to_end(&mut read).unwrap_err().kind(), kind);
        assert_eq!(read, b"abc");
    }
}

#[test]
fn a_recording_that_cannot_be_read_further_is_not_taken_for_a_damaged_one() {
    let other = io::ErrorKind::PermissionDenied;
    let log = format!("{HEADER}{LINE}");
    for recording in [
        &b"{\"device_traces\": ["[..],
        b"\x80\x04X\x05\0\0\0ab",
        b"\x80\x04",
        log.as_bytes(),
        b"a 0 8 0\n",
    ] {
        assert_eq!(kind_of_failure(recording, other), Some(TraceErrorKind::Io));
    }
    // A log that was cut has what came before.
    let cut = io::ErrorKind::UnexpectedEof;
    assert_eq!(kind_of_failure(log.as_bytes(), cut), None);
    assert_eq!(
        kind_of_failure(HEADER.as_bytes(), cut),
        Some(TraceErrorKind::Io)
    );
}

#[test]
fn only_a_dictionary_in_braces_is_an_object_of_json() {
    for (text, is_json) in [
        ("{}", true),
        (" \n{\"a\": 1}", true),
        ("[{}]", false),
        ("a 0 8 0", false),
        ("", false),
    ] {
        assert_eq!(
            Content::new(text.as_bytes()).unwrap().is_json(),
            is_json,
            "{text}"
        );
    }
}

#[test]
fn a_file_of_several_compressed_parts_has_the_content_of_all() {
    let parts = [HEADER, LINE, LINE].map(|part| compressed(part.as_bytes()));
    let mut read = String::new();
    let file = parts.concat();
    let mut content = Content::new(&file[..]).unwrap();
    content.read_to_string(&mut read).unwrap();
    assert_eq!(read, [HEADER, LINE, LINE].concat());
}
