// The kernels of the arrays. A block of floats is a whole buffer, the place where the block starts in it, and the block's length.
// None is read beyond it.

// Whether a block has that many elements from the first one on. Work items agree on it, so that compilers make vectors of
// what comes after.
bool has(ulong length, ulong first, ulong count)
{
    return first <= length && count <= length - first;
}

// Element by element: each work item makes the element of its id.
#define OPERATION(name, operator)                                                                                      \
    kernel void name(                                                                                                  \
        global const float *left, ulong left_start, ulong left_length, ulong left_first,                               \
        global const float *right, ulong right_start, ulong right_length, ulong right_first,                           \
        global float *result, ulong result_start)                                                                      \
    {                                                                                                                  \
        size_t i = get_global_id(0), end = get_global_offset(0) + get_global_size(0);                                  \
        if (!has(left_length, left_first, end) || !has(right_length, right_first, end))                                \
            return;                                                                                                    \
        left += left_start + left_first;                                                                               \
        right += right_start + right_first;                                                                            \
        (result + result_start)[i] = left[i] operator right[i];                                                        \
    }

OPERATION(add, +)
OPERATION(subtract, -)
OPERATION(multiply, *)

// One partial result for each group. A work item takes every n-th element, where there are n work items in all; then
// the second half of the group's items adds to the first one, until there is one.
#define REDUCTION(name, nothing, combine)                                                                              \
    kernel void name(                                                                                                  \
        global const float *data, ulong start, ulong length, ulong first, ulong count,                                 \
        global float *results, ulong results_start, local float *scratch)                                              \
    {                                                                                                                  \
        size_t item = get_local_id(0);                                                                                 \
        ulong end = first < length ? first + min(count, length - first) : 0;                                           \
        float mine = nothing;                                                                                          \
        for (ulong i = first + get_global_id(0); i < end; i += get_global_size(0))                                     \
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
