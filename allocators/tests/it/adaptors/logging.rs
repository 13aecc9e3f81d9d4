//! `Logging`.

use binpool_allocators::{Allocator, adaptors::Logging};
use binpool_mock::{CallKind, Fault, Persistence};
use tracing_subscriber::filter::LevelFilter;

use crate::adaptors::{device, log::logged, odd::Odd};

#[test]
fn calls_are_told_at_debug_and_failures_at_warn() {
    let device = device();
    let logging = Logging::new(Odd::generous(&device), "weights");
    assert_eq!(logging.name(), "weights");
    let program = || {
        let block = logging.allocate(100).unwrap();
        logging.release(block, &[]).unwrap();
        assert!(logging.allocate(0).is_err());
        let block = logging.clone().allocate(2000).unwrap();
        device.fail_nth(CallKind::Release, 1, Fault::Backend(-5), Persistence::Once);
        assert!(logging.release(block, &[]).is_err());
    };
    let expected: [(&str, &[&str]); 5] = [
        ("DEBUG", &["allocated", "bytes=100", "given=1024"]),
        ("DEBUG", &["released", "bytes=1024"]),
        (
            "WARN",
            &[
                "not allocated",
                "bytes=0",
                "error=invalid request: a block of 0 bytes",
            ],
        ),
        ("DEBUG", &["allocated", "bytes=2000", "given=2048"]),
        (
            "WARN",
            &[
                "not released",
                "bytes=2048",
                "error=release failed with code -5",
            ],
        ),
    ];
    let lines = logged(LevelFilter::DEBUG, program);
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, (level, parts)) in lines.iter().zip(expected) {
        assert!(line.contains(level), "{line}");
        for part in parts.iter().chain(&["allocator=\"weights\"", " time="]) {
            assert!(line.contains(part), "{part:?} is not in {line}");
        }
    }
    let failures = logged(LevelFilter::WARN, program);
    assert_eq!(failures.len(), 2, "{failures:?}");
}
