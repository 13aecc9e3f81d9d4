//! PyTorch's memory snapshots: `torch.cuda.memory._snapshot()`.

use serde_json::{Value, json};

use super::{
    History, Recorder, Tells, What,
    allocator::{Note, Segment},
    rmm::STREAMS,
};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Json,
    Pickle,
}

#[derive(Debug)]
pub(crate) struct PyTorch {
    pub(crate) form: Form,
    pub(crate) has_stacks: bool,
    pub(crate) has_times: bool,
    /// Before PyTorch 2.1, blocks of segments had no addresses, and their size and stack were in a history.
    pub(crate) is_old: bool,
}

/// Notes that the program made with its profiler are in a list of their own.
fn is_entry(what: &What) -> bool {
    !matches!(what, What::Noted(Note::Begin | Note::End))
}

/// Site 0 has a stack without Python.
fn frames(site: usize) -> Value {
    let frame =
        |file: &str, line: usize, name: &str| json!({"filename": file, "line": line, "name": name});
    match site {
        0 => json!([]),
        _ => json!([
            frame("/pytorch/c10/cuda/CUDACachingAllocator.cpp", 1204, "malloc"),
            frame("/home/ada/model/layers.py", 10 + site, "forward"),
            frame("/home/ada/model/train.py", 77, "<module>"),
        ]),
    }
}

impl PyTorch {
    fn entry(&self, history: &History, (time, what): &(u64, What)) -> Value {
        let of = |block: &usize| {
            let block = history.blocks[*block];
            (block.address, block.requested, block.stream)
        };
        let expandable = history.is_expandable;
        let (action, (address, bytes, stream)) = match what {
            What::Taken(address, bytes, stream) => {
                let action = ["segment_alloc", "segment_map"][usize::from(expandable)];
                (action, (*address, *bytes, *stream))
            }
            What::GivenBack(address, bytes, stream) => {
                let action = ["segment_free", "segment_unmap"][usize::from(expandable)];
                (action, (*address, *bytes, *stream))
            }
            What::Allocated(block) => ("alloc", of(block)),
            What::Requested(block) => ("free_requested", of(block)),
            What::Freed(block) => ("free_completed", of(block)),
            What::Refused {
                requested, stream, ..
            } => ("oom", (0, *requested, *stream)),
            What::Noted(Note::Snapshot) => ("snapshot", (0, 0, 0)),
            What::Noted(_) => ("user_defined", (0, 0, 0)),
        };
        let mut entry = json!({"action": action, "size": bytes, "stream": STREAMS[stream]});
        let site = match what {
            What::Allocated(block) => Some(history.blocks[*block].site),
            What::Refused { site, .. } => Some(*site),
            // The stack that frees a block may be another one.
            What::Freed(_) | What::Requested(_) => Some(2),
            _ => None,
        };
        match what {
            What::Refused { device_free, .. } => entry["device_free"] = json!(device_free),
            _ => entry["addr"] = json!(address),
        }
        if let What::Noted(_) = what {
            entry["user_metadata"] = json!("a  note\n");
        }
        if self.has_times {
            entry["time_us"] = json!(time);
        }
        if let Some(site) = site.filter(|_| self.has_stacks) {
            entry["frames"] = frames(site);
        }
        entry
    }

    /// The blocks of a part of the memory, in the order of their addresses.
    fn blocks(&self, history: &History, start: u64, bytes: u64) -> Vec<Value> {
        let ranges = history.ranges.range(start..start + bytes);
        let block = |(address, range): (&u64, &super::allocator::Range)| {
            let Some(block) = range.block else {
                let mut free = json!({"size": range.bytes, "state": "inactive"});
                if !self.is_old {
                    free["address"] = json!(address);
                    free["requested_size"] = json!(0);
                }
                return free;
            };
            let block = history.blocks[block];
            let waiting = ["active_pending_free", "active_awaiting_free"][block.site % 2];
            let state = if range.waits {
                waiting
            } else {
                "active_allocated"
            };
            let mut listed = json!({"size": range.bytes, "state": state});
            let of = if self.is_old {
                listed["history"] = json!([{"addr": address, "real_size": block.requested}, {"addr": 7, "real_size": 7}]);
                &mut listed["history"][0]
            } else {
                listed["address"] = json!(address);
                listed["requested_size"] = json!(block.requested);
                &mut listed
            };
            if self.has_stacks {
                of["frames"] = frames(block.site);
            }
            listed
        };
        ranges.map(block).collect()
    }

    fn segments(&self, device: usize, history: &History) -> Vec<Value> {
        let mut segments: Vec<(u64, Segment)> = Vec::new();
        for (address, segment) in &history.segments {
            match segments.last_mut() {
                // A segment that grows is one.
                Some((start, last))
                    if history.is_expandable
                        && *start + last.bytes == *address
                        && last.pool == segment.pool =>
                {
                    last.bytes += segment.bytes;
                }
                _ => segments.push((*address, segment.clone())),
            }
        }
        let listed = segments.iter().map(|(address, segment)| {
            let Segment { bytes, pool } = segment;
            let blocks = self.blocks(history, *address, *bytes);
            let mut listed = json!({
                "address": address, "stream": STREAMS[pool.stream], "blocks": blocks, "is_expandable": history.is_expandable,
                "segment_pool_id": [0, i32::from(pool.is_private)],
            });
            if !self.is_old {
                listed["total_size"] = json!(bytes);
            }
            // Those of device 0 need not say so.
            if device > 0 {
                listed["device"] = json!(device);
            }
            listed
        });
        listed.collect()
    }
}

impl Recorder for PyTorch {
    fn devices(&self, of: usize) -> usize {
        of
    }

    fn tells(&self, history: &History) -> Tells {
        let is_completed = |(_, what): &(u64, What)| matches!(what, What::Freed(_));
        let has_entries = history.recorded().iter().any(|(_, what)| is_entry(what));
        let completions = history.recorded().iter().any(is_completed);
        // Such entries say it, and the segments at the end.
        let is_taken = |(_, what): &(u64, What)| matches!(what, What::Taken(..));
        let grows = history.recorded().iter().any(is_taken) || !history.segments.is_empty();
        Tells {
            places: true,
            is_exact: completions && (!history.is_expandable || grows),
            completions,
            ends: true,
            entries: has_entries,
            stacks: self.has_stacks,
            threads: false,
            times: self.has_times && has_entries,
        }
    }

    fn write(&self, histories: &[History]) -> Vec<u8> {
        let entries = |history: &History| {
            let recorded = history.recorded().iter();
            let own = recorded.filter(|(_, what)| is_entry(what));
            own.map(|it| self.entry(history, it)).collect::<Vec<_>>()
        };
        let traces: Vec<_> = histories.iter().map(entries).collect();
        let all = || histories.iter().enumerate();
        let segments = all().flat_map(|(device, history)| self.segments(device, history));
        let notes = all().flat_map(|(device, history)| {
            let note = move |(time, what): &(u64, What)| {
                let stage = match what {
                    What::Noted(Note::Begin) => "START",
                    What::Noted(Note::End) => "END",
                    _ => return None,
                };
                Some(json!({"stage": stage, "name": "step", "device": device, "time_us": time}))
            };
            // Newer ones first: they have no order.
            history.happened.iter().rev().filter_map(note)
        });
        // One setting for all devices.
        let never_split = histories[0].never_split;
        let snapshot = json!({
            "device_traces": traces,
            "segments": segments.collect::<Vec<_>>(),
            "external_annotations": notes.collect::<Vec<_>>(),
            "allocator_settings": {"max_split_size": never_split.map_or(json!(-1), |most| json!(most))},
        });
        match self.form {
            Form::Json => snapshot.to_string().into_bytes(),
            Form::Pickle => {
                serde_pickle::to_vec(&snapshot, serde_pickle::SerOptions::new()).unwrap()
            }
        }
    }
}
