// Objects that the program asks the driver for, and uses after it has released those that it made.
#include "opencl.h"

// What a context was asked back from, and how.
enum from { QUEUE, EVENT, USER_EVENT, MEMORY, PART, IMAGE, PROGRAM, KERNEL, SAMPLER, KINDS };

static const char *const names[] = {"queue", "event", "user event", "memory", "part", "image", "program", "kernel", "sampler"};

static atomic_int ended;
static void CL_CALLBACK context_ends(cl_context context, void *count) { ++*(atomic_int *)count; }

static cl_mem new_image(cl_context context) {
  cl_int status;
  cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc description = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 16, .image_height = 16};
  cl_mem image = clCreateImage(context, 0, &format, &description, NULL, &status);
  must(!status);
  return image;
}

// Makes an object of a context, releases the context, and asks for it. Returns it with a reference that is the program's.
static cl_context ask_back(cl_context context, cl_command_queue queue, enum from from, void **object) {
  cl_int status = 0;
  cl_context found = NULL;
  cl_mem whole;
  cl_buffer_region region = {0, 1024};
  switch (from) {
  case QUEUE: *object = new_queue(context, 0); break;
  case EVENT: must(!clEnqueueMarkerWithWaitList(queue, 0, NULL, (cl_event *)object)); break;
  case USER_EVENT: *object = new_user_event(context); break;
  case MEMORY: *object = new_buffer(context, 0, 4096); break;
  case PART:
    whole = new_buffer(context, 0, 4096);
    *object = clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    release(whole);
    break;
  case IMAGE: *object = new_image(context); break;
  case PROGRAM: *object = new_program(context); break;
  case KERNEL: *object = new_kernel(context, "set"); break;
  case SAMPLER: *object = clCreateSampler(context, CL_FALSE, CL_ADDRESS_NONE, CL_FILTER_NEAREST, &status); break;
  case KINDS: break;
  }
  must(!status);
  finish(queue);
  must(!clReleaseCommandQueue(queue) && !clReleaseContext(context));
  switch (from) {
  case QUEUE: status = clGetCommandQueueInfo(*object, CL_QUEUE_CONTEXT, sizeof found, &found, NULL); break;
  case EVENT:
  case USER_EVENT: status = clGetEventInfo(*object, CL_EVENT_CONTEXT, sizeof found, &found, NULL); break;
  case MEMORY:
  case PART:
  case IMAGE: status = clGetMemObjectInfo(*object, CL_MEM_CONTEXT, sizeof found, &found, NULL); break;
  case PROGRAM: status = clGetProgramInfo(*object, CL_PROGRAM_CONTEXT, sizeof found, &found, NULL); break;
  case KERNEL: status = clGetKernelInfo(*object, CL_KERNEL_CONTEXT, sizeof found, &found, NULL); break;
  case SAMPLER: status = clGetSamplerInfo(*object, CL_SAMPLER_CONTEXT, sizeof found, &found, NULL); break;
  case KINDS: break;
  }
  must(!status && !clRetainContext(found));
  return found;
}

static void release_object(void *object, enum from from) {
  switch (from) {
  case QUEUE: must(!clReleaseCommandQueue(object)); break;
  case EVENT:
  case USER_EVENT: must(!clReleaseEvent(object)); break;
  case MEMORY:
  case PART:
  case IMAGE: release(object); break;
  case PROGRAM: must(!clReleaseProgram(object)); break;
  case KERNEL: must(!clReleaseKernel(object)); break;
  case SAMPLER: must(!clReleaseSampler(object)); break;
  case KINDS: break;
  }
}

// Uses a context again, in which all objects of the program but one are gone.
static void ask_and_use(enum from from, bool is_object_last, size_t bytes) {
  atomic_int own = 0;
  struct rig rig = up_alone();
  must(!clSetContextDestructorCallback(rig.context, context_ends, &own));
  must(!use_rig(rig, 1024));
  void *object;
  cl_context context = ask_back(rig.context, rig.queue, from, &object);
  cl_command_queue queue = new_queue(context, 0);
  for (int i = 0; i < 3; i++) must(!use(context, queue, bytes + i, 7));
  must(!clReleaseCommandQueue(queue));
  if (is_object_last) must(!clReleaseContext(context));
  release_object(object, from);
  if (!is_object_last) must(!clReleaseContext(context));
  // A thread of the driver may have the last reference for a moment.
  for (int i = 0; i < 200 && !own; i++) nap(1000);
  say("the context of a %s ended: %d\n", names[from], own);
}
CASE(contexts, TOGETHER, "a context is asked back from an object of each kind, used, and released before or after the object") {
  for (enum from from = 0; from < KINDS; from++)
    for (int last = 0; last < 2; last++) ask_and_use(from, last, 4096);
}

// Keeps a queue alone, asks it for its context, and lets memory come and go there. Many times: what stays is many times 16 MiB.
static void ask_queues(bool is_retained) {
  enum { CONTEXTS = 40, BYTES = 16 << 20 };
  for (int i = 0; i < CONTEXTS; i++) {
    cl_context context = new_context(), again;
    must(!clSetContextDestructorCallback(context, context_ends, &ended));
    cl_command_queue queue = new_queue(context, 0);
    must(!clReleaseContext(context));
    must(!clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof again, &again, NULL));
    if (is_retained) must(!clRetainContext(again));
    cl_mem memory = new_buffer(again, 0, BYTES);
    fill(queue, memory, i, BYTES);
    unsigned char byte;
    must(!clEnqueueReadBuffer(queue, memory, CL_TRUE, BYTES - 1, 1, &byte, 0, NULL, NULL) && byte == i);
    release(memory);
    if (is_retained) must(!clReleaseContext(again));
    must(!clReleaseCommandQueue(queue));
    // So that what is resident does not hang on when threads of the driver let go.
    for (int k = 0; k < 100 && ended <= i; k++) nap(1000);
  }
  say("nearly all ended: %d\n", ended >= CONTEXTS - 2);
}
CASE(contexts_of_queues, ALONE, "40 times, a program keeps a queue alone, and asks it for its context, in which 16 MiB come and go") { ask_queues(true); }
CASE(contexts_never_retained, ALONE, "the same without a reference of its own to the context") { ask_queues(false); }

CASE(queue_of_an_event, TOGETHER, "a queue is asked back from an event, after the program has released it, and used") {
  struct rig rig = up();
  for (int i = 0; i < 3; i++) {
    cl_command_queue queue = new_queue(rig.context, i % 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0), again;
    cl_mem memory = new_buffer(rig.context, 0, 4096);
    cl_event event;
    unsigned char value = 40 + i;
    must(!clEnqueueFillBuffer(queue, memory, &value, 1, 0, 4096, 0, NULL, &event));
    must(!clFlush(queue) && !clRetainCommandQueue(queue) && !clReleaseCommandQueue(queue) && !clReleaseCommandQueue(queue));
    must(!clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof again, &again, NULL) && again == queue);
    must(!clRetainCommandQueue(again) && !clWaitForEvents(1, &event));
    must(!clReleaseEvent(event));
    say("%d %d %d\n", reads(again, memory, value, 4096), use(rig.context, again, 4096, 3), use(rig.context, again, 4097, 3));
    release(memory);
    must(!clReleaseCommandQueue(again));
  }
  down(rig);
}

CASE(device_queue_of_a_queue, TOGETHER, "a queue is asked for its device, its size and the default queue of the device") {
  struct rig rig = up();
  cl_command_queue device_queue = NULL;
  cl_int status = clGetCommandQueueInfo(rig.queue, CL_QUEUE_DEVICE_DEFAULT, sizeof device_queue, &device_queue, NULL);
  say("%d %d", status, device_queue == NULL);
  cl_uint size = 77;
  status = clGetCommandQueueInfo(rig.queue, CL_QUEUE_SIZE, sizeof size, &size, NULL);
  cl_device_id device;
  must(!clGetCommandQueueInfo(rig.queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL));
  say(" %d %u %d\n", status, size, device == rig.device);
  down(rig);
}

CASE(whole_of_a_part, TOGETHER, "a buffer is asked back from a part of it, after the program has released it, and used") {
  struct rig rig = up();
  for (int i = 0; i < 4; i++) {
    cl_int status;
    cl_mem whole = new_buffer(rig.context, 0, 8192), again;
    cl_buffer_region region = {4096, 2048};
    cl_mem part = clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    must(!status);
    release(whole);
    must(!clGetMemObjectInfo(part, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof again, &again, NULL) && again == whole);
    must(!clRetainMemObject(again));
    fill(rig.queue, again, 5 + i, 8192);
    say("%d", reads(rig.queue, part, 5 + i, 2048));
    release(part);
    say(" %d %d\n", reads(rig.queue, again, 5 + i, 8192), references_of_memory(again));
    release(again);
  }
  down(rig);
}

CASE(buffer_of_an_image, TOGETHER, "a buffer is asked back from an image on it, after the program has released it, and used") {
  struct rig rig = up();
  cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  for (int i = 0; i < 3; i++) {
    cl_mem buffer = new_buffer(rig.context, 0, 4096), again = NULL;
    cl_image_desc description = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 1024, .buffer = buffer};
    cl_int status;
    cl_mem image = clCreateImage(rig.context, 0, &format, &description, NULL, &status);
    say("%d", status);
    release(buffer);
    if (image) {
      must(!clGetImageInfo(image, CL_IMAGE_BUFFER, sizeof again, &again, NULL));
      say(" %d", again == buffer);
      must(!clGetMemObjectInfo(image, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof again, &again, NULL) && !clRetainMemObject(again));
      fill(rig.queue, again, 50 + i, 4096);
      finish(rig.queue);
      release(image);
      say(" %d", reads(rig.queue, again, 50 + i, 4096));
      release(again);
    }
    say("\n");
  }
  down(rig);
}

CASE(program_of_a_kernel, TOGETHER, "a program is asked back from a kernel, and makes another kernel after the first is gone") {
  struct rig rig = up();
  cl_kernel kernel = new_kernel(rig.context, "set");
  cl_program program;
  must(!clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof program, &program, NULL) && !clRetainProgram(program));
  must(!clReleaseKernel(kernel));
  cl_int status;
  kernel = clCreateKernel(program, "add", &status);
  must(!status && !clReleaseProgram(program));
  cl_mem to = new_buffer(rig.context, 0, 512), from = new_buffer(rig.context, 0, 512);
  fill(rig.queue, to, 1, 512);
  fill(rig.queue, from, 2, 512);
  must(!clSetKernelArg(kernel, 0, sizeof to, &to) && !clSetKernelArg(kernel, 1, sizeof from, &from));
  launch(rig.queue, kernel, 512);
  say("%d\n", reads(rig.queue, to, 3, 512));
  must(!clReleaseKernel(kernel));
  release(to);
  release(from);
  down(rig);
}
