//! The kernels that programs launch.

use binpool_opencl::{ClKernel, ClProgram, Extent, OpenClBackend, Parameter};

const SOURCE: &str = "
kernel void add(global const uint *a, global const uint *b, global uint *sum)
{
    size_t i = get_global_id(0);
    sum[i] = a[i] + b[i];
}

kernel void scale_and_add(global uint *words, uint by)
{
    size_t i = get_global_id(0);
    words[i] = words[i] * 3 + by;
}

kernel void fill(global uint *words, uint with)
{
    size_t i = get_global_id(0);
    words[i] = with ^ i;
}

kernel void copy(global const uint *from, global uint *to)
{
    size_t i = get_global_id(0);
    to[i] = from[i];
}
";

#[derive(Debug)]
pub(crate) struct Kernels {
    /// `sum = a + b`.
    pub(crate) add: ClKernel,
    /// `words = 3 * words + by`.
    pub(crate) scale_and_add: ClKernel,
    /// `words[i] = with ^ i`.
    pub(crate) fill: ClKernel,
    /// `to = from`.
    pub(crate) copy: ClKernel,
}

impl Kernels {
    pub(crate) fn build(backend: &OpenClBackend) -> Self {
        const EACH: Extent = Extent::PerItem(1);
        let program = ClProgram::build(backend, SOURCE, "").expect("the kernels can be built");
        let kernel = |name: &str, parameters: &[Parameter]| {
            // SAFETY: Every declaration below is what the source above does.
            let kernel = unsafe { program.kernel(name, parameters) };
            kernel.expect("the kernels are what they are declared as")
        };
        let (input, output) = (
            Parameter::input::<u32>(EACH),
            Parameter::output::<u32>(EACH),
        );
        let value = Parameter::value::<u32>();
        Self {
            add: kernel("add", &[input, input, output]),
            scale_and_add: kernel("scale_and_add", &[Parameter::in_out::<u32>(EACH), value]),
            fill: kernel("fill", &[output, value]),
            copy: kernel("copy", &[input, output]),
        }
    }
}
