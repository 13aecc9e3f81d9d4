//! Reports of programs whose framework has an allocator of its own.

use std::fmt::Write;

use binpool_recordings::Trace;
use binpool_replay::report::memory_report;

const MIB: u64 = 1 << 20;

fn report_of(header: &str, lines: &str) -> String {
    let text = format!(
        "h version 3\nh program python3\nh source a program on CUDA\n{header}p allocator 0 1 PyTorch's caching allocator\n\
         g 0 /home/me/train.py:3 in step (tensor, context 1)\n{lines}"
    );
    memory_report(&Trace::parse("out.trace", text.as_bytes()).unwrap())
}

/// Two large blocks in segments of their own, which are never free at once.
fn apart() -> String {
    let mut lines = String::new();
    for (number, mib) in (0..).zip([30, 32, 34, 36]) {
        let (address, bytes) = ((100 + 100 * number) * MIB, mib * MIB);
        let _ = write!(
            lines,
            "s {address} {bytes} 1\na {address} {bytes} 0 1 0\nf {address} 1\n"
        );
    }
    lines
}

#[test]
fn what_is_reserved_is_beside_what_is_live_and_beside_what_binpool_would_reserve() {
    let report = report_of("", &apart());
    assert!(
        report.contains("peak of live memory: 36.0 MiB in 1 block,"),
        "{report}"
    );
    assert!(
        report.contains(
            "reserved by PyTorch's caching allocator: 132.0 MiB, 3.67 times that, in 4 segments: 1 of 36.0 MiB, 1 of 34.0 MiB, \
             1 of 32.0 MiB, 1 of 30.0 MiB"
        ),
        "{report}"
    );
    let cure = "with binpool in its place, 36.0 MiB would be reserved, 96.0 MiB less: `binpool run --pool` runs the program so";
    assert!(report.ends_with(cure), "{report}");
}

#[test]
fn a_pool_is_not_advised_where_it_would_reserve_no_less_or_is_there() {
    let report = report_of(
        "",
        &format!(
            "s {} {} 1\na {} {} 0 1 0\n",
            20 * MIB,
            2 * MIB,
            20 * MIB,
            2 * MIB
        ),
    );
    assert!(
        report.ends_with("binpool in its place would reserve no less: 2.0 MiB"),
        "{report}"
    );
    let pooled = report_of("h pooled yes\n", &apart());
    assert!(
        !pooled.contains("in its place") && !pooled.contains("reserved by"),
        "{pooled}"
    );
}

#[test]
fn live_memory_is_what_pytorch_counts() {
    // A block takes more than was requested, and one that only another stream uses counts no more.
    let report = report_of(
        "",
        "s 20971520 2097152 1\na 20971520 1500000 0 1 0\nw 81920 2\ns 41943040 2097152 3\na 41943040 100 0 3 0\nf 20971520 4\n",
    );
    assert!(
        report.contains("peak of live memory: 2.0 MiB in 1 block,"),
        "{report}"
    );
    assert!(
        report.contains("never released: 1 block, 512 B"),
        "{report}"
    );
}

#[test]
fn a_pool_is_not_advised_for_segments_that_a_framework_divides() {
    let mut lines = String::new();
    for number in 0..10 {
        let _ = writeln!(lines, "a {number} 4096 0 1 0\nf {number} 1");
    }
    let header =
        "h version 3\nh source a program on CUDA\ng 0 train.py:3 in step (device, context 1)\n";
    let report = |text: &str| memory_report(&Trace::parse("t", text.as_bytes()).unwrap());
    assert!(report(&format!("{header}{lines}")).contains("with a pool, the driver would be asked"));
    let divided = report(&format!("{header}p divided 0 0 PyTorch\n{lines}"));
    assert!(
        divided.ends_with("a pool below it would save nothing"),
        "{divided}"
    );
}

#[test]
fn a_pool_is_advised_for_what_it_would_serve() {
    let header = "h version 3\nh source a program on OpenCL\ng 0 a.py:3 in f (unified device memory, context 1)\ng 1 a.py:4 in g (buffer, context 1)\n";
    let pairs = |group: u32| -> String {
        let pair = |number| format!("a {number} 4096 0 1 {group}\nf {number} 1\n");
        (100 * group..100 * group + 10).map(pair).collect()
    };
    let report = |lines: &str| {
        memory_report(&Trace::parse("t", format!("{header}{lines}").as_bytes()).unwrap())
    };
    assert!(!report(&pairs(0)).contains("with a pool"));
    assert!(report(&(pairs(0) + &pairs(1))).contains("asked for memory 1 time instead of 10"));
}
