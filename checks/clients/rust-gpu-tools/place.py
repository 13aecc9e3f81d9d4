"""rust-gpu-tools over binpool: what `scripts/clients rust-gpu-tools` builds, tests and measures."""

from pathlib import Path

import edit

HERE = Path(__file__).resolve().parent
TESTS = [
    # Its example needs CUDA.
    ["--no-default-features", "--features", "opencl", "--lib"],
    ["-p", "ec-gpu-gen", "--features", "opencl", "--lib"],
]


def place():
    crate = edit.Crate("rust-gpu-tools", "0.7.2", "b0ce78d5548a74fad25177825d0c20f4cfbc6eaf796bcee53afe792e39ede4e2")
    crate.add_user("ec-gpu-gen", "0.7.1", "d2353854622ec1abfd22243eb958453b95f1502e2a56648bf9db49ccbfb55f01")
    crate.add_figures(HERE, patch=True)

    # On either side: it takes GPUs of two vendors alone, and PoCL's device is a processor.
    for devices in crate.both("src/opencl/utils.rs"):
        devices.rename("build_device_list", "CL_DEVICE_TYPE_GPU", "CL_DEVICE_TYPE_ALL")
        devices.rename("build_device_list", "ok()?", "unwrap_or(Vendor::Amd)")

    crate.add_file("src/opencl/pool.rs", HERE / "pool.rs")
    crate.add_dependency("binpool", path="pool", optional=True)
    crate.add_dependency("binpool-opencl", path="backend-opencl", optional=True)
    crate.extend_feature("opencl", ["binpool", "binpool-opencl"])

    opencl = crate.source("src/opencl/mod.rs")
    opencl.insert_before("mod utils", "mod pool;")
    opencl.delete_item("use std::ptr")
    opencl.delete_item("use opencl3::memory::CL_MEM_READ_WRITE")
    opencl.insert_before("use crate::device::{DeviceUuid, PciId, Vendor}", "pub use self::pool::Pool;")
    # The queue keeps the context.
    opencl.rename("struct Program", "context: Context", "pool: Pool")
    for function in ["Program::from_opencl", "Program::from_binary"]:
        opencl.insert_before_let(function, "kernels", "let pool = pool::new(&context, &queue)?;")
        opencl.rename(function, "context,\n", "pool,\n")
    opencl.append_inside("struct Buffer", "/// Gives the memory back to the pool.\n_block: pool::Block,")
    opencl.replace_body("Program::create_buffer", "assert!(length > 0);\nself.buffer(length)")
    opencl.replace_body(
        "Program::create_buffer_from_slice",
        """
        let mut buffer = self.buffer(slice.len())?;
        self.write_from_buffer(&mut buffer, slice)?;
        Ok(buffer)
        """,
    )
    opencl.insert_after(
        "Program::create_buffer_from_slice",
        """
        fn buffer<T>(&self, length: usize) -> GPUResult<Buffer<T>> {
            let (buffer, block) = pool::allocate(&self.pool, length * std::mem::size_of::<T>())?;
            Ok(Buffer {
                buffer,
                _block: block,
                length,
                _phantom: std::marker::PhantomData,
            })
        }

        /// Returns the pool that buffers come from, for its statistics and limits.
        pub fn pool(&self) -> &Pool {
            &self.pool
        }
        """,
    )
    return crate
