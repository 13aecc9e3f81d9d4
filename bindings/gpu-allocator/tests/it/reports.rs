//! What is said about allocations: reports, names, what is logged, and how the host sees their bytes.

use std::cell::RefCell;

use binpool_gpu_allocator::{
    AllocationReport, AllocatorDebugSettings, AllocatorReport, MemoryBlockReport, MemoryLocation,
    vulkan::Allocation,
};
use log::{Level, LevelFilter, Log, Metadata, Record};
use presser::Slab;

use crate::{allocator, allocator_with, common, part};

thread_local! {
    static LOGGED: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
}

struct Logger;

impl Log for Logger {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if record.target().starts_with("binpool_gpu_allocator") {
            let line = (record.level(), record.args().to_string());
            LOGGED.with_borrow_mut(|lines| lines.push(line));
        }
    }

    fn flush(&self) {}
}

/// What this crate logs on this thread during a call.
fn logged(work: impl FnOnce()) -> Vec<(Level, String)> {
    // One of the tests is the first.
    let _is_set = log::set_logger(&Logger);
    log::set_max_level(LevelFilter::Trace);
    LOGGED.take();
    work();
    LOGGED.take()
}

/// No settings but those that a test changes.
fn quiet() -> AllocatorDebugSettings {
    let mut settings = AllocatorDebugSettings::default();
    settings.log_leaks_on_shutdown = false;
    settings
}

#[test]
fn a_report_has_each_allocation_in_its_memory_by_its_offset() {
    let parts = common::parts();
    let allocator = allocator(&parts);
    assert_eq!(
        (
            allocator.capacity(),
            allocator.generate_report().blocks.len()
        ),
        (0, 0)
    );
    let sizes = [1000, 70_000, 3, 200_000, 256];
    let mut all: Vec<_> = sizes
        .into_iter()
        .flat_map(|size| [(size, 16), (size, 1 << 16)])
        .map(|(size, alignment)| {
            let desc = part(size, alignment, MemoryLocation::CpuToGpu);
            (alignment, allocator.allocate(&desc).unwrap())
        })
        .collect();
    for (number, (_, allocation)) in all.iter_mut().enumerate() {
        allocator
            .rename_allocation(allocation, &format!("{number}"))
            .unwrap();
    }
    let (_, freed) = all.remove(4);
    allocator.free(freed).unwrap();
    let report = allocator.generate_report();
    assert!(report.blocks.len() >= 2, "two pools have memory");
    let mut next = 0;
    for block in &report.blocks {
        assert_eq!(block.allocations.start, next);
        next = block.allocations.end;
        let of_block = &report.allocations[block.allocations.clone()];
        assert!(of_block.is_sorted_by_key(|one| one.offset));
        let mut memories = Vec::new();
        for one in of_block {
            let number: usize = one.name.parse().unwrap();
            assert_ne!(number, 4);
            let (_, allocation) = &all[if number > 4 { number - 1 } else { number }];
            assert_eq!(
                (one.offset, one.size),
                (allocation.offset(), allocation.size())
            );
            assert!(one.offset + one.size <= block.size);
            // SAFETY: It is compared with others.
            memories.push(unsafe { allocation.memory() });
        }
        memories.dedup();
        assert!(memories.len() <= 1, "of one memory");
    }
    assert_eq!((next, report.allocations.len()), (9, 9));
    assert_eq!(
        report.total_allocated_bytes,
        2 * sizes.iter().sum::<u64>() - 3
    );
    let capacity: u64 = report.blocks.iter().map(|block| block.size).sum();
    assert_eq!(
        (report.total_capacity_bytes, allocator.capacity()),
        (capacity, capacity)
    );
    for (_, allocation) in all {
        allocator.free(allocation).unwrap();
    }
}

#[test]
fn a_report_prints_as_many_of_the_largest_as_its_precision_says() {
    let allocation = |name: &str, size| AllocationReport {
        name: name.to_owned(),
        offset: 0,
        size,
    };
    let report = AllocatorReport {
        allocations: vec![
            allocation("small", 16),
            allocation("large", 4096),
            allocation("", 2048),
        ],
        blocks: vec![MemoryBlockReport {
            size: 1 << 20,
            allocations: 0..3,
        }],
        total_allocated_bytes: 6160,
        total_capacity_bytes: 1 << 20,
    };
    let largest = |text: &str| text.split_once("largest: ").unwrap().1.to_owned();
    let text = format!("{report:.2?}");
    assert_eq!(largest(&text), r#"["large": 4.0 KiB, "--": 2.0 KiB] }"#);
    assert!(text.contains("6.0 KiB / 1.0 MiB"), "{text}");
    assert!(text.contains("blocks: 1, allocations: 3"), "{text}");
    let all = r#"["large": 4.0 KiB, "--": 2.0 KiB, "small": 16 B] }"#;
    assert_eq!(largest(&format!("{report:?}")), all);
}

#[test]
fn each_live_allocation_has_a_number_and_a_name_of_its_own() {
    let parts = common::parts();
    let allocator = allocator(&parts);
    let desc = part(1000, 16, MemoryLocation::GpuOnly);
    let [mut first, second] = [(); 2].map(|()| allocator.allocate(&desc).unwrap());
    assert!(first.chunk_id().is_some() && second.chunk_id().is_some());
    assert_ne!(first.chunk_id(), second.chunk_id());
    assert!(!first.is_null() && !first.is_dedicated());
    allocator.rename_allocation(&mut first, "renamed").unwrap();
    allocator
        .rename_allocation(&mut Allocation::default(), "none")
        .unwrap();
    let mut names: Vec<_> = allocator.generate_report().allocations;
    names.sort_by(|one, other| one.name.cmp(&other.name));
    let names: Vec<_> = names.into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["a part", "renamed"]);
    for allocation in [first, second] {
        allocator.free(allocation).unwrap();
    }
}

#[test]
fn leaks_are_logged_with_their_places_where_that_is_set() {
    let parts = common::parts();
    for (is_logged, has_traces) in [(true, false), (true, true), (false, true)] {
        let allocator = allocator_with(&parts, |desc| {
            desc.debug_settings = quiet();
            desc.debug_settings.log_leaks_on_shutdown = is_logged;
            desc.debug_settings.store_stack_traces = has_traces;
        });
        let desc = part(1000, 16, MemoryLocation::GpuOnly);
        let [kept, freed] = [(); 2].map(|()| allocator.allocate(&desc).unwrap());
        allocator.free(freed).unwrap();
        let expected = format!("offset: {}, size: 1000, name: a part", kept.offset());
        let assert_told = |lines: &[(Level, String)], level| {
            let [(told, text)] = lines else {
                panic!("one line, not {lines:?}");
            };
            assert_eq!(*told, level);
            assert!(text.contains(&expected), "{text}");
            let trace = "leaks_are_logged_with_their_places_where_that_is_set";
            assert_eq!(text.contains(trace), has_traces, "{text}");
        };
        assert_told(
            &logged(|| allocator.report_memory_leaks(Level::Info)),
            Level::Info,
        );
        let at_end = logged(|| drop(allocator));
        if is_logged {
            assert_told(&at_end, Level::Warn);
        } else {
            assert_eq!(at_end, []);
        }
    }
}

#[test]
fn allocations_and_frees_are_logged_where_that_is_set() {
    let parts = common::parts();
    for (allocations, frees, traces) in [
        (false, false, true),
        (true, false, false),
        (false, true, false),
        (true, true, true),
    ] {
        let allocator = allocator_with(&parts, |desc| {
            desc.debug_settings = quiet();
            desc.debug_settings.log_allocations = allocations;
            desc.debug_settings.log_frees = frees;
            desc.debug_settings.log_stack_traces = traces;
        });
        let lines = logged(|| {
            let desc = part(1000, 16, MemoryLocation::GpuOnly);
            let allocation = allocator.allocate(&desc).unwrap();
            allocator.free(allocation).unwrap();
        });
        assert!(lines.iter().all(|(level, _)| *level == Level::Debug));
        let mut lines = lines.into_iter().map(|(_, text)| text);
        let texts = [
            (
                allocations,
                "Allocating `a part` of 1000 bytes with an alignment of 16.",
            ),
            (frees, "Freeing `a part`."),
        ];
        for (_, text) in texts.into_iter().filter(|(is_logged, _)| *is_logged) {
            assert_eq!(lines.next().unwrap(), text);
            if traces {
                let trace = lines.next().unwrap();
                assert!(trace.starts_with("Stack trace: "), "{trace}");
                assert!(trace.contains("allocations_and_frees_are_logged_where_that_is_set"));
            }
        }
        assert_eq!(lines.next(), None);
    }
}

#[test]
fn memory_types_are_logged_where_that_is_set() {
    let parts = common::parts();
    // SAFETY: The device is of the instance.
    let facts = unsafe {
        parts
            .instance
            .get_physical_device_memory_properties(parts.physical)
    };
    for is_logged in [false, true] {
        let lines = logged(|| {
            let made = allocator_with(&parts, |desc| {
                desc.debug_settings = quiet();
                desc.debug_settings.log_memory_information = is_logged;
            });
            drop(made);
        });
        let types = facts.memory_types_as_slice();
        assert_eq!(lines.len(), if is_logged { types.len() } else { 0 });
        for ((index, kind), (level, text)) in types.iter().enumerate().zip(lines) {
            let heap = facts.memory_heaps[kind.heap_index as usize].size >> 20;
            let expected = format!(
                "memory type[{index}]: {:?}, heap of {heap} MiB",
                kind.property_flags
            );
            assert_eq!((level, text), (Level::Debug, expected));
        }
    }
}

#[test]
fn a_slab_is_all_bytes_of_its_allocation() {
    let parts = common::parts();
    let allocator = allocator(&parts);
    let mut allocation = allocator
        .allocate(&part(1000, 16, MemoryLocation::CpuToGpu))
        .unwrap();
    let start = allocation.mapped_ptr().unwrap().as_ptr().cast::<u8>();
    assert_eq!(
        (Slab::size(&allocation), allocation.base_ptr()),
        (1000, start.cast_const())
    );
    assert_eq!(allocation.base_ptr_mut(), start);
    let mut slab = allocation.try_as_mapped_slab().unwrap();
    assert_eq!((slab.size(), slab.base_ptr()), (1000, start.cast_const()));
    assert_eq!(slab.base_ptr_mut(), start);
    let copied = presser::copy_from_slice_to_offset(&[1_u8, 2, 3], &mut slab, 997).unwrap();
    assert_eq!(copied.copy_end_offset, 1000);
    assert!(presser::copy_from_slice_to_offset(&[1_u8, 2, 3], &mut slab, 998).is_err());
    assert_eq!(allocation.mapped_slice().unwrap()[997..], [1, 2, 3]);
    allocator.free(allocation).unwrap();
    let none = Allocation::default();
    assert_eq!(Slab::size(&none), 0);
}
