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

use super::{
    blocks::{Block, Blocks, Moment},
    cpp::Function,
    frames::{File, Frame, group_name, one_line, program_part},
    kinds::foreign_document,
    notes::{Notes, note_text},
    objects::{Id, Objects},
    places::{Change, Told},
    placing::Source,
};
use crate::{Trace, TraceError, TraceErrorKind, name::cut, trace::SNAPSHOT_OF_PYTORCH};

/// The most other devices that a remark names.
const OTHERS_NAMED: usize = 8;

/// The group of blocks from before the recording whose stacks it does not have.
const OLDER: &str = "(older than the recording)";

/// The group of blocks with an empty stack.
const WITHOUT_PYTHON: &str = "(a thread without Python, such as that of the backward pass)";

/// The group of blocks without a stack.
const WITHOUT_STACK: &str = "(recorded without call stacks)";

/// The most characters of a category that count.
const LONGEST_CATEGORY: usize = 240;

/// Where a document has what a snapshot says.
struct Snapshot<'o> {
    /// The list of entries of each device.
    traces: &'o [Id],
    /// Whether any has some.
    has_entries: bool,
    /// The segments of each device, with their numbers, counted from 1. Those that name no device are of device 0.
    segments: BTreeMap<usize, Vec<(usize, Id)>>,
    /// Whether there is a list of them.
    lists_segments: bool,
}

impl<'o> Snapshot<'o> {
    fn of(objects: &'o Objects) -> Result<Self, TraceError> {
        let root = objects.root();
        let list = |key: &str| objects.list(objects.field(root?, key)?);
        let is_segment = |item: &Id| {
            let has = |key| objects.field(*item, key).is_some();
            has("address") && has("blocks")
        };
        let bare = root.and_then(|root| objects.list(root));
        let bare = bare.filter(|list| list.first().is_some_and(is_segment));
        let (traces, listed) = (list("device_traces"), list("segments").or(bare));
        if traces.is_none() && listed.is_none_or(<[Id]>::is_empty) {
            return Err(foreign_document(objects).at("the whole file"));
        }
        let traces = traces.unwrap_or_default();
        let mut segments: BTreeMap<usize, Vec<(usize, Id)>> = BTreeMap::new();
        for (number, segment) in (1..).zip(listed.unwrap_or_default()) {
            let device = objects.field(*segment, "device");
            let device = device.and_then(|device| objects.integer(device));
            if let Ok(device) = usize::try_from(device.unwrap_or(0)) {
                segments.entry(device).or_default().push((number, *segment));
            }
        }
        let has_some = |trace: &Id| objects.list(*trace).is_some_and(|list| !list.is_empty());
        Ok(Self {
            traces,
            has_entries: traces.iter().any(has_some),
            segments,
            lists_segments: listed.is_some(),
        })
    }

    /// The numbers of all devices, each with how much is known of it: its entries, or its segments if no device has entries.
    fn devices(&self, objects: &Objects) -> BTreeMap<usize, usize> {
        let entries = |trace: &Id| objects.list(*trace).map_or(0, <[Id]>::len);
        let mut devices: BTreeMap<usize, usize> =
            self.traces.iter().map(entries).enumerate().collect();
        for (device, segments) in &self.segments {
            let amount = devices.entry(*device).or_default();
            if !self.has_entries {
                *amount = segments.len();
            }
        }
        devices
    }
}

/// Reads the trace of each device of a snapshot that allocates something, in their order, with its number; the error of the device
/// of which most is known where there is none. `beyond` are the packages that groups are named beyond.
pub(crate) fn import_all(
    objects: &Objects,
    name: &str,
    beyond: &[String],
) -> Result<Vec<(usize, Trace)>, TraceError> {
    let snapshot = Snapshot::of(objects)?;
    let mut lists_seen = HashSet::new();
    let mut all = Vec::new();
    for (device, amount) in snapshot.devices(objects) {
        if amount == 0 {
            continue;
        }
        // PyTorch never writes this, and a small file could otherwise stand for more entries than fit into memory.
        let entries = snapshot.traces.get(device);
        let entries = entries.filter(|_| snapshot.has_entries);
        if entries.is_some_and(|entries| !lists_seen.insert(entries)) {
            let expected = "a list that no device before has";
            return Err(wrong(format!("device {device}"), "its trace", expected));
        }
        match import_device(objects, name, &snapshot, device, beyond) {
            Ok(trace) => all.push((device, trace)),
            Err(error) if error.kind() == TraceErrorKind::NoAllocation => {}
            Err(error) => return Err(error),
        }
    }
    if all.is_empty() {
        all.push((0, import(objects, name, None, beyond)?));
    }
    Ok(all)
}

/// Reads the trace of one device of a snapshot, by default the one of which most is known, which then remarks which others there are.
pub(crate) fn import(
    objects: &Objects,
    name: &str,
    device: Option<usize>,
    beyond: &[String],
) -> Result<Trace, TraceError> {
    let snapshot = Snapshot::of(objects)?;
    let amounts = snapshot.devices(objects);
    let busiest = amounts.iter().rev().max_by_key(|(_, amount)| *amount);
    let (busiest, amount) = busiest.map_or((0, 0), |(device, amount)| (*device, *amount));
    let chosen = device.unwrap_or(busiest);
    let mut trace = import_device(objects, name, &snapshot, chosen, beyond)?;
    if device.is_some() {
        return Ok(trace);
    }
    let mut others = amounts
        .iter()
        .filter(|(other, amount)| **other != chosen && **amount > 0)
        .map(|(other, amount)| format!("device {other} has {amount}"));
    let mut named: Vec<String> = others.by_ref().take(OTHERS_NAMED).collect();
    if !named.is_empty() {
        let more = others.count();
        if more > 0 {
            named.push(format!("{more} more have some"));
        }
        let unit = if snapshot.has_entries {
            "entries"
        } else {
            "segments"
        };
        trace.push_remark(format!(
            "device {chosen} of {} has {amount} {unit}, and {}: `binpool import --device` takes another",
            amounts.len(),
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
        let devices = snapshot.devices(objects).len();
        return Err(TraceError::no_device(device, devices).at("the whole file"));
    }
    let entries = match snapshot.traces.get(device) {
        Some(trace) => objects
            .list(*trace)
            .ok_or_else(|| wrong(format!("device {device}"), "its trace", "a list of entries"))?,
        None => &[],
    };
    let start = entries.first().and_then(|entry| time_of(objects, *entry));
    let mut import = Import {
        objects,
        device,
        entries,
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
    let is_completed = |entry: &&Id| import.action(**entry) == Some("free_completed");
    let are_completed = entries.iter().any(|entry| is_completed(&entry));
    let free = if are_completed {
        "free_completed"
    } else {
        "free_requested"
    };
    for index in 0..entries.len() {
        import.entry(index, free)?;
    }
    for (what, text, moment) in import.notes.rest() {
        import.blocks.note(what, text, moment);
    }
    let segments = snapshot.segments.get(&device).map(Vec::as_slice);
    let listed = snapshot
        .lists_segments
        .then(|| segments.unwrap_or_default());
    import.segments(listed, are_completed)?;
    import.settings();
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
        TraceError::no_allocation(advice).at(format!("device {device}"))
    })?;
    if unknown > 0 {
        let entries = if unknown == 1 { "entry" } else { "entries" };
        trace.push_remark(format!(
            "{unknown} {entries} with an action that is not known: left out"
        ));
    }
    if leaves_frames_out {
        let remark = "call stacks begin and end with the program's own code: frames of libraries at their ends are left out";
        trace.push_remark(remark.into());
    }
    Ok(trace)
}

struct Import<'o> {
    objects: &'o Objects,
    device: usize,
    entries: &'o [Id],
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
    fn action(&self, entry: Id) -> Option<&'o str> {
        self.objects
            .field(entry, "action")
            .and_then(|action| self.objects.text(action))
    }

    /// Returns whether the entry behind this one is the second free of the block at this address.
    fn is_completed_next(&self, index: usize, address: u64) -> bool {
        let next = self.entries.get(index + 1).copied();
        next.is_some_and(|next| {
            let there = self.objects.field(next, "addr");
            let there = there.and_then(|there| self.objects.integer(there));
            self.action(next) == Some("free_completed")
                && there.and_then(|there| u64::try_from(there).ok()) == Some(address)
        })
    }

    fn entry(&mut self, index: usize, free: &str) -> Result<(), TraceError> {
        let entry = self.entries[index];
        let device = self.device;
        let where_is = || format!("entry {} of device {device}", index + 1);
        let action = self.action(entry);
        let action = action.ok_or_else(|| wrong(where_is(), "\"action\"", "text"))?;
        let moment = Moment {
            time: time_of(self.objects, entry),
            line: index + 1,
        };
        while let Some((what, text, moment)) = self.notes.before(moment) {
            self.blocks.note(what, text, moment);
        }
        match action {
            "alloc" => {
                let mut block =
                    self.block(entry, self.number(entry, "addr", where_is)?, where_is)?;
                (block.group, block.stack) = self.caller(entry, block.group);
                self.blocks.allocate(block, moment);
            }
            "free_requested" | "free_completed" if action == free => {
                // The stack may be the one that freed it.
                let block = self.block(entry, self.number(entry, "addr", where_is)?, where_is)?;
                self.blocks.free(block, moment);
            }
            // The allocator has most blocks at once.
            "free_requested" if free != action => {
                let address = self.number(entry, "addr", where_is)?;
                if !self.is_completed_next(index, address) {
                    self.blocks.wait(address, moment);
                }
            }
            "free_requested" | "free_completed" => {}
            "oom" => {
                let mut block = self.block(entry, 0, where_is)?;
                (block.group, block.stack) = self.caller(entry, block.group);
                let free = self.objects.field(entry, "device_free");
                let free = free.and_then(|free| self.objects.integer(free));
                let free = free.and_then(|free| u64::try_from(free).ok());
                self.blocks.fail(block, free, moment);
            }
            "segment_alloc" | "segment_map" => {
                self.told.expandable |= action == "segment_map";
                let (address, bytes) = self.range(entry, where_is)?;
                self.blocks.change(Change::Taken(address, bytes), moment);
            }
            "segment_free" | "segment_unmap" => {
                let (address, bytes) = self.range(entry, where_is)?;
                self.blocks
                    .change(Change::GivenBack(address, bytes), moment);
            }
            "snapshot" => self.blocks.note("snapshot", Rc::from(""), moment),
            "annotate" | "user_defined" => {
                let text = self.objects.field(entry, "user_metadata");
                // A trace without times has no notes with texts.
                let text = text.filter(|_| moment.time.is_some());
                let text = note_text(text.and_then(|text| self.objects.text(text)));
                self.blocks.note("annotate", text, moment);
            }
            _ => self.unknown += 1,
        }
        Ok(())
    }

    /// Adds the blocks that are live at the end. Those with a requested free count as live if frees are completed separately.
    fn segments(
        &mut self,
        segments: Option<&[(usize, Id)]>,
        are_completed: bool,
    ) -> Result<(), TraceError> {
        let objects = self.objects;
        let field = |of: Id, key: &str| objects.field(of, key);
        let Some(segments) = segments else {
            return Ok(());
        };
        let mut lists_seen = HashSet::new();
        let mut known = Vec::new();
        for (number, segment) in segments {
            let where_is = || format!("segment {number}");
            let address = self.number(*segment, "address", where_is)?;
            let mut next = address;
            let stream = field(*segment, "stream").and_then(|stream| objects.integer(stream));
            let blocks = field(*segment, "blocks");
            // PyTorch never writes this, and a small file could otherwise stand for more blocks than fit into memory.
            if blocks.is_some_and(|blocks| !lists_seen.insert(blocks)) {
                let expected = "a list that no segment before has";
                return Err(wrong(where_is(), "\"blocks\"", expected));
            }
            let blocks = blocks.and_then(|blocks| objects.list(blocks));
            for block in blocks.unwrap_or_default() {
                let size = self.number(*block, "size", where_is)?;
                // Before PyTorch 2.1, blocks had no addresses, but follow one another.
                let address = match field(*block, "address") {
                    Some(_) => self.number(*block, "address", where_is)?,
                    None => next,
                };
                next = address.saturating_add(size);
                let state = field(*block, "state").and_then(|state| objects.text(state));
                let is_live = match state {
                    Some("active_allocated") => true,
                    Some("active_pending_free" | "active_awaiting_free") => are_completed,
                    _ => false,
                };
                if is_live {
                    self.told.blocks.insert(address, size);
                    // Before PyTorch 2.1, the requested size and the stack were in a history of the block.
                    let history = self.history(*block);
                    let asked = match (field(*block, "requested_size"), history) {
                        (Some(_), _) => self.number(*block, "requested_size", where_is)?,
                        (None, Some(last)) => self.number(last, "real_size", where_is)?,
                        (None, None) => size,
                    };
                    let last = history.unwrap_or(*block);
                    let frames = field(last, "frames").and_then(|list| objects.list(list));
                    let category = self.category(*block);
                    // Blocks without a stack have an empty one.
                    let (group, stack) = match frames {
                        Some([_, ..]) => self.caller(last, category),
                        _ => (category, None),
                    };
                    let block = Block {
                        address,
                        bytes: usize::try_from(asked).unwrap_or(usize::MAX),
                        stream: stream.unwrap_or(0).into(),
                        group,
                        stack,
                    };
                    self.blocks.lives_at_end(block);
                }
            }
            let bytes = match field(*segment, "total_size") {
                Some(_) => self.number(*segment, "total_size", where_is)?,
                None => next.saturating_sub(address),
            };
            known.push((address, bytes));
        }
        self.told.segments = Some(known);
        Ok(())
    }

    /// Reads the settings of the allocator that say which bytes a block takes.
    fn settings(&mut self) {
        let objects = self.objects;
        let settings = objects.root();
        let settings = settings.and_then(|root| objects.field(root, "allocator_settings"));
        let setting = |key: &str| objects.field(settings?, key);
        let most = setting("max_split_size").and_then(|most| objects.integer(most));
        // -1 stands for none.
        self.told.never_split = most.and_then(|most| u64::try_from(most).ok());
    }

    fn range(&self, entry: Id, where_is: impl Fn() -> String) -> Result<(u64, u64), TraceError> {
        let address = self.number(entry, "addr", &where_is)?;
        Ok((address, self.number(entry, "size", where_is)?))
    }

    /// The block of an entry, in the group of its category.
    fn block(
        &mut self,
        entry: Id,
        address: u64,
        where_is: impl Fn() -> String,
    ) -> Result<Block, TraceError> {
        let bytes = self.number(entry, "size", where_is)?;
        let stream = self.objects.field(entry, "stream");
        let stream = stream.and_then(|stream| self.objects.integer(stream));
        Ok(Block {
            address,
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            stream: stream.unwrap_or(0).into(),
            group: self.category(entry),
            stack: None,
        })
    }

    fn number(
        &self,
        of: Id,
        field: &'static str,
        where_is: impl Fn() -> String,
    ) -> Result<u64, TraceError> {
        let number = self.objects.field(of, field);
        let number = number.and_then(|number| self.objects.integer(number));
        number
            .and_then(|number| u64::try_from(number).ok())
            .ok_or_else(|| wrong(where_is(), field, "a number from 0 to 9223372036854775807"))
    }

    /// Returns what a block of an old version was last used for.
    fn history(&self, block: Id) -> Option<Id> {
        let history = self.objects.list(self.objects.field(block, "history")?)?;
        history.first().copied()
    }

    /// Returns the group that another tool has put an object into.
    fn category(&mut self, of: Id) -> Option<u32> {
        let category = self.objects.text(self.objects.field(of, "category")?)?;
        let category = one_line(&cut(category, LONGEST_CATEGORY));
        (!category.is_empty()).then(|| self.blocks.group(category))
    }

    /// Returns the group and the call stack of an object with frames. A category is its group.
    fn caller(&mut self, of: Id, category: Option<u32>) -> (Option<u32>, Option<u32>) {
        let Some(frames) = self.objects.field(of, "frames") else {
            return (category, None);
        };
        if !self.callers.contains_key(&frames) {
            let caller = self.read_frames(frames).unwrap_or_default();
            self.callers.insert(frames, caller);
        }
        let (name, stack) = self.callers.get(&frames).cloned().unwrap_or_default();
        let named = || name.map(|name| self.blocks.group(name));
        (category.or_else(named), stack)
    }

    fn read_frames(&mut self, stack: Id) -> Option<(Option<String>, Option<u32>)> {
        let objects = self.objects;
        let text = |frame: Id, key: &str| {
            let value = objects.field(frame, key)?;
            Some((value, objects.text(value)?))
        };
        let frames = objects.list(stack)?;
        if frames.is_empty() {
            return Some((Some(WITHOUT_PYTHON.to_owned()), None));
        }
        let beyond = self.beyond;
        for (path, name) in frames.iter().filter_map(|frame| text(*frame, "filename")) {
            let file = || File::new(name, beyond);
            self.files.entry(path).or_insert_with(file);
        }
        for (id, name) in frames.iter().filter_map(|frame| text(*frame, "name")) {
            let function = || Function::new(name, beyond);
            self.functions.entry(id).or_insert_with(function);
        }
        let frames = frames.iter().filter_map(|frame| {
            let (id, function) = text(*frame, "name")?;
            Some(Frame {
                file: self.files.get(&text(*frame, "filename")?.0)?,
                line: objects.integer(objects.field(*frame, "line")?)?,
                function,
                cpp: self.functions.get(&id)?,
            })
        });
        let frames: Vec<Frame<'_>> = frames.collect();
        let group = group_name(frames.iter().copied());
        let part = program_part(&frames);
        self.leaves_frames_out |= part.len() < frames.len();
        Some((
            group,
            self.blocks.stacks.index(part.iter().map(Frame::text)),
        ))
    }
}

/// The time of an entry, in nanoseconds.
fn time_of(objects: &Objects, entry: Id) -> Option<u64> {
    let time = objects.integer(objects.field(entry, "time_us")?)?;
    u64::try_from(time).ok().map(|us| us.saturating_mul(1000))
}

fn wrong(place: String, field: &'static str, expected: &'static str) -> TraceError {
    TraceError::field(field, expected).at(place)
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
        let pickle = entry(pickle.steps(b"](]q\0(}(")).steps(b"ue");
        let pickle = pickle.repeat(1000, |pickle, _| pickle.steps(b"h\0"));
        let (_, trace) = pickle.steps(b"eu.").import();
        let trace = trace.ok().unwrap();
        assert!(
            trace.remarks()[1].contains("device 8 has 1, 992 more have some"),
            "{:?}",
            trace.remarks()
        );
    }
}
