// What programs ask about objects, of memory that was used before and of new memory.
#include "opencl.h"

static void say_number(const char *what, cl_int status, unsigned long long number) {
  if (status) say(" %s: error %d;", what, status);
  else say(" %s %llu;", what, number);
}
// Asks for a number of this type.
#define ASK(FUNCTION, OBJECT, TYPE, NAME)                                                                                        \
  do {                                                                                                                           \
    TYPE number = 0;                                                                                                             \
    size_t size = 0;                                                                                                             \
    cl_int status = FUNCTION(OBJECT, NAME, sizeof number, &number, &size);                                                       \
    say_number(#NAME, status, (unsigned long long)number);                                                                       \
    if (!status && size != sizeof number) say(" of %zu bytes", size);                                                            \
    cl_int asked = FUNCTION(OBJECT, NAME, 0, NULL, &size), small = FUNCTION(OBJECT, NAME, 1, &number, NULL);                     \
    say(" %d %zu %d;", asked, size, small);                                                                                      \
  } while (0)

static void say_memory(struct rig rig, cl_mem memory, const void *host) {
  ASK(clGetMemObjectInfo, memory, cl_mem_object_type, CL_MEM_TYPE);
  ASK(clGetMemObjectInfo, memory, cl_mem_flags, CL_MEM_FLAGS);
  ASK(clGetMemObjectInfo, memory, size_t, CL_MEM_SIZE);
  ASK(clGetMemObjectInfo, memory, cl_uint, CL_MEM_MAP_COUNT);
  ASK(clGetMemObjectInfo, memory, size_t, CL_MEM_OFFSET);
  ASK(clGetMemObjectInfo, memory, cl_bool, CL_MEM_USES_SVM_POINTER);
  cl_context context = NULL;
  cl_mem whole = NULL;
  void *pointer = NULL;
  size_t properties = 99;
  must(!clGetMemObjectInfo(memory, CL_MEM_CONTEXT, sizeof context, &context, NULL) && !clGetMemObjectInfo(memory, CL_MEM_HOST_PTR, sizeof pointer, &pointer, NULL));
  must(!clGetMemObjectInfo(memory, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof whole, &whole, NULL));
  cl_int asked = clGetMemObjectInfo(memory, CL_MEM_PROPERTIES, 0, NULL, &properties);
  say(" context %d, pointer %d, a part %d, properties %d %zu, references %u, unknown %d\n", context == rig.context, pointer == host, whole != NULL, asked,
      properties, references_of_memory(memory), clGetMemObjectInfo(memory, 0x7777, sizeof context, &context, NULL));
}

CASE(all_of_memory, TOGETHER, "all that a driver says of buffers of each kind of flags, new and used before, of parts and of an image") {
  struct rig rig = up();
  unsigned char *host = aligned_alloc(4096, 4096);
  memset(host, 0, 4096);
  const cl_mem_flags flags[] = {0, CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS, CL_MEM_ALLOC_HOST_PTR, CL_MEM_USE_HOST_PTR, CL_MEM_COPY_HOST_PTR};
  for (int i = 0; i < 12; i++) {
    cl_mem_flags own = flags[i / 2];
    bool has_host = own & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR);
    cl_int status;
    cl_mem memory = clCreateBuffer(rig.context, own, 4096, has_host ? host : NULL, &status);
    must(!status && !clRetainMemObject(memory));
    say_memory(rig, memory, own & CL_MEM_USE_HOST_PTR ? host : NULL);
    release(memory);
    say_memory(rig, memory, own & CL_MEM_USE_HOST_PTR ? host : NULL);
    cl_buffer_region region = {0, 1000};
    cl_mem part = clCreateSubBuffer(memory, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    if (part) {
      say_memory(rig, part, own & CL_MEM_USE_HOST_PTR ? host : NULL);
      release(part);
    }
    release(memory);
  }
  free(host);
  down(rig);
}

CASE(all_of_an_image, TOGETHER, "all that a driver says of an image, and of the formats it has") {
  struct rig rig = up();
  cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc description = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 16, .image_height = 8};
  cl_int status;
  cl_mem image = clCreateImage(rig.context, CL_MEM_READ_ONLY, &format, &description, NULL, &status);
  must(!status);
  say_memory(rig, image, NULL);
  ASK(clGetImageInfo, image, size_t, CL_IMAGE_ELEMENT_SIZE);
  ASK(clGetImageInfo, image, size_t, CL_IMAGE_ROW_PITCH);
  ASK(clGetImageInfo, image, size_t, CL_IMAGE_WIDTH);
  ASK(clGetImageInfo, image, size_t, CL_IMAGE_HEIGHT);
  ASK(clGetImageInfo, image, cl_uint, CL_IMAGE_NUM_MIP_LEVELS);
  cl_uint count = 0;
  say("\n%d", clGetSupportedImageFormats(rig.context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0, NULL, &count));
  say(" %d\n", count > 0);
  release(image);
  down(rig);
}

CASE(all_of_queues_and_contexts, TOGETHER, "all that a driver says of queues and contexts, while memory comes and goes there") {
  struct rig rig = up_alone();
  for (int i = 0; i < 3; i++) {
    must(!use_rig(rig, 4096));
    ASK(clGetCommandQueueInfo, rig.queue, cl_command_queue_properties, CL_QUEUE_PROPERTIES);
    ASK(clGetContextInfo, rig.context, cl_uint, CL_CONTEXT_NUM_DEVICES);
    cl_device_id device;
    cl_context context;
    size_t properties = 99, of_context = 99;
    must(!clGetCommandQueueInfo(rig.queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL) && !clGetCommandQueueInfo(rig.queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL));
    say(" %d%d", device == rig.device, context == rig.context);
    say(" %d", clGetCommandQueueInfo(rig.queue, CL_QUEUE_PROPERTIES_ARRAY, 0, NULL, &properties));
    say(" %d", clGetContextInfo(rig.context, CL_CONTEXT_PROPERTIES, 0, NULL, &of_context));
    must(!clGetContextInfo(rig.context, CL_CONTEXT_DEVICES, sizeof device, &device, NULL));
    say(" %zu %zu %d references %u %u\n", properties, of_context, device == rig.device, references_of_queue(rig.queue), references_of_context(rig.context));
  }
  down_alone(rig);
}

CASE(all_of_kernels_and_programs, TOGETHER, "all that a driver says of kernels, their arguments and programs, with arguments that come and go") {
  struct rig rig = up();
  cl_program program = new_program(rig.context);
  cl_int status;
  cl_kernel kernel = clCreateKernel(program, "add", &status);
  must(!status);
  for (int i = 0; i < 2; i++) {
    cl_mem memory = new_buffer(rig.context, 0, 256), other = new_buffer(rig.context, 0, 256);
    must(!clSetKernelArg(kernel, 0, sizeof memory, &memory) && !clSetKernelArg(kernel, 1, sizeof other, &other));
    ASK(clGetKernelInfo, kernel, cl_uint, CL_KERNEL_NUM_ARGS);
    ASK(clGetProgramInfo, program, size_t, CL_PROGRAM_NUM_KERNELS);
    char name[50] = "";
    must(!clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL));
    say(" %s, references %u, of the memory %u", name, references_of_kernel(kernel), references_of_memory(memory));
    cl_kernel_arg_address_qualifier where = 0;
    say(" %d", clGetKernelArgInfo(kernel, 0, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof where, &where, NULL));
    size_t most;
    say(" %d", clGetKernelWorkGroupInfo(kernel, rig.device, CL_KERNEL_WORK_GROUP_SIZE, sizeof most, &most, NULL));
    cl_build_status build;
    must(!clGetProgramBuildInfo(program, rig.device, CL_PROGRAM_BUILD_STATUS, sizeof build, &build, NULL));
    say(" %d\n", build);
    launch(rig.queue, kernel, 256);
    finish(rig.queue);
    release(memory);
    release(other);
  }
  must(!clReleaseKernel(kernel));
  cl_kernel kernels[10];
  cl_uint made = 0;
  say("%d", clCreateKernelsInProgram(program, 0, NULL, &made));
  must(made && made <= 10);
  say(" %d %u\n", clCreateKernelsInProgram(program, made, kernels, NULL), made);
  for (cl_uint i = 0; i < made; i++) must(!clReleaseKernel(kernels[i]));
  must(!clReleaseProgram(program));
  down(rig);
}

CASE(all_of_events, TOGETHER, "all that a driver says of events, of commands that wait and that have ended") {
  struct rig rig = up();
  cl_event gate = new_user_event(rig.context), event;
  cl_mem memory = new_buffer(rig.context, 0, 4096);
  unsigned char value = 1;
  must(!clEnqueueFillBuffer(rig.queue, memory, &value, 1, 0, 4096, 1, &gate, &event) && !clFlush(rig.queue));
  for (int i = 0; i < 2; i++) {
    cl_command_queue queue, none = (cl_command_queue)1;
    ASK(clGetEventInfo, gate, cl_command_type, CL_EVENT_COMMAND_TYPE);
    ASK(clGetEventInfo, event, cl_command_type, CL_EVENT_COMMAND_TYPE);
    must(!clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, NULL) && !clGetEventInfo(gate, CL_EVENT_COMMAND_QUEUE, sizeof none, &none, NULL));
    cl_int state;
    must(!clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
    say(" %d %d pending %d\n", queue == rig.queue, none == NULL, state > 0);
    if (!i) resolve(gate, CL_COMPLETE);
    finish(rig.queue);
  }
  say("references %u %u\n", references_of_event(event), references_of_event(gate));
  must(!clReleaseEvent(gate) && !clReleaseEvent(event));
  release(memory);
  down(rig);
}

CASE(all_of_devices, TOGETHER, "what a driver says of the platform and the device, and of functions by their names") {
  struct rig rig = up();
  char text[4096];
  say("%d", clGetPlatformInfo(rig.platform, CL_PLATFORM_NAME, sizeof text, text, NULL));
  say(" %d", clGetDeviceInfo(rig.device, CL_DEVICE_NAME, sizeof text, text, NULL));
  ASK(clGetDeviceInfo, rig.device, cl_uint, CL_DEVICE_MEM_BASE_ADDR_ALIGN);
  ASK(clGetDeviceInfo, rig.device, cl_ulong, CL_DEVICE_GLOBAL_MEM_SIZE);
  ASK(clGetDeviceInfo, rig.device, cl_ulong, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  say(" %d %d\n", clRetainDevice(rig.device), clReleaseDevice(rig.device));
  say("%d\n", clGetExtensionFunctionAddressForPlatform(rig.platform, "clNoSuchFunction") == NULL);
  down(rig);
}

CASE(sub_devices, TOGETHER, "a context of sub-devices, whose memory comes and goes") {
  struct rig rig = up();
  const cl_device_partition_property by_counts[] = {CL_DEVICE_PARTITION_EQUALLY, 1, 0};
  cl_device_id parts[64];
  cl_uint count = 0;
  cl_int status = clCreateSubDevices(rig.device, by_counts, 64, parts, &count);
  say("%d", status);
  if (!status && count) {
    cl_context context = clCreateContext(NULL, 1, parts, NULL, NULL, &status);
    say(" %d", status);
    if (context) {
      cl_command_queue queue = clCreateCommandQueueWithProperties(context, parts[0], NULL, &status);
      for (int i = 0; i < 5; i++) say(" %d", use(context, queue, 4096, i));
      must(!clReleaseCommandQueue(queue) && !clReleaseContext(context));
    }
    // The first one stays: PoCL before version 4 frees it at once, while another thread ends its last command (its issue 1229).
    for (cl_uint i = 1; i < count; i++) must(!clReleaseDevice(parts[i]));
  }
  say("\n");
  down(rig);
}

CASE(contexts_by_type, TOGETHER, "a context by the type of its device, with a function for errors, and the old function for queues") {
  cl_platform_id platform = first_platform();
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, (cl_context_properties)platform, 0};
  cl_int status;
  cl_context context = clCreateContextFromType(properties, CL_DEVICE_TYPE_ALL, NULL, NULL, &status);
  must(!status);
  cl_command_queue queue = clCreateCommandQueue(context, first_device(), 0, &status);
  must(!status);
  for (int i = 0; i < 5; i++) say("%d", use(context, queue, 4096, i));
  say("\n");
  must(!clReleaseCommandQueue(queue) && !clReleaseContext(context));
}
