#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

// One partial result for each group. An invocation takes every n-th element, where there are n in all; then the second half
// of the group adds to the first one, until there is one. Starts and the length are in elements.

layout(local_size_x = 128) in;
layout(constant_id = 0) const uint REDUCTION = 0;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Float { float value; };

layout(push_constant) uniform Arguments
{
    uint64_t data, data_start, length, results, results_start;
};

shared float scratch[128];

// The value that leaves any other as it is: 0, or not a number.
float nothing()
{
    return REDUCTION == 0 ? 0.0 : uintBitsToFloat(0x7FC00000u);
}

float combine(float one, float other)
{
    if (REDUCTION == 0)
        return one + other;
    if (isnan(one))
        return other;
    if (isnan(other))
        return one;
    return REDUCTION == 1 ? min(one, other) : max(one, other);
}

void main()
{
    uint item = gl_LocalInvocationID.x;
    uint64_t step = uint64_t(gl_NumWorkGroups.x) * 128ul;
    float mine = nothing();
    for (uint64_t i = gl_GlobalInvocationID.x; i < length; i += step)
        mine = combine(mine, Float(data + (data_start + i) * 4ul).value);
    scratch[item] = mine;
    barrier();
    for (uint width = 64; width > 0; width /= 2) {
        if (item < width)
            scratch[item] = combine(scratch[item], scratch[item + width]);
        barrier();
    }
    if (item == 0)
        Float(results + (results_start + gl_WorkGroupID.x) * 4ul).value = scratch[0];
}
