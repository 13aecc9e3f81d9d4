//! Double frees and uses after free, through the door that C-like code has.

use binpool_allocators::{Backend, Memory, Region, SvmBackend, SvmGrain};
use binpool_mock::{CallKind, Completion, Violation};

use crate::common::{Rig, cause, code, has_failed};

#[test]
fn proper_use_is_no_violation() {
    let rig = Rig::new(Completion::Manual);
    let handle = rig.buffer(64).into_handle();
    rig.backend.release_handle(handle).unwrap();
    let block = rig
        .backend
        .allocate_svm(64, None, SvmGrain::Coarse, None)
        .unwrap();
    let address = rig.backend.svm_address(&block).unwrap();
    let _handle = block.into_handle();
    rig.backend.free_svm_address(address).unwrap();
    assert!(rig.device.violations().is_empty());
    assert_eq!(rig.device.statistics().live_blocks, 0);
}

#[test]
fn giving_memory_back_twice_is_reported() {
    let rig = Rig::new(Completion::AtOnce);
    let handle = rig.buffer(64).into_handle();
    rig.backend.release_handle(handle).unwrap();
    // Another block in the same slot is not mistaken for it.
    let innocent = rig.buffer(32);
    let error = rig.backend.release_handle(handle).unwrap_err();
    let expected = format!(
        "memory {} was released before; this is a double free",
        handle.id()
    );
    assert!(cause(&error).ends_with(&expected), "{error:?}");
    let expected = Violation::DoubleFree {
        memory: handle.id(),
        bytes: Some(64),
    };
    assert_eq!(rig.device.violations(), [expected]);
    assert_eq!(rig.device.statistics().live_blocks, 1);
    rig.fill(&innocent, 1, &[]);
    assert_eq!(rig.device.statistics().failed_releases, 1);
}

#[test]
fn dropping_memory_that_was_given_back_by_hand_is_reported_and_does_not_panic() {
    let rig = Rig::new(Completion::AtOnce);
    let buffer = rig.buffer(64);
    rig.backend.release_handle(buffer.handle()).unwrap();
    let memory = buffer.id();
    drop(buffer);
    let expected = Violation::DoubleFree {
        memory,
        bytes: Some(64),
    };
    assert_eq!(rig.device.violations(), [expected]);
}

#[test]
fn every_use_after_free_is_refused_and_reported() {
    let rig = Rig::new(Completion::AtOnce);
    let (buffer, other) = (rig.buffer(64), rig.buffer(64));
    rig.backend.release_handle(buffer.handle()).unwrap();
    let (backend, queue) = (&rig.backend, &rig.queue);
    let all = Region::first(64);
    let errors = [
        backend.enqueue_fill(queue, &buffer, all, &[1_u8]).map(drop),
        backend
            .enqueue_copy(queue, &other, all, &buffer, 0)
            .map(drop),
        backend.write(queue, &buffer, 0, &[1_u8]),
        backend.commit(queue, &buffer),
        backend.create_sub_region(&buffer, all).map(drop),
        backend
            .launch(queue, "blur", &[&buffer], &[], |_, _| {})
            .map(drop),
    ];
    for error in errors {
        let told = cause(&error.unwrap_err());
        let expected = format!(
            "memory {} was released before; this is a use after free",
            buffer.id()
        );
        assert!(told.ends_with(&expected), "{told}");
    }
    let violations = rig.device.violations();
    assert_eq!(violations.len(), 6);
    let write = violations[2].to_string();
    assert!(write.contains("with 1 bytes of memory"), "{write}");
    assert_eq!(
        violations[5],
        Violation::UseAfterFree {
            memory: buffer.id(),
            bytes: 64,
            call: CallKind::Launch,
            command: "blur".into(),
        }
    );
    let text = violations[5].to_string();
    assert!(
        text.contains("use after free") && text.contains("blur"),
        "{text}"
    );
}

#[test]
fn svm_that_is_freed_under_a_pending_command_is_reported_with_the_command() {
    let rig = Rig::new(Completion::Manual);
    let block = rig
        .backend
        .allocate_svm(64, None, SvmGrain::Coarse, None)
        .unwrap();
    let memory = block.id();
    let address = rig.backend.svm_address(&block).unwrap();
    let launch = |name| {
        rig.backend
            .launch(&rig.queue, name, &[], &[&block], |_, writes| {
                writes[0].fill(1);
            })
            .unwrap()
    };
    let events = [launch("first"), launch("second")];
    assert!(rig.device.step());
    rig.backend.free_svm_address(address).unwrap();
    match rig.device.violations().as_slice() {
        [
            Violation::FreedInUse {
                memory: freed,
                bytes: 64,
                command,
                name,
            },
        ] => {
            assert_eq!(
                (*freed, command.get(), name.as_ref()),
                (memory, 2, "second")
            );
        }
        other => panic!("{other:?}"),
    }
    // The command finds the block gone.
    rig.device.run();
    assert!(has_failed(&events[1]));
    assert!(matches!(
        rig.device.violations()[1],
        Violation::UseAfterFree { .. }
    ));
    assert_eq!(rig.backend.svm_address(&block), None);
    drop(block);
    assert!(matches!(
        rig.device.violations()[2],
        Violation::DoubleFree { .. }
    ));
}

#[test]
fn an_address_is_freed_once_and_only_where_a_block_starts() {
    let rig = Rig::new(Completion::AtOnce);
    let block = rig
        .backend
        .allocate_svm(64, None, SvmGrain::Coarse, None)
        .unwrap();
    let (memory, address) = (block.id(), rig.backend.svm_address(&block).unwrap());
    let inside = address.map_addr(|address| address.saturating_add(8));
    let error = rig.backend.free_svm_address(inside).unwrap_err();
    assert_eq!(code(&error), Some(-30));
    // By its owner first, then by hand.
    drop(block);
    let error = rig.backend.free_svm_address(address).unwrap_err();
    let expected = format!("memory {memory} was released before; this is a double free");
    assert!(cause(&error).ends_with(&expected), "{error:?}");
    let violations = rig.device.violations();
    assert!(matches!(violations[0], Violation::UnknownAddress { .. }));
    assert_eq!(
        violations[1],
        Violation::DoubleFree {
            memory,
            bytes: Some(64)
        }
    );
}

#[test]
fn views_of_svm_that_was_freed_by_hand_have_nothing_to_free() {
    let rig = Rig::new(Completion::AtOnce);
    let block = rig
        .backend
        .allocate_svm(512, None, SvmGrain::Coarse, None)
        .unwrap();
    let view = rig
        .backend
        .create_sub_region(&block, Region::new(256, 256))
        .unwrap();
    let address = rig.backend.svm_address(&block).unwrap();
    let _handle = block.into_handle();
    rig.backend.free_svm_address(address).unwrap();
    drop(view);
    assert!(rig.device.violations().is_empty());
}
