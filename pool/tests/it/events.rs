//! The events and spans that others rely on: their levels, names and fields. The guide's chapter `inspecting` lists them.

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
};

use binpool::{Backend, ImmediateAllocator, MemoryPool, PoolOptions, QueueOrder, WatchOptions};
use binpool_mock::{Completion, MockBackend, MockDevice};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
    registry::LookupSpan,
};

use crate::common::log::told;

type Pool = MemoryPool<MockBackend>;

/// The guide's table of events.
const GUIDE: &str = include_str!("../../guide/inspecting.md");

/// Fails unless the guide has the event with all its fields.
fn check_in_guide(level: &str, message: &str, fields: &[&str]) {
    let level = level.to_lowercase();
    let found = GUIDE.lines().find_map(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let named = cells.next()? == level && {
            let name = cells.next()?.split('`').nth(1)?;
            message.starts_with(name.trim_end_matches("...").trim_end())
        };
        named.then(|| cells.next().unwrap())
    });
    let listed = found.unwrap_or_else(|| panic!("the guide has no {level} event {message:?}"));
    for field in fields {
        let quoted = format!("`{field}`");
        assert!(listed.contains(&quoted), "{message}: {field}: {listed}");
    }
}

fn pool_of(capacity_bytes: u64, options: PoolOptions) -> Pool {
    let device = MockDevice::builder().capacity_bytes(capacity_bytes).build();
    let backend = device.backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    options
        .build(ImmediateAllocator::new(&backend).unwrap(), &queue)
        .unwrap()
}

/// Notes each event as `LEVEL span: message field field`.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

#[derive(Default)]
struct Fields {
    message: String,
    names: Vec<&'static str>,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => write!(self.message, "{value:?}").unwrap(),
            name => self.names.push(name),
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Notes {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        if !metadata.target().starts_with("binpool") {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let span = context.event_span(event).map_or("", |span| span.name());
        let message = fields.message.lines().next().unwrap_or_default();
        check_in_guide(metadata.level().as_str(), message, &fields.names);
        let note = format!(
            "{} {span}: {message} {}",
            metadata.level(),
            fields.names.join(" ")
        );
        self.0.lock().unwrap().push(note.trim().to_owned());
    }
}

fn events(run: impl FnOnce()) -> Vec<String> {
    let notes = Notes::default();
    let subscriber = tracing_subscriber::registry().with(notes.clone());
    told(subscriber, run);
    let notes = notes.0.lock().unwrap();
    notes.clone()
}

#[test]
fn a_miss_and_a_hit_are_told_in_detail_only() {
    for (segments, miss) in [
        (false, "DEBUG : miss asked bytes"),
        (true, "DEBUG : new segment asked bytes"),
    ] {
        let seen = events(|| {
            let pool = pool_of(1 << 30, PoolOptions::new().segments(segments));
            drop(pool.allocate(100).unwrap());
            drop(pool.allocate(100).unwrap());
        });
        let allocated = "TRACE : allocated asked bytes";
        assert_eq!(seen, [miss, allocated, allocated]);
    }
}

#[test]
fn a_shortage_is_a_span_and_its_end_a_warning() {
    let seen = events(|| {
        let pool = pool_of(1 << 20, PoolOptions::new());
        let _block = pool.allocate(1 << 20).unwrap();
        pool.allocate(4096).unwrap_err();
    });
    assert!(
        seen.contains(&"DEBUG reclaim: reclaiming bytes refusal".into()),
        "{seen:#?}"
    );
    assert!(
        seen.contains(&"WARN reclaim: out of memory requested_bytes active_bytes held_bytes pending_bytes capacity_bytes verdict"
                .into()),
        "{seen:#?}"
    );
}

#[test]
fn a_wait_on_a_full_device_names_the_queue() {
    let seen = events(|| {
        let builder = MockDevice::builder().capacity_bytes(1 << 20);
        let backend = builder.completion(Completion::Manual).build().backend();
        let [one, other] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
        let pool = MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &one).unwrap();
        let block = pool.allocate(1 << 20).unwrap();
        block.enqueue_fill(&one, .., &[1_u8]).unwrap();
        drop(block);
        drop(pool.allocate_on(&other, 1 << 20).unwrap());
    });
    let wait = "DEBUG reclaim: waiting for a queue that holds memory back queue_key";
    assert!(seen.contains(&wait.into()), "{seen:#?}");
}

#[test]
fn what_bins_give_back_is_told_in_detail() {
    let seen = events(|| {
        let pool = pool_of(1 << 30, PoolOptions::new().segments(false));
        drop(pool.allocate(100 << 20).unwrap());
        drop(pool.allocate(200 << 20).unwrap());
    });
    let given_back = "DEBUG : released memory above the high water mark bytes";
    assert!(seen.contains(&given_back.into()), "{seen:#?}");
}

#[test]
fn what_goes_back_by_itself_is_told_in_detail() {
    let seen = events(|| {
        let pool = pool_of(1 << 30, PoolOptions::new());
        drop(pool.allocate(1 << 20).unwrap());
        assert_eq!(pool.sweep(), 0);
        assert!(pool.sweep() > 0);
    });
    assert!(
        seen.contains(&"DEBUG : released idle memory bytes".into()),
        "{seen:#?}"
    );
}

#[test]
fn blocks_that_outlive_a_watching_pool_are_a_warning() {
    let seen = events(|| {
        let pool = pool_of(1 << 30, PoolOptions::new());
        pool.watch(WatchOptions::new());
        let block = pool.allocate(100).unwrap();
        drop(pool);
        drop(block);
    });
    let warning = "WARN : blocks are still in use after the last handle of their pool was dropped: blocks bytes";
    assert!(seen.contains(&warning.into()), "{seen:#?}");
}

#[cfg(feature = "snapshot")]
#[test]
fn a_snapshot_that_is_written_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let seen = events(|| {
        let options = PoolOptions::new().snapshot_at_out_of_memory(directory.path());
        pool_of(1 << 20, options).allocate(2 << 20).unwrap_err();
    });
    let warning = "WARN : wrote a snapshot: `binpool view` shows it path";
    assert!(seen.contains(&warning.into()), "{seen:#?}");
}
