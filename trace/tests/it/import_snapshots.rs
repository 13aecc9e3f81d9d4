//! Snapshots of PyTorch, and of tools that write them for its viewer, in the forms in which they are met.

use binpool_trace::{
    Content, Trace, TraceErrorKind,
    view::{History, Origin},
};
use serde_json::{Value, json};

const OLDER: &str = "(older than the recording)";
const WITHOUT_PYTHON: &str = "(backward pass?)";

fn read(snapshot: &Value) -> Trace {
    Trace::read("t", snapshot.to_string().as_bytes(), None).unwrap()
}

fn frame(file: &str, line: u64, function: &str) -> Value {
    json!({"filename": file, "line": line, "name": function})
}

fn alloc(address: u64, more: &Value) -> Value {
    let mut entry = json!({"action": "alloc", "addr": address, "size": 512, "stream": 0});
    let more = more.as_object().unwrap().clone();
    entry.as_object_mut().unwrap().extend(more);
    entry
}

fn segment(device: u64, address: u64, states: &[&str]) -> Value {
    let block = |(index, state): (usize, &&str)| {
        let frames = [frame("/home/ada/train.py", 1 + index as u64, "step")];
        json!({"address": address + index as u64 * 512, "size": 512, "requested_size": 500, "state": state, "frames": frames})
    };
    let blocks: Vec<Value> = states.iter().enumerate().map(block).collect();
    json!({"device": device, "address": address, "total_size": 2 << 20, "stream": 0, "blocks": blocks})
}

fn groups(trace: &Trace) -> Vec<Option<&str>> {
    (0..trace.allocations())
        .map(|block| trace.group_of(block))
        .collect()
}

/// What `torch.cuda.memory_snapshot()` returns.
#[test]
fn a_list_of_segments_is_what_is_live() {
    let segments = json!([
        segment(
            0,
            1 << 40,
            &["active_allocated", "inactive", "active_allocated"]
        ),
        segment(1, 1 << 41, &["active_allocated"]),
        segment(1, 1 << 42, &["inactive"]),
    ]);
    let pickled = serde_pickle::to_vec(&segments, serde_pickle::SerOptions::new()).unwrap();
    let alone = json!({ "segments": segments });
    for form in [
        segments.to_string().into_bytes(),
        pickled,
        alone.to_string().into_bytes(),
    ] {
        let traces = Trace::read_devices("t", Content::new(&*form).unwrap()).unwrap();
        let [(0, first), (1, second)] = &*traces else {
            panic!("{traces:?}");
        };
        assert_eq!(
            groups(first),
            [Some("ada/train.py:1 step"), Some("ada/train.py:3 step")]
        );
        assert_eq!(
            (first.peak_live_bytes(), second.peak_live_bytes()),
            (1000, 500)
        );
        let history = History::happened(second).unwrap();
        assert_eq!(history.origin, Origin::Happened);
        assert_eq!(history.numbers().at_end.reserved_bytes, 4 << 20);
        // By default, the device with more live bytes.
        let trace = Trace::read("t", &*form, None).unwrap();
        assert_eq!(trace.allocations(), 2);
        let remark = "device 0 of 2 has 1000 B live at its peak, and device 1 has 500 B: \
                      `--device` of `binpool view` and of `binpool import` takes another";
        assert!(
            trace.remarks().iter().any(|text| text == remark),
            "{:?}",
            trace.remarks()
        );
        assert_eq!(Trace::read("t", &*form, Some(0)).unwrap().allocations(), 2);
        let error = Trace::read("t", &*form, Some(2)).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("no device 2: the snapshot has 2"),
            "{error}"
        );
    }
    let empty = Trace::read("t", &b"[]"[..], None).unwrap_err().to_string();
    assert!(empty.contains("torch.cuda.memory_snapshot()"), "{empty}");
}

/// What Python's `pickle.dumps(snapshot, protocol)` writes of a name of letters of one, two, three and four bytes, and a backslash.
#[test]
fn names_are_the_same_in_every_protocol_of_pickle() {
    // Without the header. The third is the second, and the fifth is the fourth.
    let two = b"}q\0X\r\0\0\0device_tracesq\x01]q\x02]q\x03}q\x04(X\x06\0\0\0actionq\x05X\x05\0\0\0allocq\x06X\x04\0\0\0addrq\x07K\x01X\
                 \x04\0\0\0sizeq\x08M\0\x02X\x06\0\0\0framesq\t]q\n}q\x0b(X\x08\0\0\0filenameq\x0cX\x1b\0\0\0/home/ada/mod\xc3\xa8le\
                 \xe2\x9c\x93\xf0\x9d\x9b\xbc.pyq\rX\x04\0\0\0lineq\x0eK\x07X\x04\0\0\0nameq\x0fX\x0c\0\0\0\xc3\xa9tape\\u0041q\x10uauaas.";
    let four = b"\x95\x9a\0\0\0\0\0\0\0}\x94\x8c\rdevice_traces\x94]\x94]\x94}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04addr\x94K\
                 \x01\x8c\x04size\x94M\0\x02\x8c\x06frames\x94]\x94}\x94(\x8c\x08filename\x94\x8c\x1b/home/ada/mod\xc3\xa8le\
                 \xe2\x9c\x93\xf0\x9d\x9b\xbc.py\x94\x8c\x04line\x94K\x07\x8c\x04name\x94\x8c\x0c\xc3\xa9tape\\u0041\x94uauaas.";
    let header = |protocol| [0x80, protocol];
    for pickle in [
        [&header(2), &two[..]].concat(),
        [&header(3), &two[..]].concat(),
        [&header(4), &four[..]].concat(),
        [&header(5), &four[..]].concat(),
    ] {
        let trace = Trace::read("t", &*pickle, None).unwrap();
        assert_eq!(trace.groups(), [r"ada/modèle✓𝛼.py:7 étape\u0041"]);
    }
}

/// Before PyTorch 2.1.
#[test]
fn blocks_with_a_history_have_its_size_and_stack() {
    let history =
        json!([{"addr": 1_u64 << 40, "real_size": 300, "frames": [frame("a/b.py", 3, "f")]}]);
    let block = json!({"size": 512, "state": "active_allocated", "history": history});
    let segment = json!({"device": 0, "address": 1_u64 << 40, "total_size": 2 << 20, "stream": 0, "blocks": [block]});
    let trace = read(&json!({"segments": [segment], "device_traces": [[]]}));
    assert_eq!(groups(&trace), [Some("a/b.py:3 f")]);
    assert_eq!(trace.peak_live_bytes(), 300);
}

#[test]
fn blocks_are_in_the_group_of_their_category() {
    let base = 1_u64 << 40;
    let frames = [frame("mlx/nn.py", 1, "f")];
    let entries = [
        json!({"action": "segment_alloc", "addr": base, "size": 2 << 20, "stream": 0}),
        alloc(base, &json!({"category": "weights", "frames": frames})),
        alloc(
            base + 512,
            &json!({"category": "activations\n", "frames": frames}),
        ),
        alloc(base + 1024, &json!({"frames": frames})),
        alloc(base + 1536, &json!({"category": ""})),
        json!({"action": "free_completed", "addr": base + 2048, "size": 512, "stream": 0, "category": "weights"}),
    ];
    let trace = read(&json!({"device_traces": [entries], "segments": []}));
    let expected = [
        "weights",
        "weights",
        "activations",
        "mlx/nn.py:1 f",
        "(recorded without call stacks)",
    ];
    assert_eq!(groups(&trace), expected.map(Some));
    // No group is there that no block is in.
    assert_eq!(trace.groups().len(), 4);
}

/// MLX's converter leaves the list empty.
#[test]
fn segments_that_only_the_entries_have_are_those_that_were_reserved() {
    let base = 1_u64 << 40;
    let entry = |action: &str, address: u64, size: u64| json!({"action": action, "addr": address, "size": size, "stream": 0});
    let entries = [
        entry("segment_alloc", base, 2 << 20),
        entry("alloc", base, 1000),
        entry("segment_alloc", base + (1 << 30), 20 << 20),
        entry("alloc", base + (1 << 30), 20 << 20),
        entry("free_requested", base + (1 << 30), 20 << 20),
        entry("free_completed", base + (1 << 30), 20 << 20),
        entry("segment_free", base + (1 << 30), 20 << 20),
        entry("alloc", base + 4096, 1000),
    ];
    for segments in [json!({"segments": []}), json!({})] {
        let mut snapshot = segments;
        snapshot["device_traces"] = json!([entries]);
        let trace = read(&snapshot);
        assert_eq!(trace.remarks(), [""; 0]);
        let numbers = History::happened(&trace).unwrap().numbers();
        assert_eq!(numbers.peak_reserved.reserved_bytes, 22 << 20);
        assert_eq!(numbers.at_end.reserved_bytes, 2 << 20);
    }
}

#[test]
fn blocks_without_frames_say_why() {
    let frames = [frame("/home/ada/train.py", 30, "<module>")];
    let base = 1_u64 << 40;
    let entries = [
        // The stack is the one that freed it.
        json!({"action": "free_completed", "addr": base, "size": 512, "stream": 0, "frames": frames}),
        alloc(base + 512, &json!({"frames": frames})),
        alloc(base + 1024, &json!({"frames": []})),
        alloc(base + 1536, &json!({})),
    ];
    let mut segment = segment(
        0,
        base,
        &[
            "inactive",
            "active_allocated",
            "active_allocated",
            "active_allocated",
            "active_allocated",
        ],
    );
    segment["blocks"][4]["frames"] = json!([]);
    let trace = read(&json!({"device_traces": [entries], "segments": [segment]}));
    let script = "ada/train.py:30 <module>";
    let expected = [
        OLDER,
        OLDER,
        script,
        WITHOUT_PYTHON,
        "(recorded without call stacks)",
    ];
    assert_eq!(groups(&trace), expected.map(Some));
    let numbers = History::happened(&trace).unwrap().numbers();
    let names: Vec<&str> = numbers.groups.iter().map(|group| &*group.name).collect();
    assert!(
        names.contains(&OLDER) && names.contains(&WITHOUT_PYTHON),
        "{names:?}"
    );
    assert!(!names.contains(&"(no group)"), "{names:?}");
    // Where no block has one, they are not told apart.
    let trace = read(&json!({"device_traces": [[alloc(base, &json!({}))]], "segments": []}));
    assert_eq!((groups(&trace), trace.groups().len()), (vec![None], 0));
}

/// Parts of the stacks of a training step, as PyTorch records them with C++, which is its default.
struct Parts {
    /// The allocator, and what records the stack.
    inner: Vec<Value>,
    /// The forward pass.
    python: Vec<Value>,
    /// The thread of the backward pass.
    engine: Vec<Value>,
    bmm: Vec<Value>,
    kthvalue: Vec<Value>,
}

fn parts() -> Parts {
    let cpp = |name: &str| frame("??", 0, name);
    let inner = vec![
        cpp("torch::unwind::unwind()"),
        cpp("torch::CapturedTraceback::gather(bool, bool, bool)"),
        frame(
            "memory_snapshot.cpp",
            0,
            "torch::cuda::(anonymous namespace)::gather_with_cpp()",
        ),
        frame(
            "",
            0,
            "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc(void**, signed char, unsigned long, CUstream_st*)",
        ),
        cpp(
            "at::detail::empty_cuda(c10::ArrayRef<long>, c10::ScalarType, std::optional<c10::Device>, std::optional<c10::MemoryFormat>)",
        ),
        frame(
            "RegisterCUDA_0.cpp",
            0,
            "at::(anonymous namespace)::(anonymous namespace)::wrapper_CUDA_bmm(at::Tensor const&, at::Tensor const&)",
        ),
    ];
    let python = vec![
        cpp("at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)"),
        frame(
            "python_torch_functions_2.cpp",
            0,
            "torch::autograd::THPVariable_empty(_object*, _object*, _object*)",
        ),
        frame("", 0, "cfunction_call.lto_priv.0"),
        frame(
            "/env/lib/python3.14/site-packages/torch/nn/modules/linear.py",
            109,
            "forward",
        ),
        frame(
            "/usr/local/src/conda/python-3.14.6/Include/internal/pycore_ceval.h",
            120,
            "_PyEval_EvalFrame",
        ),
        frame("/home/ada/train.py", 20, "step"),
        cpp("_PyEval_EvalFrameDefault"),
        frame("/home/ada/train.py", 77, "<module>"),
        cpp("PyEval_EvalCode"),
        frame("./csu/../csu/libc-start.c", 360, "__libc_start_main_impl"),
        cpp("_start"),
    ];
    let engine = vec![
        cpp(
            "torch::autograd::Node::operator()(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)",
        ),
        cpp(
            "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)",
        ),
        cpp(
            "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)",
        ),
        cpp(
            "torch::autograd::python::PythonEngine::thread_init(int, std::shared_ptr<torch::autograd::ReadyQueue> const&, bool)",
        ),
        cpp("execute_native_thread_routine"),
        cpp("start_thread"),
        cpp("__clone3"),
    ];
    let bmm = vec![
        frame(
            "VariableType_1.cpp",
            0,
            "torch::autograd::VariableType::(anonymous namespace)::bmm(c10::DispatchKeySet, at::Tensor const&, at::Tensor const&)",
        ),
        cpp("at::_ops::bmm::call(at::Tensor const&, at::Tensor const&)"),
        cpp(
            "torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)",
        ),
    ];
    let kthvalue = vec![
        cpp("at::native::value_selecting_reduction_backward_symint(at::Tensor const&, long)"),
        cpp(
            "torch::autograd::generated::KthvalueBackward0::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)",
        ),
    ];
    Parts {
        inner,
        python,
        engine,
        bmm,
        kthvalue,
    }
}

#[test]
fn stacks_with_cpp_are_named_after_what_tells_what_the_program_did() {
    let Parts {
        inner,
        python,
        engine,
        bmm,
        kthvalue,
    } = parts();
    let stack = |parts: &[&[Value]]| json!({ "frames": parts.concat() });
    let base = 1_u64 << 40;
    let entries = [
        alloc(base, &stack(&[&inner, &python])),
        alloc(base + 512, &stack(&[&inner, &bmm, &engine])),
        alloc(base + 1024, &stack(&[&inner, &kthvalue, &engine])),
    ];
    let trace = read(&json!({"device_traces": [entries], "segments": []}));
    let expected = [
        "ada/train.py:20 step",
        "VariableType::bmm",
        "KthvalueBackward0",
    ];
    assert_eq!(groups(&trace), expected.map(Some));
    let stacks = [
        vec!["step at ada/train.py:20", "<module> at ada/train.py:77"],
        vec!["VariableType::bmm", "BmmBackward0"],
        vec!["KthvalueBackward0"],
    ];
    assert_eq!(trace.stacks(), stacks);
}

/// The devices of a snapshot, or the place of what is wrong with it.
fn devices(traces: &Value, segments: &[Value]) -> Result<Vec<usize>, String> {
    let text = json!({"device_traces": traces, "segments": segments}).to_string();
    let content = Content::new(text.as_bytes()).unwrap();
    match Trace::read_devices("t", content) {
        Ok(traces) => Ok(traces.iter().map(|(device, _)| *device).collect()),
        Err(error) => Err(error.place().to_owned()),
    }
}

#[test]
fn devices_are_those_with_entries_that_allocate_or_with_segments_where_none_has_entries() {
    let live = [0, 1].map(|device| segment(device, 1 << 40, &["active_allocated"]));
    let snapshot = json!({"action": "snapshot", "addr": 0, "size": 0});
    let entry = alloc(1 << 40, &json!({}));
    assert_eq!(devices(&json!([[], []]), &live), Ok(vec![0, 1]));
    assert_eq!(devices(&json!([[entry]]), &live), Ok(vec![0]));
    assert_eq!(devices(&json!([[snapshot], [entry]]), &[]), Ok(vec![1]));
    // A device that is wrong is not left out.
    let wrong = json!({"action": "alloc"});
    assert_eq!(
        devices(&json!([[entry], [wrong]]), &[]),
        Err("entry 1 of device 1".into())
    );
    // Where none allocates, the one of which most is known says so.
    assert_eq!(
        devices(&json!([[snapshot], [snapshot, snapshot], []]), &[]),
        Err("device 1".into())
    );
}

#[test]
fn the_first_eight_other_devices_are_named() {
    let remark = |devices: u64| {
        let traces: Vec<Value> = (0..devices)
            .map(|device| json!([alloc(device << 20, &json!({}))]))
            .collect();
        let trace = read(&json!({"device_traces": traces}));
        trace.remarks().last().unwrap().clone()
    };
    assert!(remark(9).contains("device 8 has 512 B: "), "{}", remark(9));
    assert!(
        remark(10).contains("device 8 has 512 B, 1 more have some: "),
        "{}",
        remark(10)
    );
}

#[test]
fn a_list_is_one_of_segments_if_each_has_an_address_and_blocks() {
    let whole = segment(0, 1 << 40, &["active_allocated"]);
    for key in ["address", "blocks"] {
        let mut part = whole.clone();
        part.as_object_mut().unwrap().remove(key);
        let error = Trace::read("t", json!([part]).to_string().as_bytes(), None).unwrap_err();
        assert_eq!(error.kind(), TraceErrorKind::Foreign, "{error}");
    }
}

#[test]
fn a_note_comes_after_the_entries_of_its_time() {
    let entry = |time: u64| alloc((1 << 40) + time * 512, &json!({"time_us": time}));
    let taken =
        json!({"action": "segment_alloc", "addr": 1_u64 << 40, "size": 2 << 20, "time_us": 0});
    let note = json!({"stage": "START", "name": "step", "device": 0, "time_us": 2});
    let trace = read(
        &json!({"device_traces": [[taken, entry(1), entry(2), entry(3)]], "external_annotations": [note]}),
    );
    let lines = trace.to_string();
    let letters: Vec<&str> = lines
        .lines()
        .filter_map(|line| line.get(..1))
        .filter(|letter| "ap".contains(letter))
        .collect();
    assert_eq!(letters, ["a", "a", "p", "a"], "{lines}");
}

/// The free of the block that is listed was recorded, and the allocation of a later one at its address was not.
#[test]
fn a_block_that_was_freed_does_not_take_what_is_listed_at_its_address() {
    let base = 1_u64 << 40;
    let entries = [
        json!({"action": "segment_alloc", "addr": base, "size": 2 << 20, "stream": 0}),
        alloc(base, &json!({})),
        json!({"action": "free_completed", "addr": base, "size": 512, "stream": 0}),
    ];
    let block =
        json!({"address": base, "size": 4096, "requested_size": 4000, "state": "active_allocated"});
    let segment = json!({"address": base, "total_size": 2 << 20, "stream": 0, "blocks": [block]});
    let trace = read(&json!({"device_traces": [entries], "segments": [segment]}));
    let placed = format!("b {} {base} 0 512", base >> 8);
    assert!(
        trace.to_string().lines().any(|line| line == placed),
        "{trace}"
    );
}

#[test]
fn packages_are_looked_beyond_where_groups_are_not_named_yet() {
    for (source, is_named) in [
        ("", true),
        ("h version 3\nh source a program on OpenCL\n", false),
    ] {
        let text = format!("{source}g 0 weights\na 0 1 0 0 0\n");
        let content = Content::new(text.as_bytes()).unwrap();
        let trace = Trace::read_content("t", content.beyond(["einops"]), None).unwrap();
        let says = |remark: &String| remark.contains("named when it was recorded");
        assert_eq!(trace.remarks().iter().any(says), is_named);
    }
}
