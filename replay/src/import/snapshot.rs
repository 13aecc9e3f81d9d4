//! `PyTorch`'s memory snapshots: `torch.cuda.memory._snapshot()`, pickled by `_dump_snapshot` or as JSON.
//!
//! A snapshot has a list of entries for each device, in the order of time. An allocation is an entry `alloc`. A free is two:
//! `free_requested`, when the program lets go of the block, and `free_completed`, when the allocator may hand it out again:
//! later where another stream still uses it (`record_stream`). The block ends with the second, or with the first in a
//! recording that has none of the second. `segment_alloc` and its like are the allocator's own dealings with the device: a
//! replay has others. The list may have lost its beginning, since it is bounded (`max_entries`); what of it still lives is
//! found among the blocks of `segments`.

use std::collections::HashMap;

use super::{
    ImportError,
    blocks::{Block, Blocks, Moment},
    frames::{Frame, group_name},
    objects::{Id, Objects},
};
use crate::trace::{Trace, error::ImportProblem};

/// What does not become an event.
const OTHERS: [&str; 6] = [
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "annotate",
];

/// The trace of one device of a snapshot, by default the one with most entries.
pub(crate) fn import(
    objects: &Objects,
    name: String,
    device: Option<usize>,
) -> Result<Trace, ImportError> {
    let traces = objects
        .root()
        .and_then(|root| objects.field(root, "device_traces"))
        .and_then(|traces| objects.list(traces))
        .ok_or_else(|| ImportError::at("the whole file", ImportProblem::NoSnapshot))?;
    let lengths: Vec<usize> = traces
        .iter()
        .map(|trace| objects.list(*trace).map_or(0, <[Id]>::len))
        .collect();
    let busiest = (0..lengths.len()).rev().max_by_key(|place| lengths[*place]);
    let device = device.or(busiest).unwrap_or(0);
    let entries = traces.get(device).map(|trace| objects.list(*trace));
    let Some(entries) = entries else {
        let devices = traces.len();
        let problem = ImportProblem::NoDevice { device, devices };
        return Err(ImportError::at("\"device_traces\"", problem));
    };
    let entries = entries
        .ok_or_else(|| wrong(format!("device {device}"), "its trace", "a list of entries"))?;
    let mut import = Import {
        objects,
        device,
        entries,
        blocks: Blocks::default(),
        groups: HashMap::new(),
        unknown: 0,
    };
    let is_completed = |entry: &&Id| import.action(**entry) == Some("free_completed");
    let are_completed = entries.iter().any(|entry| is_completed(&entry));
    let free = if are_completed {
        "free_completed"
    } else {
        "free_requested"
    };
    for place in 0..entries.len() {
        import.entry(place, free)?;
    }
    import.segments(are_completed)?;
    let unknown = import.unknown;
    let trace = import.blocks.into_trace(name, "entry");
    let mut trace = trace.ok_or_else(|| {
        let advice = "torch.cuda.memory._record_memory_history() has to be called before the program allocates";
        ImportError::at(
            format!("device {device}"),
            ImportProblem::NoAllocation { advice },
        )
    })?;
    if unknown > 0 {
        let entries = if unknown == 1 { "entry" } else { "entries" };
        trace.push_remark(format!(
            "{unknown} {entries} with an action that is not known: left out"
        ));
    }
    let others: Vec<String> = lengths
        .iter()
        .enumerate()
        .filter(|(other, entries)| *other != device && **entries > 0)
        .map(|(other, entries)| format!("device {other} has {entries}"))
        .collect();
    if !others.is_empty() {
        trace.push_remark(format!(
            "device {device} of {} has {} entries, and {}: `binpool import --device` takes another",
            lengths.len(),
            lengths[device],
            others.join(", ")
        ));
    }
    Ok(trace)
}

struct Import<'o> {
    objects: &'o Objects,
    device: usize,
    entries: &'o [Id],
    blocks: Blocks,
    /// The group of each stack that was looked at: many entries have the same.
    groups: HashMap<Id, Option<u32>>,
    unknown: usize,
}

impl<'o> Import<'o> {
    fn action(&self, entry: Id) -> Option<&'o str> {
        self.objects
            .field(entry, "action")
            .and_then(|action| self.objects.text(action))
    }

    fn entry(&mut self, place: usize, free: &str) -> Result<(), ImportError> {
        let entry = self.entries[place];
        let device = self.device;
        let where_is = || format!("entry {} of device {device}", place + 1);
        let action = self.action(entry);
        let action = action.ok_or_else(|| wrong(where_is(), "\"action\"", "text"))?;
        if OTHERS.contains(&action) {
            return Ok(());
        }
        let time = self.objects.field(entry, "time_us");
        let time = time.and_then(|time| self.objects.integer(time));
        let moment = Moment {
            time: time
                .and_then(|time| u64::try_from(time).ok())
                .map(|us| us.saturating_mul(1000)),
            line: place + 1,
        };
        match action {
            "alloc" => {
                let block = self.block(entry, self.number(entry, "addr", where_is)?, where_is)?;
                self.blocks.allocate(block, moment);
            }
            "free_requested" | "free_completed" if action == free => {
                let block = self.block(entry, self.number(entry, "addr", where_is)?, where_is)?;
                self.blocks.free(block, moment);
            }
            "free_requested" | "free_completed" => {}
            "oom" => {
                let block = self.block(entry, 0, where_is)?;
                self.blocks.fail(block, moment);
            }
            _ => self.unknown += 1,
        }
        Ok(())
    }

    /// What is live at the end. Blocks whose free was requested are, too, unless that is what frees.
    fn segments(&mut self, are_completed: bool) -> Result<(), ImportError> {
        let objects = self.objects;
        let field = |of: Id, key: &str| objects.field(of, key);
        let list = |of: Id, key: &str| field(of, key).and_then(|list| objects.list(list));
        let root = objects.root();
        let Some(segments) = root.and_then(|root| list(root, "segments")) else {
            return Ok(());
        };
        for (place, segment) in segments.iter().enumerate() {
            let of_device = field(*segment, "device").and_then(|device| objects.integer(device));
            if of_device.is_some_and(|device| usize::try_from(device) != Ok(self.device)) {
                continue;
            }
            let where_is = || format!("segment {}", place + 1);
            let mut next = self.number(*segment, "address", where_is)?;
            let stream = field(*segment, "stream").and_then(|stream| objects.integer(stream));
            for block in list(*segment, "blocks").unwrap_or_default() {
                let size = self.number(*block, "size", where_is)?;
                // Before PyTorch 2.1, blocks had no addresses, but come one after another.
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
                    let asked = match field(*block, "requested_size") {
                        Some(_) => self.number(*block, "requested_size", where_is)?,
                        None => size,
                    };
                    let block = Block {
                        address,
                        bytes: usize::try_from(asked).unwrap_or(usize::MAX),
                        stream: stream.unwrap_or(0).into(),
                        group: self.group(*block),
                    };
                    self.blocks.lives_at_end(block);
                }
            }
        }
        Ok(())
    }

    fn block(
        &mut self,
        entry: Id,
        address: u64,
        where_is: impl Fn() -> String,
    ) -> Result<Block, ImportError> {
        let bytes = self.number(entry, "size", where_is)?;
        let stream = self.objects.field(entry, "stream");
        let stream = stream.and_then(|stream| self.objects.integer(stream));
        Ok(Block {
            address,
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            stream: stream.unwrap_or(0).into(),
            group: self.group(entry),
        })
    }

    fn number(
        &self,
        of: Id,
        field: &'static str,
        where_is: impl Fn() -> String,
    ) -> Result<u64, ImportError> {
        let number = self.objects.field(of, field);
        let number = number.and_then(|number| self.objects.integer(number));
        number
            .and_then(|number| u64::try_from(number).ok())
            .ok_or_else(|| wrong(where_is(), field, "a number from 0 to 9223372036854775807"))
    }

    /// The group of what has these frames.
    fn group(&mut self, of: Id) -> Option<u32> {
        let objects = self.objects;
        let stack = objects.field(of, "frames")?;
        if let Some(known) = self.groups.get(&stack) {
            return *known;
        }
        let text = |frame: Id, key: &str| {
            let value = objects.field(frame, key)?;
            objects.text(value)
        };
        let frames = objects.list(stack)?.iter().filter_map(|frame| {
            Some(Frame {
                file: text(*frame, "filename")?,
                line: objects.integer(objects.field(*frame, "line")?)?,
                function: text(*frame, "name")?,
            })
        });
        let group = group_name(frames).map(|name| self.blocks.group(name));
        self.groups.insert(stack, group);
        group
    }
}

fn wrong(place: String, field: &'static str, expected: &'static str) -> ImportError {
    ImportError::at(place, ImportProblem::Field { field, expected })
}
