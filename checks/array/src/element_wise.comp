#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

// Element by element: an invocation takes every n-th one, where there are n in all. Starts and the count are in elements.

layout(local_size_x = 128) in;
layout(constant_id = 0) const uint OPERATION = 0;

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Float { float value; };

layout(push_constant) uniform Arguments
{
    uint64_t left, left_start, right, right_start, result, result_start, count;
};

Float at(uint64_t data, uint64_t start, uint64_t i)
{
    return Float(data + (start + i) * 4ul);
}

void main()
{
    uint64_t step = uint64_t(gl_NumWorkGroups.x) * 128ul;
    for (uint64_t i = gl_GlobalInvocationID.x; i < count; i += step) {
        float one = at(left, left_start, i).value;
        float other = at(right, right_start, i).value;
        float made = OPERATION == 0 ? one + other : OPERATION == 1 ? one - other : one * other;
        at(result, result_start, i).value = made;
    }
}
