//! Programs in Python: their lines are the call stacks of the recording.

use std::{fs, path::Path, process::Command};

use binpool_trace::Line;
use tempfile::TempDir;

/// Buffers of 100 bytes and more, by functions that hold Python's lock while they call, or not.
const PROGRAM: &str = "
import ctypes, os, sys
load = ctypes.PyDLL if sys.argv[1] == 'locked' else ctypes.CDLL
cl = load(os.environ.get('OPENCL_DYLIB_PATH', 'libOpenCL.so.1'))
cl.clCreateContext.restype = cl.clCreateBuffer.restype = ctypes.c_void_p
pointer, status = ctypes.c_void_p, ctypes.c_int()
platform, device = pointer(), pointer()
assert cl.clGetPlatformIDs(1, ctypes.byref(platform), None) == 0
assert cl.clGetDeviceIDs(platform, ctypes.c_ulong(0xffffffff), 1, ctypes.byref(device), None) == 0
context = pointer(cl.clCreateContext(None, 1, ctypes.byref(device), None, None, ctypes.byref(status)))
def create(size):
    buffer = cl.clCreateBuffer(context, ctypes.c_ulong(0), ctypes.c_size_t(size), None, ctypes.byref(status))
    assert buffer
class Größe:
    def prüfe(self, depth):
        if depth: self.prüfe(depth - 1)
        else: create(400)
for _ in range(3): create(100)
def other():
    create(200)
other()
list(map(create, [300]))
Größe().prüfe(50)
";

/// The frames of the block of each size, and how many stacks there are.
fn frames_of(recording: &Path) -> (Vec<(usize, Vec<String>)>, usize) {
    let text = fs::read_to_string(recording).unwrap();
    let (mut frames, mut blocks) = (Vec::<(u64, String)>::new(), Vec::new());
    for line in text.lines() {
        match Line::read(line).unwrap() {
            Some(Line::Frame { stack, frame }) => frames.push((stack, frame.to_owned())),
            Some(Line::Allocated { request, .. }) => {
                blocks.push((request.bytes, request.stack.unwrap()));
            }
            _ => {}
        }
    }
    let mut stacks: Vec<u64> = blocks.iter().map(|(_, stack)| *stack).collect();
    stacks.dedup();
    let of = |stack: u64| {
        let of_stack = frames.iter().filter(|(of, _)| *of == stack);
        of_stack.map(|(_, frame)| frame.clone()).collect()
    };
    let blocks = blocks.into_iter().map(|(bytes, stack)| (bytes, of(stack)));
    (blocks.collect(), stacks.len())
}

#[test]
fn the_lines_of_a_program_are_its_stacks_whether_it_holds_the_lock_or_not() {
    for how in ["locked", "unlocked"] {
        let folder = TempDir::new().unwrap();
        let [program, recording] = ["program.py", "out.trace"].map(|name| folder.path().join(name));
        fs::write(&program, PROGRAM).unwrap();
        let ran = Command::new("python3")
            .args([program.as_os_str(), how.as_ref()])
            .env("OPENCL_LAYERS", env!("CARGO_BIN_EXE_binpool-layer"))
            .env("BINPOOL_RECORD", &recording)
            .output()
            .unwrap();
        assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
        let (blocks, stacks) = frames_of(&recording);
        let path = program.display();
        let line = |text: &str| {
            let at = PROGRAM
                .lines()
                .position(|line| line.trim() == text)
                .unwrap();
            format!("{path}:{}", at + 1)
        };
        let create = format!(
            "{} in create",
            line(
                "buffer = cl.clCreateBuffer(context, ctypes.c_ulong(0), ctypes.c_size_t(size), None, ctypes.byref(status))"
            )
        );
        let module = |text| format!("{} in <module>", line(text));
        let first = vec![create.clone(), module("for _ in range(3): create(100)")];
        for block in &blocks[..3] {
            assert_eq!(*block, (100, first.clone()), "{how}");
        }
        let inside = format!("{} in other", line("create(200)"));
        assert_eq!(
            blocks[3],
            (200, vec![create.clone(), inside, module("other()")])
        );
        let by_map = vec![create.clone(), module("list(map(create, [300]))")];
        assert_eq!(blocks[4], (300, by_map));
        let (bytes, deep) = &blocks[5];
        let inner = format!("{} in Größe.prüfe", line("else: create(400)"));
        let outer = format!("{} in Größe.prüfe", line("if depth: self.prüfe(depth - 1)"));
        assert_eq!(
            (*bytes, deep.len(), &deep[..2]),
            (400, 32, &[create, inner][..])
        );
        assert!(deep[2..].iter().all(|frame| *frame == outer), "{deep:#?}");
        // The same line is the same stack.
        assert_eq!((blocks.len(), stacks), (6, 4));
    }
}
