//! Every call that takes memory is passed parts of memory by a test: parts without a memory object of their own, slices and views.
//!
//! The calls are those that `checks/api` lists. A new one fails this test until a test passes parts to it, and is named here. Calls that take
//! memory objects alone, such as `Backend::commit`, have no parts to count from.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failing test panics"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The tests that pass parts, and the calls that they pass them to.
const PASSED: &[(&str, &[&str])] = &[
    (
        "checks/conformance/src/parts.rs",
        &[
            "Backend::enqueue_copy",
            "Backend::enqueue_fill",
            "Backend::enqueue_read",
            "Backend::enqueue_write",
            "Backend::read",
            "Backend::write",
        ],
    ),
    // Its example has a half.
    (
        "allocators/src/backend.rs",
        &["binpool_allocators::bytes_on"],
    ),
    (
        "backend-opencl/tests/it/parts.rs",
        &[
            "Launch::indirect",
            "Launch::memory",
            "OpenClBackend::create_image_over",
            "OpenClBackend::enqueue_copy_buffer_to_image",
            "OpenClBackend::enqueue_copy_image_to_buffer",
            "OpenClBackend::enqueue_copy_rect",
            "OpenClBackend::enqueue_map",
            "OpenClBackend::enqueue_map_mut",
            "OpenClBackend::enqueue_migrate",
            "OpenClBackend::enqueue_read_owned",
            "OpenClBackend::enqueue_read_part",
            "OpenClBackend::enqueue_write_owned",
            "OpenClBackend::enqueue_write_part",
            "OpenClBackend::lend",
            "OpenClBackend::map",
            "OpenClBackend::map_mut",
            "OpenClBackend::read_part",
            "OpenClBackend::write_part",
            "TransferScope::enqueue_read",
            "TransferScope::enqueue_write",
        ],
    ),
    (
        "backend-opencl/tests/it/p2p.rs",
        &["OpenClBackend::copy_p2p_amd"],
    ),
    (
        "backend-cuda/tests/it/exported.rs",
        &["CudaBackend::export"],
    ),
    (
        "backend-mock/tests/it/kernels.rs",
        &["MockBackend::enqueue_use", "MockBackend::launch"],
    ),
    (
        "pool/tests/it/slices.rs",
        &[
            "PooledBuffer::enqueue_copy_region_from",
            "PooledBuffer::enqueue_copy_region_to",
            "PooledBuffer::enqueue_copy_to",
            "Slice::enqueue_copy_to",
            "Slice::enqueue_fill",
            "Slice::enqueue_read",
            "Slice::enqueue_write",
            "Slice::read",
            "Slice::read_to_vec",
            "Slice::write",
        ],
    ),
];

/// Returns a line without what is between `<` and `>`.
fn without_generics(line: &str) -> String {
    let mut depth = 0_usize;
    let mut text = String::new();
    for letter in line.replace("->", "").chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ if depth == 0 => text.push(letter),
            _ => {}
        }
    }
    text
}

/// Returns the calls of a file of `checks/api` that take memory, or are made on a part of memory.
fn calls(api: &str) -> BTreeSet<String> {
    let functions = api.lines().filter_map(|line| {
        let function = line.strip_prefix("pub fn ");
        let function = function.or_else(|| line.strip_prefix("pub unsafe fn "))?;
        let plain = without_generics(function);
        let path: Vec<_> = plain.split('(').next()?.split("::").collect();
        let [.., owner, name] = path[..] else {
            return None;
        };
        let is_part = owner == "Slice";
        let takes_memory = function.contains("AsMemory<") || function.contains("TransferPart");
        // The trait's methods are listed a second time for the core of backends.
        (owner != "R" && (takes_memory || is_part && function.contains("On<'q")))
            .then(|| format!("{owner}::{name}"))
    });
    functions.collect()
}

#[test]
fn every_call_that_takes_memory_is_passed_parts_of_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let apis = fs::read_dir(root.join("checks/api")).unwrap();
    let apis = apis.map(|file| file.unwrap().file_name().into_string().unwrap());
    // The suite's own functions take parts to pass them on.
    let apis = apis.filter(|name| name != "binpool-conformance.txt");
    let exist: BTreeSet<_> = apis
        .flat_map(|name| calls(&read(&format!("checks/api/{name}"))))
        .collect();
    let mut passed = BTreeMap::new();
    for (file, calls) in PASSED {
        let text = read(file);
        for call in *calls {
            let name = call.rsplit("::").next().unwrap();
            let is_made = [format!("{name}("), format!("{name}::<")];
            assert!(
                is_made.iter().any(|made| text.contains(made)),
                "{file} has no {call}"
            );
            passed.insert((*call).to_owned(), file);
        }
    }
    let missing: Vec<_> = exist
        .iter()
        .filter(|call| !passed.contains_key(*call))
        .collect();
    assert!(
        missing.is_empty(),
        "no test passes parts of memory to {missing:#?}"
    );
    let gone: Vec<_> = passed
        .keys()
        .filter(|call| !exist.contains(*call))
        .collect();
    assert!(
        gone.is_empty(),
        "there are no such calls any more: {gone:#?}"
    );
}

#[test]
fn calls_are_found_among_all_functions() {
    let api =
        "pub fn a::B::c<'q, T: x::Y<u8>>(&self, &impl m::AsMemory<Self> + ?Sized) -> a::Result<T>
pub unsafe fn a::B<T>::d<P: m::TransferPart>(&self, P)
pub fn a::Slice<T, M>::write<'q>(&self, impl Into<a::On<'q, Q>>)
pub fn a::Slice<T, M>::len(&self) -> usize
pub fn R::c<'q>(&self, &impl m::AsMemory<Self>)
impl<B> m::AsMemory<B> for a::Slice<T, M>";
    let found = calls(api);
    assert_eq!(
        found.into_iter().collect::<Vec<_>>(),
        ["B::c", "B::d", "Slice::write"]
    );
}
