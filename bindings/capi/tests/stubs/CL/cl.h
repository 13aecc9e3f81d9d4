/* What the programs in README.md and the guide use of OpenCL's header, so that they can be compiled without it. */

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef struct cl_context_ *cl_context;
typedef struct cl_device_id_ *cl_device_id;
typedef struct cl_command_queue_ *cl_command_queue;
typedef struct cl_event_ *cl_event;
typedef struct cl_kernel_ *cl_kernel;
typedef struct cl_mem_ *cl_mem;

#ifdef __cplusplus
extern "C" {
#endif
cl_int clSetKernelArg(cl_kernel, cl_uint, size_t, const void *);
cl_int clEnqueueNDRangeKernel(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *,
                              cl_uint, const cl_event *, cl_event *);
cl_int clEnqueueFillBuffer(cl_command_queue, cl_mem, const void *, size_t, size_t, size_t, cl_uint,
                           const cl_event *, cl_event *);
#ifdef __cplusplus
}
#endif
