"""ocl-convolution over binpool: what `scripts/clients ocl-convolution` builds, tests and measures."""

from pathlib import Path

import edit

HERE = Path(__file__).resolve().parent
TESTS = [["--lib", "--tests"]]


def place():
    crate = edit.Crate("ocl-convolution", "0.4.0", "5926d2674dc729d463739669405f2da4050b1c8dc43e88ab88c77211cbcec76b")
    crate.add_figures(HERE)

    crate.add_file("src/pool.rs", HERE / "pool.rs")
    crate.add_dependency("binpool", path="pool")
    crate.add_dependency("binpool-opencl", path="backend-opencl")
    crate.source("src/lib.rs").insert_after("mod params", "mod pool;")

    buffers = crate.source("src/buffers.rs")
    buffers.replace_item("use ocl", "use ocl::{prm::Uint3, Kernel};")
    buffers.insert_before("use crate", "use crate::pool::{Buffer, SetBuffer};")
    buffers.replace_let("Filters::new", "filters_buffer", "let filters_buffer = conv.pool().buffer_of(filters_slice.as_ref())?;")
    buffers.replace_let(
        "Filters::new",
        "filter_biases",
        """
        let filter_biases = biases
            .map(|biases| conv.pool().buffer_of(biases))
            .transpose()?;
        """,
    )
    buffers.replace_let("InputAndOutput::new", "signal_buffer", "let signal_buffer = conv.pool().buffer(signal_shape.buffer_len())?;")
    buffers.replace_let("InputAndOutput::new", "output_buffer", "let output_buffer = conv.pool().buffer(output_shape.buffer_len())?;")
    # `ocl` takes its own buffers as arguments, and those of others by these functions of `pool::Buffer` alone.
    buffers.rename("Filters::new", 'set_arg("filters", &filters_buffer)', 'set_buffer("filters", Some(&filters_buffer))')
    buffers.rename("Filters::new", 'set_arg("filter_biases"', 'set_buffer("filter_biases"')
    buffers.rename("Filters::pass_as_arguments", 'set_arg("filters", &self.inner)', 'set_buffer("filters", Some(&self.inner))')
    buffers.rename("Filters::pass_as_arguments", 'set_arg("filter_biases", biases)', 'set_buffer("filter_biases", Some(biases))')
    buffers.rename("InputAndOutput::execute", 'set_arg("output", &self.output_buffer)', 'set_buffer("output", Some(&self.output_buffer))')
    buffers.rename("InputAndOutput::execute", 'set_arg("signal", &self.signal_buffer)', 'set_buffer("signal", Some(&self.signal_buffer))')
    buffers.rename("InputAndOutput::write_signal", ".enq()", "")
    buffers.rename("InputAndOutput::execute", "read(&mut output_data).enq()", "read(&mut output_data)")

    base = crate.source("src/base.rs")
    base.insert_before("use ndarray", "use binpool::MemoryPool;\nuse binpool_opencl::OpenClBackend;")
    base.insert_before("use crate", "use crate::pool::Pool;")
    base.insert_inside("struct ConvolutionBuilder", "pool: Pool,")
    base.insert_inside("ConvolutionBuilder::new", "pool: Pool::new(program.queue())?,", literal="Self")
    base.insert_inside("struct Base", "pool: Pool,")
    base.insert_inside("Base::new", "pool: builder.pool.clone(),", literal="Base")
    for function in ["Base::with_filters", "Base::pinned"]:
        base.insert_inside(function, "pool: self.pool,", literal="Base")
    base.insert_before(
        "ConvolutionBuilder::kernel_builder",
        """
        /// Returns the pool that the memory of all convolutions of this builder comes from, for its statistics and limits.
        pub fn pool(&self) -> &MemoryPool<OpenClBackend> {
            self.pool.memory()
        }
        """,
    )
    base.replace_item("Base::queue", "pub fn pool(&self) -> &Pool {\n    &self.pool\n}")
    return crate
