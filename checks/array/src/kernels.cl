// The kernels of the arrays. An operand or a result is the buffer that holds it, and the place in the buffer where it starts.

// Element by element: each work item makes the element of its id.
#define OPERATION(name, operator)                                                                                      \
    kernel void name(                                                                                                  \
        global const float *left, ulong left_start, global const float *right, ulong right_start,                      \
        global float *result, ulong result_start)                                                                      \
    {                                                                                                                  \
        size_t i = get_global_id(0);                                                                                   \
        (result + result_start)[i] = (left + left_start)[i] operator (right + right_start)[i];                         \
    }

OPERATION(add, +)
OPERATION(subtract, -)
OPERATION(multiply, *)

// One partial result for each group. A work item takes every n-th element, where there are n work items in all; then
// the second half of the group's items adds to the first one, until there is one.
#define REDUCTION(name, nothing, combine)                                                                              \
    kernel void name(                                                                                                  \
        global const float *data, ulong start, ulong length, global float *results, ulong results_start,               \
        local float *scratch)                                                                                          \
    {                                                                                                                  \
        size_t item = get_local_id(0);                                                                                 \
        float mine = nothing;                                                                                          \
        for (ulong i = get_global_id(0); i < length; i += get_global_size(0))                                          \
            mine = combine(mine, (data + start)[i]);                                                                   \
        scratch[item] = mine;                                                                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        for (size_t width = get_local_size(0); width > 1;) {                                                           \
            size_t half_width = (width + 1) / 2;                                                                       \
            if (item + half_width < width)                                                                             \
                scratch[item] = combine(scratch[item], scratch[item + half_width]);                                    \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                              \
            width = half_width;                                                                                        \
        }                                                                                                              \
        if (item == 0)                                                                                                 \
            (results + results_start)[get_group_id(0)] = scratch[0];                                                   \
    }

#define PLUS(one, other) ((one) + (other))

REDUCTION(sum, 0.0f, PLUS)
REDUCTION(minimum, NAN, fmin)
REDUCTION(maximum, NAN, fmax)
