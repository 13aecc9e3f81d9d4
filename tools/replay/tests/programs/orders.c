// The orders in which objects are released.
#include "opencl.h"

enum { OBJECTS = 5 };
struct objects {
  cl_context context;
  cl_command_queue queue;
  cl_mem whole, part;
  cl_event event;
};
static void release_one(struct objects objects, int which) {
  switch (which) {
  case 0: must(!clReleaseContext(objects.context)); break;
  case 1: must(!clReleaseCommandQueue(objects.queue)); break;
  case 2: release(objects.whole); break;
  case 3: release(objects.part); break;
  case 4: must(!clReleaseEvent(objects.event)); break;
  }
}

CASE(every_order, TOGETHER, "a context, a queue, a buffer, a part of it and an event are released in each of the 120 orders, with a command pending") {
  int orders = 0;
  for (int number = 0; number < 3125; number++) {
    int order[OBJECTS], rest = number, seen = 0;
    for (int i = 0; i < OBJECTS; i++, rest /= OBJECTS) seen |= 1 << (order[i] = rest % OBJECTS);
    if (seen != (1 << OBJECTS) - 1) continue;
    struct objects objects = {.context = new_context()};
    objects.queue = new_queue(objects.context, 0);
    objects.whole = new_buffer(objects.context, 0, 8192);
    cl_buffer_region region = {4096, 4096};
    cl_int status;
    objects.part = clCreateSubBuffer(objects.whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    must(!status);
    unsigned char value = 1;
    must(!clEnqueueFillBuffer(objects.queue, objects.part, &value, 1, 0, 4096, 0, NULL, &objects.event));
    must(!clFlush(objects.queue));
    for (int i = 0; i < OBJECTS; i++) release_one(objects, order[i]);
    orders++;
  }
  say("orders: %d\n", orders);
}

CASE(context_first, TOGETHER, "30 times, a context is released before all that is in it, and more is made there") {
  for (int i = 0; i < 30; i++) {
    cl_context context = new_context();
    cl_command_queue queue = new_queue(context, 0);
    cl_mem first = new_buffer(context, 0, 1 << 20);
    must(!clReleaseContext(context));
    cl_mem second = new_buffer(context, 0, 1 << 20);
    fill(queue, second, 1, 1 << 20);
    fill(queue, first, 2, 1 << 20);
    release(second);
    release(first);
    finish(queue);
    must(!clReleaseCommandQueue(queue));
  }
  say("done\n");
}

CASE(queue_first, TOGETHER, "queues are released before their commands have ended, which wait for an event") {
  struct rig rig = up();
  for (int i = 0; i < 10; i++) {
    cl_command_queue queue = new_queue(rig.context, i % 2 ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0);
    cl_event gate = new_user_event(rig.context), end;
    cl_mem memory = new_buffer(rig.context, 0, 4096);
    unsigned char value = 30 + i;
    must(!clEnqueueFillBuffer(queue, memory, &value, 1, 0, 4096, 1, &gate, &end));
    must(!clFlush(queue) && !clReleaseCommandQueue(queue));
    resolve(gate, CL_COMPLETE);
    must(!clWaitForEvents(1, &end) && !clReleaseEvent(end) && !clReleaseEvent(gate));
    say("%d", reads(rig.queue, memory, value, 4096));
    release(memory);
  }
  say("\n");
  down(rig);
}

CASE(memory_first, TOGETHER, "memory is released before the commands that use it have ended, and the same size comes again") {
  struct rig rig = up();
  cl_mem last = new_buffer(rig.context, 0, 4096), memory = NULL;
  fill(rig.queue, last, 0, 4096);
  for (int i = 0; i < 50; i++) {
    memory = new_buffer(rig.context, 0, 4096);
    fill(rig.queue, memory, i, 4096);
    must(!clEnqueueCopyBuffer(rig.queue, memory, last, 0, 0, 4096, 0, NULL, NULL));
    release(memory);
  }
  say("%d\n", reads(rig.queue, last, 49, 4096));
  release(last);
  down(rig);
}

CASE(kernel_first, TOGETHER, "kernels, programs and their arguments are released before they have run, which waits for an event") {
  struct rig rig = up();
  for (int i = 0; i < 3; i++) {
    cl_mem memory = new_buffer(rig.context, 0, 512), other = new_buffer(rig.context, 0, 512);
    fill(rig.queue, memory, 1, 512);
    fill(rig.queue, other, 2 + i, 512);
    cl_kernel kernel = new_kernel(rig.context, "add");
    must(!clSetKernelArg(kernel, 0, sizeof memory, &memory) && !clSetKernelArg(kernel, 1, sizeof other, &other));
    cl_event gate = new_user_event(rig.context);
    size_t items = 512;
    must(!clEnqueueNDRangeKernel(rig.queue, kernel, 1, NULL, &items, NULL, 1, &gate, NULL));
    must(!clReleaseKernel(kernel));
    release(other);
    cl_mem next = new_buffer(rig.context, 0, 512);
    resolve(gate, CL_COMPLETE);
    must(!clReleaseEvent(gate));
    say("%d", reads(rig.queue, memory, 3 + i, 512));
    release(memory);
    release(next);
  }
  say("\n");
  down(rig);
}

CASE(arguments_change_while_pending, TOGETHER, "the argument of a kernel is set anew, and the old one released, while a launch waits") {
  struct rig rig = up();
  cl_kernel kernel = new_kernel(rig.context, "set");
  cl_event gate = new_user_event(rig.context);
  cl_mem memories[4];
  size_t items = 1024;
  for (unsigned char i = 0; i < 4; i++) {
    memories[i] = new_buffer(rig.context, 0, 1024);
    must(!clSetKernelArg(kernel, 0, sizeof memories[i], &memories[i]) && !clSetKernelArg(kernel, 1, 1, &i));
    must(!clEnqueueNDRangeKernel(rig.queue, kernel, 1, NULL, &items, NULL, 1, &gate, NULL));
  }
  release(memories[0]);
  cl_mem next = new_buffer(rig.context, 0, 1024);
  resolve(gate, CL_COMPLETE);
  must(!clReleaseEvent(gate));
  fill(rig.queue, next, 9, 1024);
  for (int i = 1; i < 4; i++) say("%d", reads(rig.queue, memories[i], i, 1024));
  say("%d\n", reads(rig.queue, next, 9, 1024));
  for (int i = 1; i < 4; i++) release(memories[i]);
  release(next);
  must(!clReleaseKernel(kernel));
  down(rig);
}

CASE(event_first, TOGETHER, "events are released before their commands have ended, and retained by none") {
  struct rig rig = up();
  cl_mem memory = new_buffer(rig.context, 0, 4096);
  cl_event before = NULL;
  for (unsigned char i = 0; i < 30; i++) {
    cl_event event;
    must(!clEnqueueFillBuffer(rig.queue, memory, &i, 1, 0, 4096, before != NULL, before ? &before : NULL, &event));
    if (before) must(!clReleaseEvent(before));
    before = event;
  }
  must(!clReleaseEvent(before));
  say("%d\n", reads(rig.queue, memory, 29, 4096));
  release(memory);
  down(rig);
}

CASE(whole_first, TOGETHER, "a buffer is released before parts of it, which are used and released in both orders") {
  struct rig rig = up();
  for (int i = 0; i < 6; i++) {
    cl_mem whole = new_buffer(rig.context, 0, 16384), parts[2];
    for (int k = 0; k < 2; k++) {
      cl_buffer_region region = {8192 * k, 8192};
      cl_int status;
      parts[k] = clCreateSubBuffer(whole, k ? CL_MEM_READ_ONLY : 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
      must(!status);
    }
    fill(rig.queue, whole, 3, 16384);
    release(whole);
    cl_mem next = new_buffer(rig.context, 0, 16384);
    fill(rig.queue, next, 4, 16384);
    say("%d%d", reads(rig.queue, parts[0], 3, 8192), reads(rig.queue, parts[1], 3, 8192));
    release(parts[i % 2]);
    say("%d", reads(rig.queue, parts[!(i % 2)], 3, 8192));
    release(parts[!(i % 2)]);
    say("%d\n", reads(rig.queue, next, 4, 16384));
    release(next);
  }
  down(rig);
}

CASE(retained_often, TOGETHER, "objects are retained 100 times and released 101 times") {
  struct rig rig = up_alone();
  cl_event event = new_user_event(rig.context);
  cl_mem memory = new_buffer(rig.context, 0, 4096);
  cl_kernel kernel = new_kernel(rig.context, "set");
  for (int i = 0; i < 100; i++)
    must(!clRetainMemObject(memory) && !clRetainKernel(kernel) && !clRetainEvent(event) && !clRetainContext(rig.context) && !clRetainCommandQueue(rig.queue));
  say("%u %u %u %u\n", references_of_memory(memory), references_of_kernel(kernel), references_of_event(event), references_of_queue(rig.queue));
  resolve(event, CL_COMPLETE);
  for (int i = 0; i < 100; i++)
    must(!clReleaseMemObject(memory) && !clReleaseKernel(kernel) && !clReleaseEvent(event) && !clReleaseContext(rig.context) && !clReleaseCommandQueue(rig.queue));
  say("%u %u %u %u\n", references_of_memory(memory), references_of_kernel(kernel), references_of_event(event), references_of_queue(rig.queue));
  must(!clReleaseKernel(kernel) && !clReleaseEvent(event));
  release(memory);
  say("%u\n", references_of_context(rig.context) - references_of_queue(rig.queue));
  down_alone(rig);
}
