//! Reads `PyTorch`'s memory snapshots: `torch.cuda.memory._snapshot()`, pickled by `_dump_snapshot` or as JSON.
//!
//! A snapshot has a list of entries for each device, in the order of time. An allocation is an entry `alloc`. A free is two:
//! `free_requested`, when the program frees the block, and `free_completed`, when the allocator may hand it out again,
//! which is later where another stream still uses it (`record_stream`). The block ends with the second, or with the first in a
//! recording without second ones. `segment_alloc` and the like are the allocator's own calls to the device: they say where the
//! blocks lay (see [`places`](super::places)). The list may have lost its beginning, since it is bounded (`max_entries`); the blocks of
//! `segments` show which blocks from before still live. `torch.cuda.memory_snapshot()` has these alone: the list of segments.
//!
//! Other tools write snapshots for PyTorch's viewer, which groups blocks by their `category`. Their list of segments may be empty, though their
//! entries allocate some.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    rc::Rc,
};

use binpool_allocators::words;
use binpool_trace::{TraceError, TraceErrorKind, cut};

use super::{
    blocks::{Block, Blocks, Moment},
    cpp::Function,
    frames::{File, Frame, group_name, one_line, program_part},
    kinds::foreign_document,
    notes::{Notes, note_text},
    objects::{Id, List, Node, Objects},
    placing::Source,
};

use crate::{
    Trace, error,
    places::{Change, Told},
    trace::SNAPSHOT_OF_PYTORCH,
};

/// The most other devices that a remark names.
const OTHERS_NAMED: usize = 8;

/// The group of blocks from before the recording whose stacks it does not have.
const OLDER: &str = "(older than the recording)";

/// The group of blocks with an empty stack: those of a thread without Python, such as that of the backward pass.
const WITHOUT_PYTHON: &str = "(backward pass?)";

/// The group of blocks without a stack.
const WITHOUT_STACK: &str = "(recorded without call stacks)";

/// The most characters of a category that count.
const LONGEST_CATEGORY: usize = 240;

/// Where a document has what a snapshot says.
struct Snapshot<'o> {
    /// The list of entries of each device.
    traces: Vec<Node<'o>>,
    /// Whether any has some.
    has_entries: bool,
    /// The segments of each device, with their numbers, counted from 1. Those that name no device are of device 0.
    segments: BTreeMap<usize, Vec<(usize, Node<'o>)>>,
    /// Whether there is a list of them.
    lists_segments: bool,
}

impl<'o> Snapshot<'o> {
    fn of(objects: &'o Objects) -> Result<Self, TraceError> {
        let list = |key| objects.root()?.list(key);
        let is_segment =
            |item: Node<'_>| item.field("address").is_some() && item.field("blocks").is_some();
        let bare = objects.root().and_then(Node::as_list);
        let bare = bare.filter(|list| list.get(0).is_some_and(is_segment));
        let (traces, listed) = (list("device_traces"), list("segments").or(bare));
        if traces.is_none() && listed.is_none_or(List::is_empty) {
            return Err(foreign_document().at("the whole file"));
        }
        let mut segments: BTreeMap<usize, Vec<(usize, Node<'_>)>> = BTreeMap::new();
        for (number, segment) in (1..).zip(listed.into_iter().flat_map(List::iter)) {
            if let Ok(device) = usize::try_from(segment.integer("device").unwrap_or(0)) {
                segments.entry(device).or_default().push((number, segment));
            }
        }
        let traces: Vec<Node<'_>> = traces.into_iter().flat_map(List::iter).collect();
        Ok(Self {
            has_entries: traces.iter().any(|trace| entries_of(*trace) > 0),
            traces,
            segments,
            lists_segments: listed.is_some(),
        })
    }

    /// The numbers of all devices, each with how much is known of it: its entries, or its segments if no device has entries.
    fn devices(&self) -> BTreeMap<usize, usize> {
        let entries = self.traces.iter().map(|trace| entries_of(*trace));
        let mut devices: BTreeMap<usize, usize> = entries.enumerate().collect();
        for (device, segments) in &self.segments {
            let amount = devices.entry(*device).or_default();
            if !self.has_entries {
                *amount = segments.len();
            }
        }
        devices
    }
}

fn entries_of(trace: Node<'_>) -> usize {
    trace.as_list().map_or(0, List::len)
}

/// Reads the trace of each device of a snapshot that allocates something, in their order, with its number. If none does,
/// returns the error of the device that most is known about. `beyond` are the packages that groups are named beyond.
pub(crate) fn import_all(
    objects: &Objects,
    name: &str,
    beyond: &[String],
) -> Result<Vec<(usize, Trace)>, TraceError> {
    let snapshot = Snapshot::of(objects)?;
    let mut lists_seen = HashSet::new();
    let mut all = Vec::new();
    for (device, amount) in snapshot.devices() {
        if amount == 0 {
            continue;
        }
        // PyTorch never writes this, and a small file could otherwise stand for more entries than fit into memory.
        let entries = snapshot.traces.get(device);
        let entries = entries.filter(|_| snapshot.has_entries);
        if entries.is_some_and(|entries| !lists_seen.insert(entries.id)) {
            let expected = "a list that no device before has";
            return Err(error::field("its trace", expected).at(format!("device {device}")));
        }
        match import_device(objects, name, &snapshot, device, beyond) {
            Ok(trace) => all.push((device, trace)),
            Err(error) if error.kind() == TraceErrorKind::NoAllocation => {}
            Err(error) => return Err(error),
        }
    }
    if all.is_empty() {
        // With the error of the device that most is known about.
        let devices = snapshot.devices();
        let busiest = devices.iter().rev().max_by_key(|(_, amount)| *amount);
        let busiest = busiest.map_or(0, |(device, _)| *device);
        let trace = import_device(objects, name, &snapshot, busiest, beyond)?;
        all.push((busiest, trace));
    }
    Ok(all)
}

/// Reads the trace of one device of a snapshot, by default the one with the most bytes live at once, which then remarks which others there are.
pub(crate) fn import(
    objects: &Objects,
    name: &str,
    device: Option<usize>,
    beyond: &[String],
) -> Result<Trace, TraceError> {
    let snapshot = Snapshot::of(objects)?;
    if let Some(device) = device {
        return import_device(objects, name, &snapshot, device, beyond);
    }
    let mut all = import_all(objects, name, beyond)?;
    let live = |(_, trace): &(usize, Trace)| trace.peak_live_bytes();
    let chosen = (0..all.len()).rev().max_by_key(|index| live(&all[*index]));
    let (chosen, mut trace) = all.remove(chosen.unwrap_or(0));
    let has = |of: &(usize, Trace)| format!("device {} has {}", of.0, words::bytes(live(of)));
    let mut named: Vec<String> = all.iter().take(OTHERS_NAMED).map(has).collect();
    if !named.is_empty() {
        if all.len() > OTHERS_NAMED {
            named.push(format!("{} more have some", all.len() - OTHERS_NAMED));
        }
        trace.push_remark(format!(
            "device {chosen} of {} has {} live at its peak, and {}: `--device` of `binpool view` and of `binpool import` takes another",
            snapshot.devices().len(),
            words::bytes(trace.peak_live_bytes()),
            named.join(", ")
        ));
    }
    Ok(trace)
}

fn import_device(
    objects: &Objects,
    name: &str,
    snapshot: &Snapshot<'_>,
    device: usize,
    beyond: &[String],
) -> Result<Trace, TraceError> {
    if device >= snapshot.traces.len() && !snapshot.segments.contains_key(&device) {
        let devices = snapshot.devices().len();
        return Err(error::no_device(device, devices).at("the whole file"));
    }
    let entries: Vec<Node<'_>> = match snapshot.traces.get(device) {
        Some(trace) => {
            let wrong = || error::field("its trace", "a list of entries");
            let list = trace.as_list();
            let list = list.ok_or_else(|| wrong().at(format!("device {device}")))?;
            list.iter().collect()
        }
        None => Vec::new(),
    };
    let start = entries.first().and_then(|entry| time_of(*entry));
    let mut import = Import {
        beyond,
        blocks: Blocks::default(),
        files: HashMap::new(),
        functions: HashMap::new(),
        callers: HashMap::new(),
        leaves_frames_out: false,
        told: Told::default(),
        notes: Notes::new(objects, device, start),
        unknown: 0,
    };
    let is_completed = |entry: &Node<'_>| entry.text("action") == Some("free_completed");
    let are_completed = entries.iter().any(is_completed);
    let free = if are_completed {
        "free_completed"
    } else {
        "free_requested"
    };
    for (index, entry) in entries.iter().enumerate() {
        let (line, next) = (index + 1, entries.get(index + 1).copied());
        let imported = import.entry(*entry, next, line, free);
        imported.map_err(|error| error.at(format!("entry {line} of device {device}")))?;
    }
    for (what, text, moment) in import.notes.rest() {
        import.blocks.note(what, text, moment);
    }
    if snapshot.lists_segments {
        let segments = snapshot.segments.get(&device).into_iter().flatten();
        import.segments(segments, are_completed)?;
    }
    let settings = objects.root().and_then(|it| it.field("allocator_settings"));
    // -1 stands for none.
    import.told.never_split = settings.and_then(|it| it.natural("max_split_size"));
    import.blocks.group_the_rest(OLDER, WITHOUT_STACK);
    let (unknown, leaves_frames_out) = (import.unknown, import.leaves_frames_out);
    let source = Source {
        name: SNAPSHOT_OF_PYTORCH,
        allocator: "PyTorch's caching allocator",
        device,
        told: import.told,
    };
    let trace = import
        .blocks
        .into_trace(name.to_owned(), "entry", Some(source));
    let mut trace = trace.ok_or_else(|| {
        let advice = "torch.cuda.memory._record_memory_history() has to be called before the program allocates";
        error::no_allocation(advice).at(format!("device {device}"))
    })?;
    if unknown > 0 {
        let entries = if unknown == 1 { "entry" } else { "entries" };
        trace.push_remark(format!(
            "{unknown} {entries} with an unknown action: left out"
        ));
    }
    if leaves_frames_out {
        let remark = "left out the frames of libraries at both ends of each call stack";
        trace.push_remark(remark.into());
    }
    Ok(trace)
}

struct Import<'o> {
    /// The packages that groups are named beyond.
    beyond: &'o [String],
    blocks: Blocks,
    /// The files on the stacks, by the objects of their paths.
    files: HashMap<Id, File>,
    /// The functions on the stacks, by the objects of their names.
    functions: HashMap<Id, Function>,
    /// The group's name and the call stack of each list of frames so far. Many entries share one.
    callers: HashMap<Id, (Option<String>, Option<u32>)>,
    leaves_frames_out: bool,
    told: Told,
    notes: Notes<'o>,
    unknown: usize,
}

impl<'o> Import<'o> {
    /// Imports an entry, which `next` follows.
    fn entry(
        &mut self,
        entry: Node<'o>,
        next: Option<Node<'o>>,
        line: usize,
        free: &str,
    ) -> Result<(), TraceError> {
        let action = entry.text("action");
        let action = action.ok_or_else(|| error::field("\"action\"", "text"))?;
        let time = time_of(entry);
        let moment = Moment { time, line };
        while let Some((what, text, moment)) = self.notes.before(moment) {
            self.blocks.note(what, text, moment);
        }
        match action {
            "alloc" => {
                let mut block = self.block(entry, number(entry, "addr")?)?;
                (block.group, block.stack) = self.caller(entry, block.group);
                self.blocks.allocate(block, moment);
            }
            "free_requested" | "free_completed" if action == free => {
                // The stack may be the one that freed it.
                let block = self.block(entry, number(entry, "addr")?)?;
                self.blocks.free(block, moment);
            }
            // The allocator has most blocks at once.
            "free_requested" if free != action => {
                let address = number(entry, "addr")?;
                let is_completed_next = next.is_some_and(|next| {
                    next.text("action") == Some("free_completed")
                        && next.natural("addr") == Some(address)
                });
                if !is_completed_next {
                    self.blocks.wait(address, moment);
                }
            }
            "free_requested" | "free_completed" => {}
            "oom" => {
                let mut block = self.block(entry, 0)?;
                (block.group, block.stack) = self.caller(entry, block.group);
                self.blocks
                    .fail(block, entry.natural("device_free"), moment);
            }
            "segment_alloc" | "segment_map" => {
                self.told.expandable |= action == "segment_map";
                let taken = Change::Taken(number(entry, "addr")?, number(entry, "size")?);
                self.blocks.change(taken, moment);
            }
            "segment_free" | "segment_unmap" => {
                let back = Change::GivenBack(number(entry, "addr")?, number(entry, "size")?);
                self.blocks.change(back, moment);
            }
            "snapshot" => self.blocks.note("snapshot", Rc::from(""), moment),
            "annotate" | "user_defined" => {
                // A trace without times has no notes with texts.
                let text = time.and_then(|_| entry.text("user_metadata"));
                self.blocks.note("annotate", note_text(text), moment);
            }
            _ => self.unknown += 1,
        }
        Ok(())
    }

    /// Adds the blocks that are live at the end. Those with a requested free count as live if frees are completed separately.
    fn segments<'s>(
        &mut self,
        segments: impl Iterator<Item = &'s (usize, Node<'o>)>,
        are_completed: bool,
    ) -> Result<(), TraceError>
    where
        'o: 's,
    {
        let mut lists_seen = HashSet::new();
        let mut known = Vec::new();
        for (number, segment) in segments {
            let memory = self.segment(*segment, &mut lists_seen, are_completed);
            known.push(memory.map_err(|error| error.at(format!("segment {number}")))?);
        }
        self.told.segments = Some(known);
        Ok(())
    }

    /// Adds the blocks of a segment that are live at the end. Returns its address and its bytes.
    fn segment(
        &mut self,
        segment: Node<'o>,
        lists_seen: &mut HashSet<Id>,
        are_completed: bool,
    ) -> Result<(u64, u64), TraceError> {
        self.told.expandable |= segment.integer("is_expandable") == Some(1);
        let start = number(segment, "address")?;
        let mut next = start;
        let blocks = segment.field("blocks");
        // PyTorch never writes this, and a small file could otherwise stand for more blocks than fit into memory.
        if blocks.is_some_and(|blocks| !lists_seen.insert(blocks.id)) {
            let expected = "a list that no segment before has";
            return Err(error::field("\"blocks\"", expected));
        }
        let blocks = blocks.and_then(Node::as_list);
        for block in blocks.into_iter().flat_map(List::iter) {
            let size = number(block, "size")?;
            // Before PyTorch 2.1, blocks had no addresses, but follow one another.
            let address = match block.field("address") {
                Some(_) => number(block, "address")?,
                None => next,
            };
            next = address.saturating_add(size);
            let is_live = match block.text("state") {
                Some("active_allocated") => true,
                Some("active_pending_free" | "active_awaiting_free") => are_completed,
                _ => false,
            };
            if !is_live {
                continue;
            }
            self.told.blocks.insert(address, size);
            // Before PyTorch 2.1, the requested size and the stack were in a history of the block: what it was last used for comes first.
            let history = block.list("history").and_then(|history| history.get(0));
            let asked = match (block.field("requested_size"), history) {
                (Some(_), _) => number(block, "requested_size")?,
                (None, Some(last)) => number(last, "real_size")?,
                (None, None) => size,
            };
            let last = history.unwrap_or(block);
            let category = self.category(block);
            // Blocks without a stack have an empty one.
            let (group, stack) = match last.list("frames") {
                Some(frames) if !frames.is_empty() => self.caller(last, category),
                _ => (category, None),
            };
            self.blocks.lives_at_end(Block {
                address,
                bytes: usize::try_from(asked).unwrap_or(usize::MAX),
                stream: segment.integer("stream").unwrap_or(0).into(),
                group,
                stack,
            });
        }
        let bytes = match segment.field("total_size") {
            Some(_) => number(segment, "total_size")?,
            None => next.saturating_sub(start),
        };
        Ok((start, bytes))
    }

    /// The block of an entry, in the group of its category.
    fn block(&mut self, entry: Node<'o>, address: u64) -> Result<Block, TraceError> {
        Ok(Block {
            address,
            bytes: usize::try_from(number(entry, "size")?).unwrap_or(usize::MAX),
            stream: entry.integer("stream").unwrap_or(0).into(),
            group: self.category(entry),
            stack: None,
        })
    }

    /// Returns the group that another tool has put an object into.
    fn category(&mut self, of: Node<'o>) -> Option<u32> {
        let category = one_line(&cut(of.text("category")?, LONGEST_CATEGORY));
        (!category.is_empty()).then(|| self.blocks.group(category))
    }

    /// Returns the group and the call stack of an object with frames. A category is its group.
    fn caller(&mut self, of: Node<'o>, category: Option<u32>) -> (Option<u32>, Option<u32>) {
        let Some(frames) = of.field("frames") else {
            return (category, None);
        };
        if !self.callers.contains_key(&frames.id) {
            let caller = frames.as_list().map(|frames| self.read_frames(frames));
            self.callers.insert(frames.id, caller.unwrap_or_default());
        }
        let (name, stack) = self.callers.get(&frames.id).cloned().unwrap_or_default();
        let named = || name.map(|name| self.blocks.group(name));
        (category.or_else(named), stack)
    }

    /// Returns the group's name and the call stack of these frames.
    fn read_frames(&mut self, frames: List<'o>) -> (Option<String>, Option<u32>) {
        if frames.is_empty() {
            return (Some(WITHOUT_PYTHON.to_owned()), None);
        }
        let beyond = self.beyond;
        for frame in frames.iter() {
            let text = |key| Some((frame.field(key)?.id, frame.text(key)?));
            if let Some((path, name)) = text("filename") {
                let file = || File::new(name, beyond);
                self.files.entry(path).or_insert_with(file);
            }
            if let Some((id, name)) = text("name") {
                let function = || Function::new(name, beyond);
                self.functions.entry(id).or_insert_with(function);
            }
        }
        let frames = frames.iter().filter_map(|frame| {
            Some(Frame {
                file: self.files.get(&frame.field("filename")?.id)?,
                line: frame.integer("line")?,
                function: frame.text("name")?,
                cpp: self.functions.get(&frame.field("name")?.id)?,
            })
        });
        let frames: Vec<Frame<'_>> = frames.collect();
        let group = group_name(frames.iter().copied());
        let part = program_part(&frames);
        self.leaves_frames_out |= part.len() < frames.len();
        let stack = self.blocks.stacks.index(part.iter().map(Frame::text));
        (group, stack)
    }
}

/// The time of an entry, in nanoseconds.
fn time_of(entry: Node<'_>) -> Option<u64> {
    Some(entry.natural("time_us")?.saturating_mul(1000))
}

fn number(of: Node<'_>, key: &str) -> Result<u64, TraceError> {
    let expected = "a number from 0 to 9223372036854775807";
    of.natural(key).ok_or_else(|| error::field(key, expected))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use std::iter;

    use super::{super::pickle, *};

    /// A pickle that is written by hand, since Python would not write it.
    struct Pickle(Vec<u8>);

    impl Pickle {
        fn new() -> Self {
            Self(b"\x80\x04".to_vec())
        }

        fn text(mut self, text: &str) -> Self {
            let length = u32::try_from(text.len()).unwrap();
            self.0.push(b'X');
            self.0.extend(length.to_le_bytes());
            self.0.extend(text.as_bytes());
            self
        }

        fn number(mut self, number: usize) -> Self {
            self.0.push(b'J');
            self.0.extend(i32::try_from(number).unwrap().to_le_bytes());
            self
        }

        /// Steps as they are: `}` begins a dictionary, `]` a list, `(` marks, `u` and `e` put the items above the mark into
        /// them, `q` and a number store the top in the memo, `h` and that number push it again, `.` ends.
        fn steps(mut self, steps: &[u8]) -> Self {
            self.0.extend(steps);
            self
        }

        fn repeat(self, times: usize, step: impl Fn(Self, usize) -> Self) -> Self {
            (0..times).fold(self, step)
        }

        fn import(&self) -> (Objects, Result<Trace, TraceError>) {
            let objects = pickle::read(&*self.0).ok().unwrap();
            let trace = import(&objects, "t", None, &[]);
            (objects, trace)
        }
    }

    /// A snapshot whose only entry has `size` keys, and is in the history `size` times.
    fn one_entry_named_often(size: usize) -> Pickle {
        let entry = |pickle: Pickle| {
            // Its own fields are among the others, so that a search from either end is long.
            let others = |fields: Pickle| {
                fields.repeat(size / 2, |fields, key| fields.number(key).number(key))
            };
            let fields = others(pickle).text("action").text("alloc");
            others(fields.text("addr").number(1).text("size").number(8))
        };
        let pickle = Pickle::new().steps(b"}(").text("device_traces");
        entry(pickle.steps(b"](](}q\0("))
            .steps(b"u")
            .repeat(size, |pickle, _| pickle.steps(b"h\0"))
            .steps(b"eeu.")
    }

    #[test]
    fn an_entry_that_is_named_often_costs_what_its_names_take() {
        let cost = |size| {
            let (objects, trace) = one_entry_named_often(size).import();
            assert_eq!(trace.ok().unwrap().allocations(), size + 1);
            objects.compared.get()
        };
        let (small, large) = (cost(1000), cost(10_000));
        assert!(
            large < small * 20,
            "ten times the file: {small} keys compared, and {large}"
        );
    }

    #[test]
    fn the_last_value_of_a_key_counts() {
        let entry = |pickle: Pickle| {
            let pickle = pickle.text("action").text("oom").text("addr").number(1);
            pickle.text("size").number(8).text("action").text("alloc")
        };
        let pickle = Pickle::new().steps(b"}(").text("device_traces");
        let (_, trace) = entry(pickle.steps(b"](](}(")).steps(b"ueeu.").import();
        assert_eq!(trace.ok().unwrap().to_string(), "a 1 8 0\n");
    }

    /// Otherwise n segments of n blocks each could be written with 2n words.
    #[test]
    fn a_list_of_blocks_belongs_to_one_segment() {
        let pickle = Pickle::new().steps(b"}(").text("device_traces");
        let pickle = pickle.steps(b"](](ee").text("segments").steps(b"](");
        let block = |pickle: Pickle| pickle.steps(b"}(").text("size").number(8);
        let segments = pickle.repeat(2, |pickle, index| {
            let pickle = pickle.steps(b"}(").text("address").number(index * 4096);
            let pickle = pickle.text("blocks");
            if index > 0 {
                return pickle.steps(b"h\0u");
            }
            let block = block(pickle.steps(b"]q\0(")).text("state");
            block.text("active_allocated").steps(b"ueu")
        });
        let (_, trace) = segments.steps(b"eu.").import();
        let Err(error) = trace else {
            unreachable!("the second segment has the blocks of the first")
        };
        assert_eq!(error.place(), "segment 2");
        let expected = "expected \"blocks\" to be a list that no segment before has";
        assert_eq!(error.message(), expected);
    }

    /// A snapshot of `size` blocks, each requested in another line of a function with a long name.
    fn long_names(size: usize, name: &str) -> Pickle {
        let pickle = Pickle::new().text(name).steps(b"q\x000");
        let pickle = pickle.steps(b"}(").text("device_traces").steps(b"](](");
        let entries = pickle.repeat(size, |pickle, index| {
            let pickle = pickle.steps(b"}(").text("action").text("alloc");
            let pickle = pickle.text("addr").number(index).text("size").number(8);
            let pickle = pickle.text("frames").steps(b"](}(").text("filename");
            let pickle = pickle.steps(b"h\0").text("line").number(index);
            pickle.text("name").steps(b"h\0ueu")
        });
        entries.steps(b"eeu.")
    }

    #[test]
    fn a_long_name_is_cut_before_many_groups_have_it() {
        let name: String = iter::repeat_n('x', 60_000).chain(".py".chars()).collect();
        let (_, trace) = long_names(100, &name).import();
        let trace = trace.ok().unwrap();
        assert_eq!(trace.groups().len(), 100);
        for (line, name) in trace.groups().iter().enumerate() {
            assert!(name.contains(&format!("…:{line} xxx")), "{name}");
            assert!(
                name.ends_with("xx…") && name.chars().count() < 490,
                "{name}"
            );
        }
    }

    #[test]
    fn many_devices_make_no_long_remark() {
        let entry = |pickle: Pickle| {
            let pickle = pickle.text("action").text("alloc").text("addr");
            pickle.number(1).text("size").number(8)
        };
        let pickle = Pickle::new().steps(b"}(").text("device_traces");
        let pickle = pickle
            .steps(b"](")
            .repeat(1001, |pickle, _| entry(pickle.steps(b"](}(")).steps(b"ue"));
        let (_, trace) = pickle.steps(b"eu.").import();
        let trace = trace.ok().unwrap();
        assert!(
            trace.remarks()[1].contains("device 8 has 8 B, 992 more have some"),
            "{:?}",
            trace.remarks()
        );
    }
}
