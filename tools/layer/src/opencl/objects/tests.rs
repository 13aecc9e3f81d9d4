//! What the objects of a program are, after which calls.

use super::*;

const WHOLE: Handle = 1;
const PART: Handle = 2;
const OTHER_PART: Handle = 3;
const KERNEL: Handle = 10;
const CLONE: Handle = 11;
const QUEUE: Handle = 20;
const OTHER_QUEUE: Handle = 21;
const CONTEXT: Handle = 30;
const SVM: Handle = 0x1000;

type TestObjects = Objects<&'static str>;

fn block(id: u64) -> Block<&'static str> {
    Block::new(100, Some(id), None)
}

/// Objects with a buffer, two parts of it, and shared virtual memory: blocks 1 and 2.
fn objects() -> TestObjects {
    let mut objects = Objects::default();
    objects.add_context(CONTEXT, false);
    for queue in [QUEUE, OTHER_QUEUE] {
        objects.add_queue(queue, CONTEXT, 1);
    }
    objects.add(WHOLE, None, block(1));
    for part in [PART, OTHER_PART] {
        objects.add(part, Some(WHOLE), Block::new(0, None, None));
    }
    objects.add_svm(SVM, block(2));
    objects
}

/// Releases a reference. Returns what has ended.
fn release(objects: &mut TestObjects, handle: Handle) -> Vec<Handle> {
    let ended = objects.release(handle);
    ended.into_iter().map(|(handle, _)| handle).collect()
}

/// Notes these first uses. Returns the blocks.
fn put(objects: &mut TestObjects, queue: Handle, first: &[FirstUse<&str>]) -> Vec<u64> {
    let put = |used: &&FirstUse<&str>| objects.put_use(queue, used.handle);
    first
        .iter()
        .filter(put)
        .filter_map(|used| used.id)
        .collect()
}

/// Uses memory. Returns the blocks for which this is the first use on the queue.
fn use_memory(objects: &mut TestObjects, queue: Handle, handles: &[Handle]) -> Vec<u64> {
    let first = objects.use_memory(queue, handles);
    put(objects, queue, &first)
}

/// Runs a kernel, as [`use_memory`].
fn run(objects: &mut TestObjects, queue: Handle, kernel: Handle) -> Vec<u64> {
    let first = objects.use_kernel(queue, kernel);
    put(objects, queue, &first)
}

// Memory.

#[test]
fn memory_ends_with_its_last_reference() {
    let mut objects = objects();
    objects.add(4, None, block(3));
    objects.retain(4);
    assert!(release(&mut objects, 4).is_empty());
    assert_eq!(release(&mut objects, 4), [4]);
    assert!(release(&mut objects, 4).is_empty());
}

#[test]
fn memory_ends_with_its_last_part_and_after_it() {
    let mut objects = objects();
    assert!(release(&mut objects, WHOLE).is_empty());
    assert_eq!(release(&mut objects, PART), [PART]);
    assert_eq!(release(&mut objects, OTHER_PART), [OTHER_PART, WHOLE]);
}

#[test]
fn memory_that_has_no_parts_any_more_waits_for_its_own_references() {
    let mut objects = objects();
    assert_eq!(release(&mut objects, PART), [PART]);
    assert_eq!(release(&mut objects, OTHER_PART), [OTHER_PART]);
    assert_eq!(release(&mut objects, WHOLE), [WHOLE]);
}

#[test]
fn a_part_of_a_part_keeps_both() {
    let mut objects = objects();
    objects.add(4, Some(PART), Block::new(0, None, None));
    assert_eq!(objects.whole_of(4), WHOLE);
    assert_eq!(release(&mut objects, OTHER_PART), [OTHER_PART]);
    assert!(release(&mut objects, WHOLE).is_empty());
    assert!(release(&mut objects, PART).is_empty());
    assert_eq!(release(&mut objects, 4), [4, PART, WHOLE]);
}

#[test]
fn memory_that_was_released_is_the_pools_while_it_has_parts() {
    let mut objects = objects();
    let is_pools = |objects: &mut TestObjects| objects.memory_mut(4).unwrap().is_pools();
    objects.add(4, None, Block::new(100, Some(3), Some("of the pool")));
    objects.add(5, Some(4), Block::new(0, None, None));
    assert!(!is_pools(&mut objects));
    assert!(release(&mut objects, 4).is_empty());
    assert!(is_pools(&mut objects));
    objects.retain(4);
    assert!(!is_pools(&mut objects));
}

#[test]
fn a_part_of_memory_that_is_not_known_is_whole() {
    let mut objects = objects();
    objects.add(4, Some(99), block(3));
    assert_eq!(objects.whole_of(4), 4);
    assert_eq!(release(&mut objects, 4), [4]);
}

// Uses.

#[test]
fn only_the_first_use_on_a_queue_is_new_and_only_that_of_all_is_the_first() {
    let mut objects = objects();
    let first = objects.use_memory(QUEUE, &[WHOLE]);
    assert!(first.len() == 1 && first[0].is_first_queue);
    assert_eq!(put(&mut objects, QUEUE, &first), [1]);
    assert!(objects.use_memory(QUEUE, &[WHOLE]).is_empty());
    let second = objects.use_memory(OTHER_QUEUE, &[WHOLE]);
    assert!(second.len() == 1 && !second[0].is_first_queue);
}

#[test]
fn a_use_that_another_thread_has_noted_meanwhile_is_not_new() {
    let mut objects = objects();
    let here = objects.use_memory(QUEUE, &[WHOLE]);
    let there = objects.use_memory(QUEUE, &[WHOLE]);
    assert_eq!(put(&mut objects, QUEUE, &there), [1]);
    assert!(put(&mut objects, QUEUE, &here).is_empty());
}

#[test]
fn a_use_of_a_part_is_one_of_its_whole() {
    let mut objects = objects();
    assert_eq!(use_memory(&mut objects, QUEUE, &[PART]), [1]);
    assert!(use_memory(&mut objects, QUEUE, &[WHOLE, OTHER_PART]).is_empty());
    assert_eq!(use_memory(&mut objects, OTHER_QUEUE, &[PART, WHOLE]), [1]);
}

#[test]
fn an_address_is_that_of_the_memory_around_it() {
    let mut objects = objects();
    for outside in [SVM - 1, SVM + 100] {
        assert!(use_memory(&mut objects, QUEUE, &[outside]).is_empty());
    }
    assert_eq!(use_memory(&mut objects, QUEUE, &[SVM + 99]), [2]);
    assert!(use_memory(&mut objects, QUEUE, &[SVM]).is_empty());
    assert!(objects.remove_svm(SVM + 99).is_none());
    assert_eq!(objects.remove_svm(SVM).and_then(|block| block.id), Some(2));
    assert!(use_memory(&mut objects, OTHER_QUEUE, &[SVM]).is_empty());
}

#[test]
fn what_is_not_known_is_not_used() {
    assert!(use_memory(&mut objects(), QUEUE, &[0, 99]).is_empty());
}

// Kernels.

#[test]
fn a_kernel_uses_its_arguments_each_time_that_it_runs() {
    let mut objects = objects();
    objects.set_argument(KERNEL, 0, Some(PART));
    objects.set_argument(KERNEL, 3, Some(SVM + 50));
    assert_eq!(run(&mut objects, QUEUE, KERNEL), [1, 2]);
    assert!(run(&mut objects, QUEUE, KERNEL).is_empty());
    assert_eq!(run(&mut objects, OTHER_QUEUE, KERNEL), [1, 2]);
}

#[test]
fn an_argument_that_is_set_again_is_what_it_is_now() {
    let mut objects = objects();
    objects.set_argument(KERNEL, 0, Some(WHOLE));
    objects.set_argument(KERNEL, 0, Some(SVM));
    assert_eq!(run(&mut objects, QUEUE, KERNEL), [2]);
    for no_memory in [None, Some(99)] {
        objects.set_argument(KERNEL, 0, Some(WHOLE));
        objects.set_argument(KERNEL, 0, no_memory);
        assert!(run(&mut objects, QUEUE, KERNEL).is_empty());
    }
}

#[test]
fn a_kernel_uses_what_it_was_told_to_find_by_itself() {
    let mut objects = objects();
    objects.set_indirect(KERNEL, vec![99, SVM + 8]);
    assert_eq!(run(&mut objects, QUEUE, KERNEL), [2]);
    objects.set_indirect(KERNEL, Vec::new());
    assert!(run(&mut objects, OTHER_QUEUE, KERNEL).is_empty());
}

#[test]
fn a_clone_has_the_arguments_of_its_original_and_then_its_own() {
    let mut objects = objects();
    objects.set_argument(KERNEL, 0, Some(WHOLE));
    objects.set_indirect(KERNEL, vec![SVM]);
    objects.copy_kernel(KERNEL, CLONE);
    objects.set_argument(KERNEL, 0, None);
    assert_eq!(run(&mut objects, QUEUE, CLONE), [1, 2]);
    assert_eq!(run(&mut objects, OTHER_QUEUE, KERNEL), [2]);
}

#[test]
fn a_kernel_at_the_address_of_an_older_one_has_no_arguments() {
    let mut objects = objects();
    for begin in [
        |objects: &mut TestObjects| objects.begin_kernel(KERNEL),
        |objects: &mut TestObjects| objects.copy_kernel(CLONE, KERNEL),
    ] {
        objects.set_argument(KERNEL, 0, Some(WHOLE));
        begin(&mut objects);
        assert!(run(&mut objects, QUEUE, KERNEL).is_empty());
    }
}

// Queues and contexts.

#[test]
fn a_queue_at_the_address_of_an_older_one_uses_memory_for_the_first_time() {
    let mut objects = objects();
    let both = [WHOLE, SVM];
    assert_eq!(use_memory(&mut objects, QUEUE, &both), [1, 2]);
    assert_eq!(use_memory(&mut objects, OTHER_QUEUE, &both), [1, 2]);
    assert!(objects.release_queue(QUEUE).is_some());
    objects.add_queue(QUEUE, CONTEXT, 1);
    assert_eq!(objects.queues[&QUEUE].number, 3);
    assert_eq!(use_memory(&mut objects, QUEUE, &both), [1, 2]);
    assert!(use_memory(&mut objects, OTHER_QUEUE, &both).is_empty());
}

#[test]
fn memory_remembers_the_queues_that_are_there_and_not_all_that_ever_used_it() {
    let mut objects = objects();
    assert_eq!(use_memory(&mut objects, OTHER_QUEUE, &[WHOLE]), [1]);
    assert!(objects.release_queue(QUEUE).is_some());
    for _ in 0..1000 {
        objects.add_queue(QUEUE, CONTEXT, 1);
        assert_eq!(use_memory(&mut objects, QUEUE, &[WHOLE]), [1]);
        assert!(objects.release_queue(QUEUE).is_some());
    }
    assert!(use_memory(&mut objects, OTHER_QUEUE, &[WHOLE]).is_empty());
    let remembered = objects
        .memory_mut(WHOLE)
        .map(|memory| memory.block.queues.len());
    assert!(remembered.is_some_and(|count| count <= 2), "{remembered:?}");
}

#[test]
fn a_queue_ends_with_its_last_reference() {
    let mut objects = objects();
    objects.queues.get_mut(&QUEUE).unwrap().references += 1;
    assert_eq!(use_memory(&mut objects, QUEUE, &[WHOLE]), [1]);
    assert!(objects.release_queue(QUEUE).is_none());
    assert!(use_memory(&mut objects, QUEUE, &[WHOLE]).is_empty());
    assert_eq!(objects.contexts[&CONTEXT].queues, 2);
    assert!(objects.release_queue(QUEUE).is_some());
    assert!(objects.release_queue(QUEUE).is_none());
    assert_eq!(objects.contexts[&CONTEXT].queues, 1);
}

#[test]
fn a_context_is_the_programs_as_long_as_it_has_references_to_it_or_to_a_queue_of_it() {
    let mut objects = objects();
    objects.retain_context(CONTEXT);
    for queue in [QUEUE, OTHER_QUEUE] {
        objects.release_context(CONTEXT);
        assert!(objects.has_context(CONTEXT));
        objects.release_queue(queue);
    }
    assert!(!objects.has_context(CONTEXT));
    // An object of it may have told the program.
    objects.retain_context(CONTEXT);
    assert!(objects.has_context(CONTEXT));
    assert_eq!(objects.context(CONTEXT).number, 1);
    objects.release_context(CONTEXT);
    assert!(!objects.has_context(CONTEXT));
    objects.add_context(CONTEXT, false);
    assert_eq!(objects.context(CONTEXT).number, 2);
}

#[test]
fn a_queue_without_a_reference_of_the_program_does_not_keep_its_context() {
    let mut objects = objects();
    for queue in [QUEUE, OTHER_QUEUE] {
        objects.release_queue(queue);
    }
    objects.add_queue(QUEUE, CONTEXT, 0);
    objects.release_context(CONTEXT);
    assert!(!objects.has_context(CONTEXT));
    objects.release_queue(QUEUE);
    assert_eq!(objects.context(CONTEXT).queues, 0);
}

#[test]
fn pools_serve_the_contexts_that_the_program_has_and_that_keep_their_devices() {
    let mut objects = objects();
    assert_eq!(objects.unpooled(CONTEXT), None);
    assert!(objects.unpooled(CONTEXT + 1).is_some());
    objects.add_context(CONTEXT, true);
    assert!(objects.unpooled(CONTEXT).is_some());
    objects.add_context(CONTEXT, false);
    assert_eq!(objects.unpooled(CONTEXT), None);
}
