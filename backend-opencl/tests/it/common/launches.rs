//! Kernels that are launched through the backend, and what they are declared as.

use binpool_allocators::{Error, InvalidRequest, Queue};
use binpool_opencl::{ClKernel, ClMemory, ClProgram, Extent, OpenClError, Parameter};

use super::Bench;

const SOURCE: &str = "
kernel void add(global const float *left, global const float *right, global float *result)
{
    size_t i = get_global_id(0);
    result[i] = left[i] + right[i];
}

kernel void scale(global float *data, float factor)
{
    data[get_global_id(0)] *= factor;
}

kernel void sum(global const uint *data, uint length, global uint *sums, local uint *scratch)
{
    size_t place = get_local_id(0);
    uint sum = 0;
    for (uint i = get_global_id(0); i < length; i += get_global_size(0))
        sum += data[i];
    scratch[place] = sum;
    for (size_t reach = get_local_size(0) / 2; reach > 0; reach /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (place < reach)
            scratch[place] += scratch[place + reach];
    }
    if (place == 0)
        sums[get_group_id(0)] = scratch[0];
}

kernel void tell_lengths(global const float *data, uint few, ulong many, global ulong *told)
{
    told[0] = few;
    told[1] = many;
}

kernel void coordinates(global uint *cells)
{
    size_t width = get_global_size(0);
    cells[get_global_id(1) * width + get_global_id(0)] = get_global_id(1) * 100 + get_global_id(0);
}

kernel void look_up(constant uint *table, global uint *result)
{
    result[get_global_id(0)] = table[get_global_id(0)];
}

kernel void follow(global const ulong *addresses, global uint *result)
{
    global const uint *there = (global const uint *) addresses[get_global_id(0)];
    result[get_global_id(0)] = *there;
}

kernel __attribute__((reqd_work_group_size(4, 1, 1))) void by_fours(global uint *ids)
{
    ids[get_global_id(0)] = get_local_size(0);
}

kernel void blur(read_only image2d_t picture, sampler_t sampler, global float4 *result)
{
    result[get_global_id(0)] = read_imagef(picture, sampler, (float2)(0.0f, 0.0f));
}
";

/// A device, and the kernels above with what they are declared as.
pub(crate) struct Kernels {
    pub(crate) bench: Bench,
    pub(crate) program: ClProgram,
}

pub(crate) const PER_ITEM: Extent = Extent::PerItem(1);
pub(crate) const ADD: [Parameter; 3] = [
    Parameter::input::<f32>(PER_ITEM),
    Parameter::input::<f32>(PER_ITEM),
    Parameter::output::<f32>(PER_ITEM),
];
pub(crate) const SCALE: [Parameter; 2] = [
    Parameter::in_out::<f32>(PER_ITEM),
    Parameter::value::<f32>(),
];
pub(crate) const SUM: [Parameter; 4] = [
    Parameter::input::<u32>(Extent::Whole),
    Parameter::length_u32(0),
    Parameter::output::<u32>(Extent::PerGroup(1)),
    Parameter::local::<u32>(PER_ITEM),
];

/// PoCL may crash where a process ends while it still compiles a kernel for a launch.
impl Drop for Kernels {
    fn drop(&mut self) {
        drop(self.bench.queue.finish());
    }
}

impl Kernels {
    pub(crate) fn new() -> Self {
        let bench = Bench::new();
        let program = ClProgram::build(&bench.backend, SOURCE, "").unwrap();
        Self { bench, program }
    }

    pub(crate) fn declared(
        &self,
        name: &str,
        parameters: &[Parameter],
    ) -> Result<ClKernel, OpenClError> {
        // SAFETY: Every declaration in this file is what the source above does, or is refused.
        unsafe { self.program.kernel(name, parameters) }
    }

    pub(crate) fn kernel(&self, name: &str, parameters: &[Parameter]) -> ClKernel {
        self.declared(name, parameters).unwrap()
    }

    /// The kernel whose work items each have a cell of their own, on a line and on a plane.
    pub(crate) fn coordinates(&self, cells: Extent) -> ClKernel {
        let kernel = self.kernel("coordinates", &[Parameter::output::<u32>(cells)]);
        // SAFETY: As it says.
        unsafe { kernel.in_dimensions(2) }
    }

    pub(crate) fn floats(&self, values: &[f32]) -> ClMemory {
        let memory = self.bench.buffer(size_of_val(values));
        self.bench.write(&memory, bytemuck::cast_slice(values));
        memory
    }

    pub(crate) fn words(&self, memory: &ClMemory) -> Vec<u32> {
        elements(&self.bench.read(memory))
    }

    pub(crate) fn read_floats(&self, memory: &ClMemory) -> Vec<f32> {
        elements(&self.bench.read(memory))
    }
}

pub(crate) fn elements<T: bytemuck::Pod>(bytes: &[u8]) -> Vec<T> {
    let elements = bytes.chunks_exact(size_of::<T>());
    elements.map(bytemuck::pod_read_unaligned).collect()
}

/// The parameter that a kernel or a launch is refused for, and what is wrong with it.
pub(crate) fn parameter_refusal<T: std::fmt::Debug>(
    result: Result<T, OpenClError>,
) -> (usize, String) {
    match result.unwrap_err() {
        OpenClError::Kernel {
            parameter: Some(index),
            problem,
            ..
        } => (index, problem.to_string()),
        error => panic!("not about a parameter: {error}"),
    }
}

/// What a launch's memory is refused for.
pub(crate) fn launch_refusal<T: std::fmt::Debug>(result: Result<T, OpenClError>) -> InvalidRequest {
    match result.unwrap_err() {
        OpenClError::Device(Error::InvalidRequest(request)) => request,
        error => panic!("not a refusal: {error}"),
    }
}
