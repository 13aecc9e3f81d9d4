// What the cases of OpenCL share.
#include "opencl.h"

static const char *const SOURCE =
    "kernel void set(global uchar *to, uchar value) { to[get_global_id(0)] = value; }\n"
    "kernel void add(global uchar *to, global const uchar *from) { to[get_global_id(0)] += from[get_global_id(0)]; }\n"
    "kernel void local_sum(global uchar *to, local uchar *shared) {\n"
    "  shared[get_local_id(0)] = 3; barrier(CLK_LOCAL_MEM_FENCE); to[get_global_id(0)] = shared[0];\n"
    "}\n"
    "kernel void sample(global uchar *to, read_only image2d_t from, sampler_t by) {\n"
    "  to[get_global_id(0)] = (uchar)read_imageui(from, by, (int2)(0, 0)).x;\n"
    "}\n"
    "kernel void spin(global volatile int *flags, global uchar *to) {\n"
    "  flags[1] = 1; while (flags[0] == 0); to[0] = 5;\n"
    "}\n";

cl_platform_id first_platform(void) {
  cl_platform_id platform;
  must(clGetPlatformIDs(1, &platform, NULL) == CL_SUCCESS);
  return platform;
}

cl_device_id first_device(void) {
  cl_device_id device;
  must(clGetDeviceIDs(first_platform(), CL_DEVICE_TYPE_ALL, 1, &device, NULL) == CL_SUCCESS);
  return device;
}

cl_context new_context(void) {
  cl_int status;
  cl_device_id device = first_device();
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
  must(status == CL_SUCCESS);
  return context;
}

cl_command_queue new_queue(cl_context context, cl_command_queue_properties properties) {
  cl_int status;
  cl_queue_properties list[] = {CL_QUEUE_PROPERTIES, properties, 0};
  cl_command_queue queue = clCreateCommandQueueWithProperties(context, first_device(), list, &status);
  must(status == CL_SUCCESS);
  return queue;
}

cl_mem new_buffer(cl_context context, cl_mem_flags flags, size_t bytes) {
  cl_int status;
  cl_mem memory = clCreateBuffer(context, flags, bytes, NULL, &status);
  must(status == CL_SUCCESS);
  return memory;
}

cl_event new_user_event(cl_context context) {
  cl_int status;
  cl_event event = clCreateUserEvent(context, &status);
  must(status == CL_SUCCESS);
  return event;
}

cl_program new_program(cl_context context) {
  cl_int status;
  const char *source = SOURCE;
  cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &status);
  must(status == CL_SUCCESS);
  must(clBuildProgram(program, 0, NULL, "-cl-std=CL2.0", NULL, NULL) == CL_SUCCESS);
  return program;
}

cl_kernel new_kernel(cl_context context, const char *name) {
  cl_int status;
  cl_program program = new_program(context);
  cl_kernel kernel = clCreateKernel(program, name, &status);
  must(status == CL_SUCCESS);
  must(clReleaseProgram(program) == CL_SUCCESS);
  return kernel;
}

struct rig up_alone(void) {
  struct rig rig = {.platform = first_platform(), .device = first_device(), .context = new_context()};
  rig.queue = new_queue(rig.context, 0);
  return rig;
}

void down_alone(struct rig rig) {
  must(clReleaseCommandQueue(rig.queue) == CL_SUCCESS);
  must(clReleaseContext(rig.context) == CL_SUCCESS);
}

void hold_device(void) { must(!use_rig(up_alone(), 64)); }

// On the heap: data of a thread takes from its stack.
static _Thread_local struct rig *shared;

struct rig up(void) {
  if (!is_shared) return up_alone();
  if (!shared) *(shared = malloc(sizeof *shared)) = up_alone();
  return *shared;
}

void down(struct rig rig) {
  if (is_shared) finish(rig.queue);
  else down_alone(rig);
}

void fill(cl_command_queue queue, cl_mem memory, unsigned char value, size_t bytes) {
  must(clEnqueueFillBuffer(queue, memory, &value, 1, 0, bytes, 0, NULL, NULL) == CL_SUCCESS);
}

void launch(cl_command_queue queue, cl_kernel kernel, size_t items) {
  must(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL) == CL_SUCCESS);
}

bool is_filled(const void *bytes, unsigned char value, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (((const unsigned char *)bytes)[i] != value) return false;
  return true;
}

bool reads(cl_command_queue queue, cl_mem memory, unsigned char value, size_t bytes) {
  unsigned char *to = malloc(bytes);
  must(clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, bytes, to, 0, NULL, NULL) == CL_SUCCESS);
  bool same = is_filled(to, value, bytes);
  free(to);
  return same;
}

cl_int use(cl_context context, cl_command_queue queue, size_t bytes, unsigned char value) {
  cl_int status;
  cl_mem memory = clCreateBuffer(context, 0, bytes, NULL, &status);
  if (!memory) return status;
  unsigned char *to = calloc(bytes, 1);
  // The queue may be one without an order.
  cl_event filled;
  status = clEnqueueFillBuffer(queue, memory, &value, 1, 0, bytes, 0, NULL, &filled);
  if (!status) status = clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, bytes, to, 1, &filled, NULL);
  if (!status) status = clReleaseEvent(filled);
  if (!status && !is_filled(to, value, bytes)) status = 1;
  free(to);
  cl_int released = clReleaseMemObject(memory);
  return status ? status : released;
}

cl_int use_rig(struct rig rig, size_t bytes) { return use(rig.context, rig.queue, bytes, (unsigned char)(bytes % 251)); }

// Asks until the answer is 1, or for a while.
#define REFERENCES(FUNCTION, TYPE, ASK, NAME)                                                                                    \
  cl_uint FUNCTION(TYPE object) {                                                                                                \
    cl_uint least = 0, now;                                                                                                      \
    for (int i = 0; i < 20; i++) {                                                                                               \
      must(ASK(object, NAME, sizeof now, &now, NULL) == CL_SUCCESS);                                                             \
      if (!i || now < least) least = now;                                                                                        \
      if (least <= 1) break;                                                                                                     \
      nap(1000);                                                                                                                 \
    }                                                                                                                            \
    return least;                                                                                                                \
  }
REFERENCES(references_of_memory, cl_mem, clGetMemObjectInfo, CL_MEM_REFERENCE_COUNT)
REFERENCES(references_of_context, cl_context, clGetContextInfo, CL_CONTEXT_REFERENCE_COUNT)
REFERENCES(references_of_queue, cl_command_queue, clGetCommandQueueInfo, CL_QUEUE_REFERENCE_COUNT)
REFERENCES(references_of_event, cl_event, clGetEventInfo, CL_EVENT_REFERENCE_COUNT)
REFERENCES(references_of_kernel, cl_kernel, clGetKernelInfo, CL_KERNEL_REFERENCE_COUNT)

bool has_native_kernels(void) {
  cl_device_exec_capabilities can;
  must(clGetDeviceInfo(first_device(), CL_DEVICE_EXECUTION_CAPABILITIES, sizeof can, &can, NULL) == CL_SUCCESS);
  return can & CL_EXEC_NATIVE_KERNEL;
}

bool has_fine_grained_memory(void) {
  cl_device_svm_capabilities can;
  must(clGetDeviceInfo(first_device(), CL_DEVICE_SVM_CAPABILITIES, sizeof can, &can, NULL) == CL_SUCCESS);
  return can & CL_DEVICE_SVM_FINE_GRAIN_BUFFER;
}
