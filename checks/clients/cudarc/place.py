"""Puts the hook for memory that is managed elsewhere into cudarc, and binpool over that."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import edit  # noqa: E402

NEEDS_GPU = True
SAFE = "src/driver/safe"


def place():
    crate = edit.Crate("cudarc", "0.19.10", sha256="7359bf1de037ddada72729c3acec9b040f3468400c6e9e740b01ba0cd2e89562")
    hook(crate)
    pool(crate)
    return crate


def hook(crate):
    """The hook, in cudarc's own terms."""
    crate.add_file(f"{SAFE}/owner.rs", HERE / "owner.rs")
    safe = crate.source(f"{SAFE}/mod.rs")
    safe.insert_after("mod launch", "pub(crate) mod owner;")
    safe.insert_after(
        "pub use self::launch::{LaunchArgs, LaunchConfig, PushKernelArg}",
        "pub use self::owner::{set_device_allocator, DeviceAllocator, MemoryOwner, StreamAllocator};",
    )
    core = crate.source(f"{SAFE}/core.rs")
    core.insert_inside("struct CudaSlice", "pub(crate) owner: super::owner::Owner,")
    core.insert_inside("struct CudaStream", "pub(crate) allocator: super::owner::AllocatorOfStream,")
    slices(core)
    streams(core)
    events(core)


def slices(core):
    core.insert_inside("CudaSlice::drop", "if self.free_elsewhere() {\n    return;\n}")
    core.insert_inside("CudaStream::alloc", "if let Some(slice) = self.alloc_elsewhere(len)? {\n    return Ok(slice);\n}")
    for function in ("null", "alloc"):
        core.insert_inside(f"CudaStream::{function}", "owner: Default::default(),", literal="CudaSlice")
    core.insert_inside(
        "CudaStream::upgrade_device_ptr", "owner: super::owner::owner_of_leaked(cu_device_ptr, self),", literal="CudaSlice"
    )
    core.replace_item(
        "CudaSlice::leak",
        """
        /// Returns the address of the memory, which is not freed. Memory that is managed elsewhere stays allocated until
        /// [`CudaStream::upgrade_device_ptr()`] makes a slice of it again, and that is dropped.
        pub fn leak(mut self) -> sys::CUdeviceptr {
            self.leak_memory()
        }
        """,
    )


def streams(core):
    core.insert_inside("CudaStream::drop", "self.drop_allocator();")
    for function in ("default_stream", "per_thread_stream", "wrap_borrowed_stream", "new_stream", "new_stream_with_priority"):
        core.insert_inside(f"CudaContext::{function}", "allocator: Default::default(),", literal="CudaStream")
    core.insert_inside("CudaStream::fork", "allocator: Default::default(),", literal="CudaStream")


def events(core):
    core.rename("struct CudaEvent", "sys::CUevent", "super::owner::EventHandle")
    core.rename("CudaContext::new_event", "cu_event,", "cu_event: super::owner::EventHandle::Driver(cu_event),")
    core.insert_inside("CudaEvent::drop", "if self.destroy_of_slice() {\n    return;\n}")
    core.rename("CudaEvent::drop", "self.cu_event", "self.handle()")
    core.rename("CudaEvent::record", "result::event::record(self.cu_event, stream.cu_stream)", "self.record_on(stream)")
    for function in ("cu_event", "synchronize", "elapsed_ms", "is_complete", "try_is_complete"):
        core.rename(f"CudaEvent::{function}", "self.cu_event", "self.handle()")
    core.rename("CudaEvent::elapsed_ms", "end.cu_event", "end.handle()")
    core.insert_inside("CudaStream::wait", "if event.wait_for_slice(self)? {\n    return Ok(());\n}")
    core.rename("CudaStream::wait", "event.cu_event", "event.handle()")


def pool(crate):
    """Our lines over the hook: binpool is the allocator unless the program sets another."""
    crate.add_file(f"{SAFE}/binpool.rs", HERE / "binpool.rs")
    crate.source(f"{SAFE}/mod.rs").insert_before("mod core", "mod binpool;")
    owner = crate.source(f"{SAFE}/owner.rs")
    owner.rename("CudaStream::allocator", "ALLOCATOR.get()?", "ALLOCATOR.get_or_init(super::binpool::allocator)")
    crate.add_dependency("binpool", path="pool")
    crate.add_dependency("binpool-cuda", path="backend-cuda")


if __name__ == "__main__":
    crate = place()
    crate.write()
    print("{} lines added, {} removed".format(*crate.lines()))
