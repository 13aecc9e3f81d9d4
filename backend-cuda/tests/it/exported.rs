//! Memory that several processes share.

use std::{
    env,
    fs::File,
    os::fd::OwnedFd,
    process::{Command, Stdio},
};

use binpool::{ImmediateAllocator, MemoryPool, VirtualMemoryAllocator};
use binpool_allocators::{
    Backend, Error, InvalidRequest, Memory, MemoryFlags, Region, VirtualMemory,
};
use binpool_conformance::part_of;
use binpool_cuda::{CudaBackend, CudaMemory, ExportedMemory};

use crate::{
    common::{Device, PAGE, queue},
    share,
};

/// Set for the process that imports.
const IMPORTS: &str = "BINPOOL_TEST_IMPORTS";

#[test]
fn a_block_is_shared_by_two_processes() {
    let mut other = Command::new(env::current_exe().unwrap());
    other
        .args(["--exact", "exported::the_other_process", "--nocapture"])
        .env(IMPORTS, "1")
        .stdout(Stdio::null());
    share::export(&Device::new(64 * PAGE).backend(), other);
}

#[test]
fn the_other_process() {
    if env::var_os(IMPORTS).is_some() {
        share::import(&Device::new(64 * PAGE).backend());
    }
}

/// Pages at all of a new reservation, and a view of some of them.
fn mapped(backend: &CudaBackend) -> CudaMemory {
    let reservation = backend.reserve(4 * PAGE).unwrap();
    for (offset, pages) in [(0, 1), (PAGE, 2), (3 * PAGE, 1)] {
        let pages = backend.create_pages(pages * PAGE).unwrap();
        backend.map(&reservation, offset, &pages).unwrap();
    }
    let region = Region::new(PAGE + 512, 2 * PAGE);
    backend.create_sub_region(&reservation, region).unwrap()
}

#[test]
fn imported_memory_has_the_bytes_and_addresses_of_its_own_and_keeps_the_pages() {
    let device = Device::new(64 * PAGE);
    let backend = device.backend();
    let queue = queue(&backend);
    let memory = mapped(&backend);
    backend.enqueue_fill(&queue, &memory, .., &[7_u8]).unwrap();
    let exported = backend.export(&queue, &memory).unwrap();
    // It lies on the second and the third pages.
    assert_eq!(exported.layout()[..2], [512, 2 * PAGE as u64]);
    assert_eq!(exported.descriptors().count(), 2);
    let imported = backend.import(&exported).unwrap();
    drop(exported);
    assert_eq!(imported.bytes(), memory.bytes());
    let [one, other] = [&memory, &imported].map(|memory| memory.device_address().unwrap());
    assert_ne!(one, other);
    let mut bytes = vec![0_u8; 2 * PAGE];
    backend.read(&queue, &imported, 0, &mut bytes).unwrap();
    assert_eq!(bytes, vec![7; 2 * PAGE]);
    backend.write(&queue, &imported, 5, &[8_u8]).unwrap();
    backend.read(&queue, &memory, 0, &mut bytes[..6]).unwrap();
    assert_eq!(bytes[..6], [7, 7, 7, 7, 7, 8]);
    drop(memory);
    backend.read(&queue, &imported, 0, &mut bytes[..6]).unwrap();
    assert_eq!(bytes[..6], [7, 7, 7, 7, 7, 8]);
    // What was imported can be exported, too.
    let again = backend
        .import(&backend.export(&queue, &imported).unwrap())
        .unwrap();
    drop(imported);
    backend.read(&queue, &again, 5, &mut bytes[..1]).unwrap();
    assert_eq!(bytes[0], 8);
    drop((again, queue, backend));
    assert_eq!((device.objects(), device.used()), (0, 0));
}

#[test]
fn a_part_is_exported_from_its_first_byte() {
    let device = Device::new(64 * PAGE);
    let backend = device.backend();
    let queue = queue(&backend);
    let memory = mapped(&backend);
    backend.enqueue_fill(&queue, &memory, .., &[7_u8]).unwrap();
    let part = part_of(&memory, Region::new(256, PAGE));
    let imported = backend.import(&backend.export(&queue, &part).unwrap());
    let imported = imported.unwrap();
    assert_eq!(imported.bytes(), PAGE);
    backend.write(&queue, &imported, 5, &[8_u8]).unwrap();
    let mut bytes = vec![0_u8; 2 * PAGE];
    backend.read(&queue, &memory, 0, &mut bytes).unwrap();
    let mut expected = vec![7; 2 * PAGE];
    expected[261] = 8;
    assert!(bytes == expected);
    // Imported memory starts where views may.
    let askew = part_of(&memory, Region::new(300, PAGE));
    let Err(Error::InvalidRequest(refusal)) =
        backend.import(&backend.export(&queue, &askew).unwrap())
    else {
        panic!("it starts off the alignment");
    };
    assert!(matches!(refusal, InvalidRequest::Misaligned { .. }));
}

#[test]
fn memory_that_is_not_on_pages_is_refused_with_the_way_that_there_is() {
    let device = Device::new(64 * PAGE);
    let backend = device.backend();
    let queue = queue(&backend);
    let pool = MemoryPool::new(ImmediateAllocator::new(&backend).unwrap(), &queue).unwrap();
    let block = pool.allocate(4096).unwrap();
    let refused = backend.export(&queue, &block);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("cuIpcGetMemHandle")
    );
    let pages = backend.create_pages(PAGE).unwrap();
    assert!(backend.export(&queue, &pages).is_err());
    let reservation = backend.reserve(2 * PAGE).unwrap();
    backend.map(&reservation, 0, &pages).unwrap();
    let Err(Error::InvalidRequest(refusal)) = backend.export(&queue, &reservation) else {
        panic!("half of it is mapped");
    };
    assert!(matches!(refusal, InvalidRequest::NotMapped { .. }));
    let [one, other] = Device::pair(64 * PAGE).map(|device| device.backend());
    let one_queue = crate::common::queue(&one);
    assert!(one.export(&one_queue, &mapped(&other)).is_err());
    drop(backend.create_buffer(1, MemoryFlags::empty()).unwrap());
}

#[test]
fn addresses_are_exported_once_all_of_them_are_mapped() {
    let backend = Device::new(64 * PAGE).backend();
    let queue = queue(&backend);
    let reservation = backend.reserve(3 * PAGE).unwrap();
    let map = |offset| {
        let pages = backend.create_pages(PAGE).unwrap();
        backend.map(&reservation, offset, &pages).unwrap();
    };
    map(0);
    map(2 * PAGE);
    let Err(Error::InvalidRequest(refusal)) = backend.export(&queue, &reservation) else {
        panic!("there is a hole");
    };
    assert!(matches!(refusal, InvalidRequest::NotMapped { .. }));
    map(PAGE);
    let exported = backend.export(&queue, &reservation).unwrap();
    assert_eq!(
        exported.layout(),
        [0, 3, 1, 1, 1].map(|pages| pages * PAGE as u64)
    );
    // And no neighbours.
    let middle = backend.create_sub_region(&reservation, Region::new(PAGE, PAGE));
    let exported = backend.export(&queue, &middle.unwrap()).unwrap();
    assert_eq!(
        exported.layout(),
        [0, 1, 1].map(|pages| pages * PAGE as u64)
    );
}

#[test]
fn a_part_of_a_block_and_a_block_that_grows_are_exported_without_the_rest() {
    let backend = Device::new(64 * PAGE).backend();
    let queue = queue(&backend);
    let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
    let mut cache = pool.growable_on(&queue, 1 << 40).unwrap();
    assert!(backend.export(&queue, &cache).is_err(), "0 bytes");
    cache.grow(PAGE + 5).unwrap();
    let exported = backend.export(&queue, &cache).unwrap();
    let layout = [0, PAGE as u64 + 5, 2 * PAGE as u64];
    assert_eq!(exported.layout(), layout);
    let block = pool.allocate(4096).unwrap();
    let exported = backend.export(&queue, &block.slice(1024..1026).unwrap());
    assert_eq!(exported.unwrap().layout()[1], 2);
}

#[test]
fn parts_that_do_not_fit_together_are_refused() {
    let backend = Device::new(64 * PAGE).backend();
    let queue = queue(&backend);
    let exported = backend.export(&queue, &mapped(&backend)).unwrap();
    let descriptors = || -> Vec<OwnedFd> {
        let descriptors = exported.descriptors();
        descriptors
            .map(|it| it.try_clone_to_owned().unwrap())
            .collect()
    };
    let page = PAGE as u64;
    for layout in [
        &[][..],
        &[0],
        &[0, page],
        &[0, page, page],
        &[0, page, page, page, page],
        &[page, page + 1, page, 0],
        &[u64::MAX, 2, page, page],
        // Their sum is a page again.
        &[0, page, u64::MAX - page + 1, 2 * page],
    ] {
        let put_together = ExportedMemory::from_parts(descriptors(), layout);
        assert!(put_together.is_err(), "{layout:?}");
    }
    // Pages of another size than they say.
    let layout = [0, page, page, page];
    let wrong = ExportedMemory::from_parts(descriptors(), &layout).unwrap();
    assert!(backend.import(&wrong).is_err());
    let right = ExportedMemory::from_parts(descriptors(), &exported.layout()).unwrap();
    assert_eq!(backend.import(&right).unwrap().bytes(), 2 * PAGE);
}

#[test]
fn where_the_driver_refuses_pages_that_can_be_shared_the_pool_has_others() {
    for code in [800, 801] {
        let device = Device::new(64 * PAGE);
        let backend = device.backend();
        let queue = queue(&backend);
        // Without RDMA it takes them.
        device.fail("cuMemCreate", 0, 1, code);
        let memory = mapped(&backend);
        // A lack of memory is no refusal.
        device.fail("cuMemCreate", 0, 2, 2);
        assert!(backend.create_pages(PAGE).is_err());
        assert!(backend.exports_pages());
        drop(backend.export(&queue, &memory).unwrap());
        device.fail("cuMemCreate", 0, 2, code);
        backend.set_exports_pages(true);
        let pool = MemoryPool::new(VirtualMemoryAllocator::new(&backend), &queue).unwrap();
        let block = pool.allocate(4096).unwrap();
        assert!(!backend.exports_pages());
        assert!(backend.export(&queue, &block).is_err());
    }
    let backend = Device::new(64 * PAGE).backend();
    backend.set_exports_pages(false);
    let queue = queue(&backend);
    assert!(backend.export(&queue, &mapped(&backend)).is_err());
}

#[test]
fn each_call_can_fail_and_has_no_effect_then() {
    let device = Device::new(64 * PAGE);
    let backend = device.backend();
    let queue = queue(&backend);
    let memory = mapped(&backend);
    let exported = backend.export(&queue, &memory).unwrap();
    let (objects, used) = (device.objects(), device.used());
    for name in [
        "cuMemRetainAllocationHandle",
        "cuMemExportToShareableHandle",
        "cuMemImportFromShareableHandle",
        "cuMemAddressReserve",
        "cuMemMap",
        "cuMemSetAccess",
    ] {
        for before in 0..2 {
            if name == "cuMemAddressReserve" && before == 1 {
                continue;
            }
            device.fail(name, before, 1, 999);
            let failed = match name {
                "cuMemRetainAllocationHandle" | "cuMemExportToShareableHandle" => {
                    backend.export(&queue, &memory).map(drop)
                }
                _ => backend.import(&exported).map(drop),
            };
            assert!(failed.is_err(), "{name} {before}");
            drop(backend.import(&exported).unwrap());
            let now = (device.objects(), device.used());
            assert_eq!(now, (objects, used), "{name} {before}");
        }
    }
}

#[test]
fn whatever_another_process_sends_is_refused_or_memory_and_leaves_nothing() {
    let device = Device::new(64 * PAGE);
    let backend = device.backend();
    let queue = queue(&backend);
    let memory = mapped(&backend);
    let exported = backend.export(&queue, &memory).unwrap();
    backend.write(&queue, &memory, 0, &[1_u8]).unwrap();
    drop(memory);
    let numbers = [
        0,
        1,
        512,
        PAGE / 2,
        PAGE,
        2 * PAGE,
        1 << 45,
        1 << 62,
        usize::MAX,
    ];
    let numbers = numbers.map(|number| number as u64);
    let others = [u64::MAX - PAGE as u64 + 1, u64::MAX / 2 + 1];
    let numbers = [&numbers[..], &others].concat();
    let (objects, used) = (device.objects(), device.used());
    let mut imported = 0;
    for one in &numbers {
        for other in &numbers {
            for (offset, bytes) in [(0, 1), (0, 0), (PAGE as u64, PAGE as u64), (*one, *other)] {
                let descriptors = exported.descriptors().map(|it| it.try_clone_to_owned());
                let descriptors = descriptors.collect::<Result<_, _>>().unwrap();
                let layout = [offset, bytes, *one, *other];
                let parts = ExportedMemory::from_parts(descriptors, &layout);
                if let Ok(memory) = parts.and_then(|parts| backend.import(&parts)) {
                    imported += 1;
                    assert_eq!([*one, *other], [2 * PAGE as u64, PAGE as u64]);
                    backend.write(&queue, &memory, 0, &[1_u8]).unwrap();
                }
                assert_eq!(
                    (device.objects(), device.used()),
                    (objects, used),
                    "{layout:?}"
                );
            }
        }
    }
    assert_eq!(imported, 3);
    let file = File::open("/dev/null").unwrap();
    let other = ExportedMemory::from_parts(vec![file.into()], &[0, 1, PAGE as u64]).unwrap();
    assert!(backend.import(&other).is_err());
    assert_eq!((device.objects(), device.used()), (objects, used));
}
