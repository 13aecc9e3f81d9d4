// Arguments that are wrong, for which a driver has errors.
#include "opencl.h"

CASE(wrong_buffers, TOGETHER, "buffers of no bytes, of too many, with flags that exclude each other, and with pointers where none belong") {
  struct rig rig = up();
  char host[64];
  cl_int status = 99;
  const struct { cl_context context; cl_mem_flags flags; size_t bytes; void *host; } tries[] = {
      {NULL, 0, 4096, NULL},
      {rig.context, CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY, 4096, NULL},
      {rig.context, CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS, 4096, NULL},
      {rig.context, 0, 0, NULL},
      {rig.context, 0, SIZE_MAX, NULL},
      {rig.context, 0, SIZE_MAX / 2, NULL},
      {rig.context, 1ull << 40, 64, NULL},
      {rig.context, CL_MEM_USE_HOST_PTR, 64, NULL},
      {rig.context, CL_MEM_COPY_HOST_PTR, 64, NULL},
      {rig.context, CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, 64, host},
      {rig.context, CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR, 64, host},
      {rig.context, 0, 64, host},
  };
  for (int round = 0; round < 2; round++) {
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
      status = 99;
      cl_mem memory = clCreateBuffer(tries[i].context, tries[i].flags, tries[i].bytes, tries[i].host, &status);
      say("%d %d, ", memory != NULL, status);
      memory = clCreateBuffer(tries[i].context, tries[i].flags, tries[i].bytes, tries[i].host, NULL);
      say("%d; ", memory != NULL);
    }
    say("%d\n", use_rig(rig, 64));
  }
  down(rig);
}

CASE(wrong_parts, TOGETHER, "parts beyond the end, of no bytes, of parts, with flags that the whole excludes, and misaligned") {
  struct rig rig = up();
  cl_mem whole = new_buffer(rig.context, CL_MEM_READ_ONLY, 8192);
  const cl_buffer_region regions[] = {{8192, 1}, {0, 8193}, {4096, 0}, {1, 16}, {SIZE_MAX, 16}, {4096, 4096}};
  for (size_t i = 0; i < sizeof regions / sizeof *regions; i++) {
    cl_int status = 99;
    cl_mem part = clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &regions[i], &status), second = NULL;
    say("%d %d; ", part != NULL, status);
    if (part) {
      const cl_buffer_region all = {0, 16};
      second = clCreateSubBuffer(part, 0, CL_BUFFER_CREATE_TYPE_REGION, &all, &status);
      say("of it: %d %d; ", second != NULL, status);
      release(part);
    }
  }
  cl_int status = 99;
  const cl_buffer_region region = {0, 4096};
  say("%d ", clCreateSubBuffer(whole, CL_MEM_WRITE_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &region, &status) != NULL);
  say("%d ", status);
  say("%d ", clCreateSubBuffer(whole, 0, 0x7777, &region, &status) != NULL);
  say("%d ", status);
  say("%d ", clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, NULL, &status) != NULL);
  say("%d, references %u\n", status, references_of_memory(whole));
  release(whole);
  down(rig);
}

CASE(wrong_commands, TOGETHER, "commands beyond the end, that overlap, without places, with half a pattern, and with lists that are none") {
  struct rig rig = up();
  cl_mem memory = new_buffer(rig.context, 0, 4096);
  unsigned char bytes[8192] = {0};
  fill(rig.queue, memory, 1, 4096);
  say("%d ", clEnqueueReadBuffer(rig.queue, memory, CL_TRUE, 0, 8192, bytes, 0, NULL, NULL));
  say("%d ", clEnqueueReadBuffer(rig.queue, memory, CL_TRUE, 4096, 1, bytes, 0, NULL, NULL));
  say("%d ", clEnqueueReadBuffer(rig.queue, memory, CL_TRUE, SIZE_MAX, 2, bytes, 0, NULL, NULL));
  say("%d ", clEnqueueReadBuffer(rig.queue, memory, CL_TRUE, 0, 1, NULL, 0, NULL, NULL));
  say("%d ", clEnqueueReadBuffer(rig.queue, NULL, CL_TRUE, 0, 1, bytes, 0, NULL, NULL));
  say("%d ", clEnqueueReadBuffer(NULL, memory, CL_TRUE, 0, 1, bytes, 0, NULL, NULL));
  say("%d ", clEnqueueReadBuffer(rig.queue, memory, CL_TRUE, 0, 1, bytes, 1, NULL, NULL));
  say("%d ", clEnqueueCopyBuffer(rig.queue, memory, memory, 0, 100, 200, 0, NULL, NULL));
  say("%d ", clEnqueueCopyBuffer(rig.queue, memory, memory, 0, 4000, 200, 0, NULL, NULL));
  say("%d ", clEnqueueFillBuffer(rig.queue, memory, bytes, 3, 0, 9, 0, NULL, NULL));
  say("%d ", clEnqueueFillBuffer(rig.queue, memory, bytes, 4, 2, 8, 0, NULL, NULL));
  say("%d ", clEnqueueFillBuffer(rig.queue, memory, bytes, 4, 0, 4100, 0, NULL, NULL));
  cl_int status = 99;
  say("%d ", clEnqueueMapBuffer(rig.queue, memory, CL_TRUE, CL_MAP_READ, 0, 4097, 0, NULL, NULL, &status) != NULL);
  say("%d ", status);
  say("%d ", clEnqueueUnmapMemObject(rig.queue, memory, bytes, 0, NULL, NULL));
  say("%d ", clEnqueueMigrateMemObjects(rig.queue, 0, NULL, 0, 0, NULL, NULL));
  say("%d\n", clEnqueueBarrierWithWaitList(rig.queue, 1, NULL, NULL));
  say("%d\n", reads(rig.queue, memory, 1, 4096));
  release(memory);
  down(rig);
}

CASE(other_contexts, TOGETHER, "memory, events and kernels of another context in commands") {
  struct rig rig = up(), other = up_alone();
  cl_mem memory = new_buffer(other.context, 0, 4096), own = new_buffer(rig.context, 0, 4096);
  unsigned char byte = 1;
  fill(other.queue, memory, 4, 4096);
  say("%d ", clEnqueueFillBuffer(rig.queue, memory, &byte, 1, 0, 4096, 0, NULL, NULL));
  say("%d ", clEnqueueReadBuffer(rig.queue, memory, CL_TRUE, 0, 1, &byte, 0, NULL, NULL));
  say("%d ", clEnqueueCopyBuffer(rig.queue, own, memory, 0, 0, 16, 0, NULL, NULL));
  cl_event event = new_user_event(other.context);
  say("%d ", clEnqueueFillBuffer(rig.queue, own, &byte, 1, 0, 4096, 1, &event, NULL));
  cl_kernel kernel = new_kernel(other.context, "set");
  size_t items = 16;
  say("%d ", clEnqueueNDRangeKernel(rig.queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
  resolve(event, CL_COMPLETE);
  must(!clReleaseEvent(event) && !clReleaseKernel(kernel));
  say("%d\n", reads(other.queue, memory, 4, 4096));
  release(memory);
  release(own);
  down_alone(other);
  down(rig);
}

CASE(wrong_arguments, TOGETHER, "arguments of kernels of the wrong size and number, none at all, and launches without them") {
  struct rig rig = up();
  cl_kernel kernel = new_kernel(rig.context, "set");
  cl_mem memory = new_buffer(rig.context, 0, 4096);
  unsigned char value = 3;
  size_t items = 16;
  say("%d ", clEnqueueNDRangeKernel(rig.queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
  say("%d ", clSetKernelArg(kernel, 7, sizeof memory, &memory));
  say("%d ", clSetKernelArg(kernel, 0, 3, &memory));
  say("%d ", clSetKernelArg(kernel, 1, 8, &memory));
  say("%d ", clSetKernelArg(NULL, 0, sizeof memory, &memory));
  say("%d ", clSetKernelArg(kernel, 0, sizeof memory, &memory));
  say("%d ", clSetKernelArg(kernel, 1, 1, &value));
  say("%d ", clEnqueueNDRangeKernel(rig.queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL));
  say("%d\n", reads(rig.queue, memory, 3, 16));
  cl_mem none = NULL;
  say("%d\n", clSetKernelArg(kernel, 0, sizeof none, &none));
  must(!clReleaseKernel(kernel));
  release(memory);
  down(rig);
}

CASE(nothing_released, TOGETHER, "null is released, retained and asked about, of every kind") {
  struct rig rig = up();
  size_t size;
  say("%d %d %d ", clReleaseMemObject(NULL), clRetainMemObject(NULL), clGetMemObjectInfo(NULL, CL_MEM_SIZE, sizeof size, &size, NULL));
  say("%d %d ", clReleaseContext(NULL), clRetainContext(NULL));
  say("%d %d ", clReleaseCommandQueue(NULL), clRetainCommandQueue(NULL));
  say("%d %d %d ", clReleaseEvent(NULL), clReleaseKernel(NULL), clReleaseProgram(NULL));
  say("%d %d ", clFinish(NULL), clFlush(NULL));
  say("%d %d ", clSetUserEventStatus(NULL, 0), clWaitForEvents(0, NULL));
  say("%d %d\n", clSetMemObjectDestructorCallback(NULL, NULL, NULL), clSVMAlloc(NULL, 0, 64, 0) != NULL);
  say("%d %d %d\n", clSVMAlloc(rig.context, 0, 0, 0) != NULL, clSVMAlloc(rig.context, 0, 64, 3) != NULL, clSVMAlloc(rig.context, 1ull << 40, 64, 0) != NULL);
  cl_event event = new_user_event(rig.context);
  say("%d ", clSetUserEventStatus(event, 5));
  say("%d ", clSetUserEventStatus(event, CL_COMPLETE));
  say("%d\n", clSetUserEventStatus(event, CL_COMPLETE));
  must(!clReleaseEvent(event));
  say("%d\n", use_rig(rig, 4096));
  down(rig);
}
