#!/usr/bin/env python3
"""Puts one pool for all streams of a device into cubecl's crates, as they are published."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import edit  # noqa: E402

NEEDS_GPU = True
VERSION = "0.11.3"
LINES = HERE / "lines"


def runtime():
    """Descriptors say when the last owner of an allocation lets go."""
    crate = edit.Crate("cubecl-runtime", VERSION, sha256="883212376e1446f8b3ef8dc1228841681b8afceb39f168bec2861417a9e76ad8")
    crate.add_file("src/memory_management/freed.rs", LINES / "freed.rs")
    handle = crate.source("src/memory_management/handle.rs")
    handle.insert_before("struct ManagedMemoryHandle", '#[path = "freed.rs"]\nmod freed;\npub use freed::FreedSlices;\n\n')
    handle.insert_inside("struct ManagedMemoryDescriptor", "freed: freed::Freed,")
    handle.insert_inside("ManagedMemoryHandle::new", "freed: Default::default(),", literal="ManagedMemoryDescriptor")
    handle.replace_body(
        "WeakMemoryBinding::upgrade",
        """
        let descriptor = self.descriptor.upgrade()?;
        let owned = Arc::strong_count(&descriptor) > 1 + descriptor.references_of_pool();
        owned.then_some(ManagedMemoryBinding { descriptor })
        """,
    )
    storage = crate.source("src/storage/base.rs")
    storage.append_inside(
        "trait ComputeStorage",
        """
        /// Gives free memory that the storage holds back to the device.
        fn trim(&mut self) {}

        /// Records that commands of another stream use an allocation. Returns whether the storage waits for them by itself.
        fn record_use(&mut self, _id: StorageId, _queue: usize) -> bool {
            false
        }
        """,
    )
    return crate


def server():
    """The pool of dedicated allocations gives back what nothing holds, without a look at the others."""
    crate = edit.Crate("cubecl-server", VERSION, sha256="1c3c53dc26bfab898ed67ee32af21e600f9fb438e77b48e949f1258f0af634b4")
    folder = "src/memory_management"
    crate.add_file(f"{folder}/memory_pool/transparent_pool.rs", LINES / "transparent_pool.rs")
    pools = crate.source(f"{folder}/memory_pool/mod.rs")
    pools.rename("mod direct_pool", "direct_pool", "transparent_pool")
    pools.rename("pub(crate) use direct_pool::*", "direct_pool", "transparent_pool")

    crate.add_file(f"{folder}/memory.rs", LINES / "memory.rs")
    memory = crate.source(f"{folder}/memory_manage.rs")
    memory.insert_before("enum PoolPosition", '#[path = "memory.rs"]\nmod transparent;\n\n')
    memory.rename("MemoryManagement::reserve", "match update", "match self.permitted(update)")
    memory.append_inside("MemoryManagement::cleanup", "if cleanup == Cleanup::Explicit {\n    self.storage.trim();\n}")

    crate.add_file("src/command/freed.rs", LINES / "command.rs")
    command = crate.source("src/command/base.rs")
    command.insert_before("struct Command", '#[path = "freed.rs"]\nmod freed;\n\n')
    command.insert_inside("Command::reserve", "self.give_back();")
    streams = crate.source("src/stream/event.rs")
    streams.append_inside(
        "trait EventStreamBackend",
        """
        /// The number by which [`record_use`](Self::record_use) knows a stream.
        fn queue(_stream: &Self::Stream) -> usize {
            0
        }
        /// Records that commands of another stream use a buffer. Returns whether the memory of its own stream waits for them by
        /// itself.
        fn record_use(_owner: &mut Self::Stream, _handle: &BufferBinding, _queue: usize) -> bool {
            false
        }
        """,
    )
    streams.insert_inside("MultiStream::update_shared_bindings", "let queue = B::queue(&self.streams.get_mut(&stream_id).stream);")
    streams.rename(
        "MultiStream::update_shared_bindings",
        "analysis.pinned.push(handle.memory.clone());",
        "if !B::record_use(&mut stream.stream, handle, queue) { analysis.pinned.push(handle.memory.clone()); }",
    )
    streams.append_inside(
        "impl<'a, B: EventStreamBackend> ResolvedStreams<'a, B>",
        """
        /// Every initialized stream, and the device's failure store.
        pub fn all_and_failures(&mut self) -> (impl Iterator<Item = &mut B::Stream>, &mut ErrorGraph) {
            (self.streams.streams_mut().map(|stream| &mut stream.stream), self.failures)
        }
        """,
    )
    return crate


def cuda():
    """The storage is the pool of the device."""
    crate = edit.Crate("cubecl-cuda", VERSION, sha256="dacd0c047f781b468d094705ef042f28d68944bf862c049f5cf0b7396f730bb5")
    crate.add_dependency("binpool", path="pool")
    crate.add_dependency("binpool-cuda", path="backend-cuda")
    crate.add_file("src/compute/storage/device_pool.rs", LINES / "device_pool.rs")
    crate.source("src/compute/storage/mod.rs").insert_before("mod gpu", "pub(crate) mod device_pool;\n")

    storage = crate.source("src/compute/storage/gpu.rs")
    storage.delete_item("use cudarc::driver::DriverError")
    storage.replace_item("enum AllocationKind", "use super::device_pool::{Block as AllocationKind, StreamPool};")
    storage.insert_inside("struct GpuStorage", "pool: StreamPool,")
    storage.insert_inside("GpuStorage::new", "pool: StreamPool::default(),", literal="Self")
    storage.replace_body(
        "GpuStorage::perform_deallocations",
        """
        for id in self.deallocations.drain(..) {
            if let Some((_, block, size)) = self.memory.remove(&id) {
                self.allocated -= size;
                self.pool.give_back(block);
            }
        }
        """,
    )
    storage.replace_body(
        "GpuStorage::alloc",
        """
        let (address, block) = self.pool.allocate(self.stream, size)?;
        let id = StorageId::new();
        self.memory.insert(id, (address, block, size));
        self.allocated += size;
        Ok(StorageHandle::new(id, StorageUtilization { offset: 0, size }))
        """,
    )
    storage.append_inside(
        "impl ComputeStorage for GpuStorage",
        """
        fn trim(&mut self) {
            self.pool.trim();
        }

        fn record_use(&mut self, id: StorageId, queue: usize) -> bool {
            self.memory.get(&id).is_some_and(|(_, block, _)| self.pool.record_use(block, queue))
        }
        """,
    )

    stream = crate.source("src/compute/stream.rs")
    stream.rename(
        "CudaStreamBackend::create_stream",
        "memory_management_gpu = MemoryManagement::from_configuration",
        "memory_management_gpu = crate::compute::storage::device_pool::transparent",
    )
    stream.append_inside(
        "impl EventStreamBackend for CudaStreamBackend",
        """
        fn queue(stream: &Stream) -> usize {
            stream.sys.addr()
        }

        fn record_use(owner: &mut Stream, handle: &BufferBinding, queue: usize) -> bool {
            owner.memory_management_gpu.record_use(&handle.memory, queue)
        }
        """,
    )
    collectives = crate.source("src/compute/communication.rs")
    for name in ("all_reduce", "send", "recv"):
        collectives.insert_inside(f"Cuda::{name}", "crate::compute::storage::device_pool::used_by_collectives(stream);")
    return crate


def place():
    """Edits the three crates, writes the two that have no driver, and returns cubecl-cuda."""
    for crate in (runtime(), server()):
        crate.write()
    return cuda()


if __name__ == "__main__":
    for crate in (runtime(), server(), cuda()):
        crate.write()
        added, removed = crate.lines()
        print(f"{crate.name} {crate.version}: {added} lines added, {removed} removed")
