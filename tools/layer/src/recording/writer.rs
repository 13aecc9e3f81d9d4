//! The lines of a recording, and their file.

use std::{
    collections::HashMap,
    ffi::OsString,
    io, mem,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use binpool_trace::Line;
use foldhash::fast::FixedState;

use super::{
    calls,
    mapped_file::{MappedFile, is_temporary},
    modules,
    place::{Place, Places},
    process_mark::ProcessMark,
    python,
    report_once::report_once,
    stack::Stack,
};
use crate::settings::settings;

/// The most names for one file that are tried.
const MOST_NAMES: usize = 1000;

/// The most bytes of lines that wait for the file.
const MOST_WAITING: usize = 4 << 20;

/// What a block is, which becomes the name of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Group {
    /// Such as `buffer`, `image`, `managed`.
    pub(crate) kind: &'static str,
    /// The number of its context, from 1 on.
    pub(crate) context: u32,
}

/// A device, and the bytes of its memory; 0 if the driver does not say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// Writes the lines of this process.
#[derive(Debug)]
pub(super) struct Writer {
    /// The requested file. The first process that records gets it.
    first: PathBuf,
    /// The file of this process, once there is one.
    path: PathBuf,
    /// The interface of the program.
    source: &'static str,
    /// The device of the first context, if it has one only.
    device: Option<Device>,
    state: State,
    next_id: u64,
    /// The ID of the first block of this process. Those of its parent are not in its recording.
    first_id: u64,
    /// The number of each group and thread.
    groups: HashMap<(Group, u32), u64, FixedState>,
    /// The number of each stack, by where the program was.
    stacks: HashMap<Place, HashMap<Stack, u64, FixedState>, FixedState>,
    stack_count: u64,
    places: Places,
    /// Lines that are not in the file yet: the one that is being written, and those before it for which the file could not be opened.
    lines: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// Nothing happened yet: a program that never uses a device leaves no file.
    Waiting,
    Open(MappedFile, ProcessMark),
    /// The file failed.
    Ended,
}

impl Writer {
    pub(super) fn new(path: &Path, source: &'static str) -> Self {
        Self {
            first: path.to_owned(),
            path: path.to_owned(),
            source,
            device: None,
            state: State::Waiting,
            next_id: 1,
            first_id: 1,
            groups: HashMap::default(),
            stacks: HashMap::default(),
            stack_count: 0,
            places: Places::default(),
            lines: Vec::new(),
        }
    }

    /// Begins again if this process is a child of the one that wrote so far.
    pub(super) fn follow_fork(&mut self) {
        if let State::Open(_, mark) = &self.state
            && !mark.is_of_this_process()
        {
            self.begin_again();
        }
    }

    /// Forgets what the parent of this process did: it has a file of its own.
    pub(super) fn begin_again(&mut self) {
        calls::forget();
        let first_id = self.next_id;
        *self = Self {
            next_id: first_id,
            first_id,
            places: mem::take(&mut self.places),
            ..Self::new(&self.first, self.source)
        };
    }

    /// Returns whether there is a file.
    pub(super) fn has_begun(&self) -> bool {
        matches!(self.state, State::Open(..))
    }

    /// Notes the devices of a context. The header names that of the first one.
    pub(super) fn set_devices(&mut self, devices: &[Device]) {
        if let (State::Waiting, [device]) = (&self.state, devices) {
            self.device = Some(device.clone());
        }
    }

    /// Returns the ID of the next block.
    pub(super) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Returns the number of a group, which is named when it is new.
    pub(super) fn group_number(&mut self, group: Group, thread: u32) -> u64 {
        let number = self.groups.len() as u64;
        let known = *self.groups.entry((group, thread)).or_insert(number);
        if known == number {
            let Group { kind, context } = group;
            let name = match thread {
                0 | 1 => format!("{kind}, context {context}"),
                _ => format!(
                    "{kind}, context {context}, thread {thread} ({})",
                    thread_name()
                ),
            };
            self.write(&Line::Group {
                group: number,
                name: &name,
            });
        }
        known
    }

    /// Returns the number of a stack, if it has one.
    pub(super) fn stack_number(&self, stack: &Stack, place: Place) -> Option<u64> {
        self.stacks.get(&place)?.get(stack).copied()
    }

    /// Returns the place with these frames, a line for each, innermost first.
    pub(super) fn place(&mut self, frames: &str) -> Place {
        self.places.named(frames)
    }

    /// Returns the place with these frames within another one.
    pub(super) fn place_within(&mut self, frames: &str, outer: Place) -> Place {
        let inner = frames.lines();
        let all: Vec<&str> = inner.chain(self.places.frames_of(outer)).collect();
        let all = all.join("\n");
        self.place(&all)
    }

    /// Returns the number of a stack, whose frames are written if it is new. Without `texts`, the frames are addresses.
    pub(super) fn number_stack(
        &mut self,
        stack: &Stack,
        place: Place,
        texts: Option<Vec<String>>,
    ) -> u64 {
        if let Some(number) = self.stack_number(stack, place) {
            return number;
        }
        let number = self.stack_count;
        self.stack_count += 1;
        let mut frames = match (stack, texts) {
            (Stack::Native(addresses), None) => {
                python::look_again();
                modules::frames(addresses)
            }
            (_, texts) => texts.unwrap_or_default(),
        };
        frames.extend(self.places.frames_of(place).map(str::to_owned));
        if frames.is_empty() {
            // A stack without a line would have no number for readers.
            frames.push("unknown".to_owned());
        }
        for frame in &frames {
            self.write(&Line::Frame {
                stack: number,
                frame,
            });
        }
        let of_place = self.stacks.entry(place).or_default();
        of_place.insert(stack.clone(), number);
        number
    }

    /// Writes a line about a block, unless it is a block of the parent of this process.
    pub(super) fn write_of(&mut self, id: u64, line: &Line<'_>) {
        if id >= self.first_id {
            self.write(line);
        }
    }

    /// Writes a line.
    pub(super) fn write(&mut self, line: &Line<'_>) {
        if matches!(self.state, State::Waiting) {
            self.open();
        }
        let State::Open(file, _) = &mut self.state else {
            return;
        };
        line.write(&mut self.lines);
        let written = file.append(&self.lines);
        if written.as_ref().is_err_and(is_temporary) && self.lines.len() < MOST_WAITING {
            // Later lines speak of what this one says, so none is left out.
            return;
        }
        self.lines.clear();
        self.end_after(written);
    }

    /// Cuts the file to what is written.
    pub(super) fn cut(&mut self) {
        if let State::Open(file, _) = &mut self.state {
            let cut = file.cut();
            if cut.as_ref().is_err_and(is_temporary) && self.lines.is_empty() {
                // Zeros at the end do no harm.
                return;
            }
            self.end_after(cut);
        }
    }

    fn end_after(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            report_once(format_args!(
                "the recording {}: {error}",
                self.path.display()
            ));
            self.state = State::Ended;
        }
    }

    /// Makes the file of this process: the requested one, or one next to it if another process has that.
    fn open(&mut self) {
        self.state = State::Ended;
        let program = program_name();
        for attempt in 0..MOST_NAMES {
            let path = numbered(&self.first, &program, attempt);
            match MappedFile::create(&path).and_then(|file| Ok((file, ProcessMark::new()?))) {
                Ok((file, mark)) => {
                    self.state = State::Open(file, mark);
                    self.path = path;
                    return self.write_header(&program);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let path = path.display();
                    return report_once(format_args!(
                        "could not make the recording {path}: {error}"
                    ));
                }
            }
        }
    }

    fn write_header(&mut self, program: &str) {
        let settings = settings();
        let source = format!("a program on {}", self.source);
        let Device { name, bytes } = self.device.take().unwrap_or_default();
        let number =
            |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        for (key, value) in [
            ("version", "3"),
            ("time", &seconds_since_1970().to_string()),
            ("program", program),
            ("process", &std::process::id().to_string()),
            ("source", &source),
            ("device", &name),
            ("capacity", &number(Some(bytes).filter(|bytes| *bytes > 0))),
            ("pooled", if settings.is_pooled { "yes" } else { "" }),
            ("limit", &number(settings.limit)),
        ] {
            if !value.is_empty() {
                self.write(&Line::Header { key, value });
            }
        }
    }
}

/// Returns the name of the file that is tried at this attempt: `out.trace`, `out.python3-1234.trace`, `out.python3-1234.2.trace`.
pub(crate) fn numbered(path: &Path, program: &str, attempt: usize) -> PathBuf {
    if attempt == 0 {
        return path.to_owned();
    }
    let mut name = OsString::from(path.file_stem().unwrap_or_default());
    // A name such as `/bin/x` of a program would be a folder.
    let program = program.replace('/', "_");
    name.push(format!(".{program}-{}", std::process::id()));
    if attempt > 1 {
        name.push(format!(".{attempt}"));
    }
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// The time now, in seconds since 1970.
fn seconds_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The name of the program's file.
pub(crate) fn program_name() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The name of this thread, as the system knows it.
fn thread_name() -> String {
    let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
    name.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_further_processes_are_named_after_them() {
        let pid = std::process::id();
        let name = |path: &str, program, attempt| {
            let path = numbered(Path::new(path), program, attempt);
            path.to_str().unwrap().to_owned()
        };
        assert_eq!(name("/a/out.trace", "python3", 0), "/a/out.trace");
        let second = format!("/a/out.python3-{pid}.trace");
        assert_eq!(name("/a/out.trace", "python3", 1), second);
        let third = format!("/a/out.a_b-{pid}.2");
        assert_eq!(name("/a/out", "a/b", 2), third);
    }
    #[test]
    fn what_is_not_known_of_the_program_is_left_out_of_the_header() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut writer = Writer::new(&path, "OpenCL");
        writer.state = State::Open(
            MappedFile::create(&path).unwrap(),
            ProcessMark::new().unwrap(),
        );
        writer.write_header("");
        writer.cut();
        let text = std::fs::read_to_string(&path).unwrap();
        let header: Vec<_> = text.lines().map(|line| Line::read(line).unwrap()).collect();
        let keys = header.iter().map(|line| match line {
            Some(Line::Header { key, value }) if !value.is_empty() => *key,
            other => panic!("{other:?}"),
        });
        assert!(keys.eq(["version", "time", "process", "source"]), "{text}");
    }
}
