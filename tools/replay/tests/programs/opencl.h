// What the cases of OpenCL share.
#pragma once
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_0_APIS
#include "case.h"
#include <CL/cl.h>

// A context of the first device, with a queue that runs commands in order.
struct rig {
  cl_platform_id platform;
  cl_device_id device;
  cl_context context;
  cl_command_queue queue;
};

// The rig of the thread, if its cases share one, or a new one.
struct rig up(void);
void down(struct rig rig);
// One that no other case has.
struct rig up_alone(void);
void down_alone(struct rig rig);
cl_platform_id first_platform(void);
cl_device_id first_device(void);

cl_context new_context(void);
cl_command_queue new_queue(cl_context context, cl_command_queue_properties properties);
cl_mem new_buffer(cl_context context, cl_mem_flags flags, size_t bytes);
cl_event new_user_event(cl_context context);
// One of the kernels in opencl.c, with a program of its own, which it keeps.
cl_kernel new_kernel(cl_context context, const char *name);
cl_program new_program(cl_context context);

// Commands that have to work. `fill` and `launch` do not wait.
void fill(cl_command_queue queue, cl_mem memory, unsigned char value, size_t bytes);
void launch(cl_command_queue queue, cl_kernel kernel, size_t items);
// Whether all bytes have this value.
bool reads(cl_command_queue queue, cl_mem memory, unsigned char value, size_t bytes);
bool is_filled(const void *bytes, unsigned char value, size_t count);

// Creates a buffer, fills, reads and releases it. Returns the first error, or 1 if the bytes are wrong.
cl_int use(cl_context context, cl_command_queue queue, size_t bytes, unsigned char value);
cl_int use_rig(struct rig rig, size_t bytes);

// The references of an object. A thread of the driver may have one for a moment after a command has ended.
cl_uint references_of_memory(cl_mem memory);
cl_uint references_of_context(cl_context context);
cl_uint references_of_queue(cl_command_queue queue);
cl_uint references_of_event(cl_event event);
cl_uint references_of_kernel(cl_kernel kernel);

bool has_native_kernels(void);
bool has_fine_grained_memory(void);

// A command that the program holds up: a user event.
static inline void resolve(cl_event event, cl_int status) { must(clSetUserEventStatus(event, status) == CL_SUCCESS); }
static inline void release(cl_mem memory) { must(clReleaseMemObject(memory) == CL_SUCCESS); }
static inline void finish(cl_command_queue queue) { must(clFinish(queue) == CL_SUCCESS); }
