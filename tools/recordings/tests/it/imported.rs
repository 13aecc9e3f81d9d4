//! What other tools' recordings become is what their programs did.

use binpool_recordings::{Content, Trace};
use binpool_trace::TraceErrorKind;
use proptest::prelude::*;
use serde_json::json;

use crate::recorders::{Form, History, Lives, PyTorch, Recorder, Rmm, Told, histories, history};

fn pytorch() -> impl Strategy<Value = PyTorch> {
    let form = prop_oneof![Just(Form::Json), Just(Form::Pickle)];
    (
        form,
        any::<bool>(),
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.3),
    )
        .prop_map(|(form, has_stacks, has_times, is_old)| PyTorch {
            form,
            has_stacks,
            has_times,
            is_old,
        })
}

fn rmm() -> impl Strategy<Value = Rmm> {
    const DAY: u64 = 24 * 3600 * 1_000_000;
    let begins = prop_oneof![0..DAY, DAY - 3_000_000..DAY];
    begins.prop_map(|begins| Rmm { begins })
}

/// What is read of a recording is what it has to say, of each device and of the one with the most live bytes.
fn assert_told(recorder: &impl Recorder, histories: &[History]) {
    let recording = recorder.write(histories);
    let histories = &histories[..recorder.devices(histories.len())];
    let has_entries = |history| recorder.tells(history).entries;
    let any_has = histories.iter().any(has_entries);
    let mut all = Vec::new();
    for (device, history) in histories.iter().enumerate() {
        let tells = recorder.tells(history);
        let trace = Trace::read("t", &*recording, Some(device));
        let Some(mut told) = Told::of(history, tells) else {
            assert_eq!(trace.unwrap_err().kind(), TraceErrorKind::NoAllocation);
            continue;
        };
        let trace = trace.unwrap();
        let mut read = Told::by(&trace);
        if !tells.is_exact {
            (read, told) = (read.without_places(), told.without_places());
        }
        read.assert_is(&told);
        if tells.entries || !any_has {
            all.push((device, trace));
        }
    }
    let text = |traces: &[(usize, Trace)]| -> Vec<(usize, String)> {
        let text = |(device, trace): &(usize, Trace)| (*device, trace.to_string());
        traces.iter().map(text).collect()
    };
    let traces = Trace::read_devices("t", Content::new(&*recording).unwrap());
    let one = Trace::read("t", &*recording, None);
    let Some(busiest) = all
        .iter()
        .rev()
        .max_by_key(|(_, trace)| trace.peak_live_bytes())
    else {
        let kinds = [traces.unwrap_err().kind(), one.unwrap_err().kind()];
        return assert_eq!(kinds, [TraceErrorKind::NoAllocation; 2]);
    };
    assert_eq!(text(&traces.unwrap()), text(&all));
    assert_eq!(one.unwrap().to_string(), busiest.1.to_string());
}

/// The entries of each address say which blocks there were, whatever else is missing.
fn assert_lives(recorder: &impl Recorder, history: &History) {
    let recording = recorder.write(std::slice::from_ref(history));
    let trace = Trace::read("t", &*recording, None);
    match Lives::of(history, recorder.tells(history)) {
        Some(lives) => assert_eq!(Lives::by(&trace.unwrap()), lives),
        None => assert_eq!(trace.unwrap_err().kind(), TraceErrorKind::NoAllocation),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_of_pytorch_is_what_its_allocator_did(recorder in pytorch(), histories in histories()) {
        assert_told(&recorder, &histories);
    }

    #[test]
    fn a_log_of_rmm_is_what_its_program_asked_for(recorder in rmm(), histories in histories()) {
        assert_told(&recorder, &histories);
    }

    #[test]
    fn a_recording_that_has_lost_entries_is_what_the_rest_says(
        (recorder, other) in (rmm(), pytorch()),
        history in history(),
        is_kept in prop::collection::vec(prop::bool::weighted(0.8), 1..50),
    ) {
        let history = history.keeping(&is_kept);
        assert_lives(&recorder, &history);
        if other.has_times {
            assert_lives(&other, &history);
        }
    }
}

const A: u64 = 0x1000_0000;
const MIB: u64 = 1 << 20;

/// The lines of a trace about what the pool had, of a snapshot of these actions, addresses and bytes.
fn pool_lines(entries: &[(&str, u64, u64)]) -> Vec<String> {
    let entries = entries.iter().zip(1..).map(|((action, address, bytes), time)| {
        json!({"action": action, "addr": address, "size": bytes, "stream": 0, "time_us": time})
    });
    let snapshot = json!({"device_traces": [entries.collect::<Vec<_>>()]});
    let trace = Trace::read("t", snapshot.to_string().as_bytes(), None).unwrap();
    let text = trace.to_string();
    let lines = text
        .lines()
        .filter(|line| line.starts_with(['s', 'S', 'b', 'w', 'a', 'f']));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_block_waits_for_other_streams_also_where_another_is_free_next() {
    let lines = pool_lines(&[
        ("segment_alloc", A, 2 * MIB),
        ("alloc", A, 1024),
        ("alloc", A + 1024, 1024),
        ("free_requested", A + 1024, 1024),
        ("free_requested", A, 1024),
        ("free_completed", A + 1024, 1024),
        ("free_completed", A, 1024),
    ]);
    let waits: Vec<&String> = lines.iter().filter(|line| line.starts_with('w')).collect();
    assert_eq!(waits, ["w 1048580 3000", "w 1048576 4000"]);
}

/// Where the end of the first one is missing.
#[test]
fn a_block_waits_also_where_another_is_allocated_at_its_address_next() {
    let lines = pool_lines(&[
        ("segment_alloc", A, 2 * MIB),
        ("alloc", A, 1024),
        ("free_requested", A, 1024),
        ("alloc", A, 1024),
        ("free_requested", A, 1024),
        ("free_completed", A, 1024),
    ]);
    let waits: Vec<&String> = lines.iter().filter(|line| line.starts_with('w')).collect();
    assert_eq!(waits, ["w 1048576 2000"]);
}

#[test]
fn a_block_has_a_place_in_memory_that_was_taken_again_at_the_same_address() {
    let lines = pool_lines(&[
        ("segment_alloc", A, 2 * MIB),
        ("alloc", A, 2 * MIB),
        ("free_requested", A, 2 * MIB),
        ("free_completed", A, 2 * MIB),
        ("segment_free", A, 2 * MIB),
        ("segment_alloc", A, 2 * MIB),
        ("alloc", A, 2 * MIB),
    ]);
    let once = [
        "s 268435456 2097152",
        "b 1048576 268435456 0 2097152",
        "a 268435456 2097152 0",
    ];
    let again = lines.iter().filter(|line| !line.starts_with(['f', 'S']));
    let without_times = again.map(|line| line.rsplit_once(' ').unwrap().0);
    assert!(
        without_times.eq(once.iter().chain(&once).copied()),
        "{lines:#?}"
    );
}
