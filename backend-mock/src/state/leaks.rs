//! The report of objects that are still alive.

use super::State;
use crate::{Holder, LeakReport, LiveMemory};

impl State {
    pub(crate) fn leaks(&self) -> LeakReport {
        let held = self.objects.iter().filter_map(|(_, object)| {
            let block = self.blocks.get(object.block)?;
            Some(LiveMemory {
                id: object.id,
                bytes: object.region.bytes,
                kind: block.kind,
                view_of: object.is_view.then_some(block.id),
                created_by_call: object.created_by_call,
                held_by: Holder::Host,
            })
        });
        let mut memory: Vec<LiveMemory> = held.collect();
        for (key, block) in self.blocks.iter() {
            let mut objects = self.objects.iter().map(|(_, object)| object);
            if objects.any(|object| object.block == key && !object.is_view) {
                continue;
            }
            memory.push(LiveMemory {
                id: block.id,
                bytes: block.bytes,
                kind: block.kind,
                view_of: None,
                created_by_call: block.created_by_call,
                held_by: Holder::Device,
            });
        }
        memory.sort_by_key(|memory| memory.created_by_call);
        LeakReport {
            memory,
            queues: self.queues.len(),
            events: self.events.len(),
        }
    }
}
