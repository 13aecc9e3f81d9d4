//! Other tools' recordings: any bytes after the beginning of a pickle, of JSON or of a table give a trace or an error that names
//! its place, in little memory; and a trace that was imported is one that can be written and read again.
#![no_main]

use binpool_recordings::Trace;
use libfuzzer_sys::fuzz_target;

const NAME: &str = "fuzz";

fuzz_target!(|bytes: &[u8]| {
    match Trace::read(NAME, bytes, None) {
        Ok(trace) => {
            let written = trace.to_string();
            let again = Trace::parse(NAME, written.as_bytes()).expect("a trace can be read");
            assert_eq!(trace.events(), again.events());
            assert_eq!(trace.groups(), again.groups());
            assert_eq!(trace.shortages(), again.shortages());
            assert_eq!(trace.streams(), again.streams());
            assert!(
                (0..=trace.events().len()).all(|index| trace.describe(index).starts_with(NAME))
            );
        }
        Err(error) => {
            let message = error.to_string();
            assert!(
                message.starts_with(NAME) && message.len() > NAME.len() + 2,
                "{message}"
            );
        }
    }
});
