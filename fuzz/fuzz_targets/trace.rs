//! The trace parser: any bytes give a trace or an error, and a trace survives being written and read again.
#![no_main]

use binpool_replay::Trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(trace) = Trace::parse("fuzz", bytes) {
        let written = trace.to_string();
        let again = Trace::parse("fuzz", written.as_bytes()).expect("a written trace can be read");
        assert_eq!(trace.events(), again.events());
    }
});
