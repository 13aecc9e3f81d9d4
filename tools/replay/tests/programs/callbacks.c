// Functions of the program that a driver calls, and that use a device themselves.
#include "opencl.h"

struct seen {
  struct rig rig;
  cl_mem memory;
  cl_command_queue queue;
  void *address;
  atomic_int count, created, order;
  int numbers[8];
};

static void wait_for(atomic_int *count, int wanted) {
  for (int i = 0; i < 5000 && *count < wanted; i++) nap(1000);
}

static void CL_CALLBACK creates_on_event(cl_event event, cl_int status, void *place) {
  struct seen *seen = place;
  cl_int error;
  cl_mem memory = clCreateBuffer(seen->rig.context, 0, 4096, NULL, &error);
  unsigned char value = 1;
  // On another queue than that of the event, and without waiting.
  if (!error) error = clEnqueueFillBuffer(seen->queue, memory, &value, 1, 0, 4096, 0, NULL, NULL);
  if (!error) error = clFlush(seen->queue);
  if (!error) error = clReleaseMemObject(memory);
  seen->created += !error;
  seen->count++;
}
CASE(events_that_create, TOGETHER, "functions of events create, fill and release buffers") {
  struct seen seen = {.rig = up()};
  seen.queue = new_queue(seen.rig.context, 0);
  for (int i = 0; i < 20; i++) {
    cl_mem memory = new_buffer(seen.rig.context, 0, 4096);
    unsigned char value = i;
    cl_event event;
    must(!clEnqueueFillBuffer(seen.rig.queue, memory, &value, 1, 0, 4096, 0, NULL, &event));
    must(!clSetEventCallback(event, CL_COMPLETE, creates_on_event, &seen) && !clReleaseEvent(event));
    must(!clFlush(seen.rig.queue));
    release(memory);
  }
  finish(seen.rig.queue);
  wait_for(&seen.count, 20);
  finish(seen.queue);
  must(!clReleaseCommandQueue(seen.queue));
  say("%d of %d\n", seen.created, seen.count);
  down(seen.rig);
}

static void CL_CALLBACK counts_status(cl_event event, cl_int status, void *place) {
  struct seen *seen = place;
  if (status >= 0 && status < 4) seen->numbers[status]++;
  seen->count++;
}
CASE(events_in_each_state, TOGETHER, "functions of an event for each of its states, which is complete already or waits for another") {
  struct seen seen = {.rig = up()};
  cl_event gate = new_user_event(seen.rig.context), event;
  cl_mem memory = new_buffer(seen.rig.context, 0, 64);
  unsigned char value = 4;
  must(!clEnqueueFillBuffer(seen.rig.queue, memory, &value, 1, 0, 64, 1, &gate, &event));
  const cl_int states[] = {CL_COMPLETE, CL_RUNNING, CL_SUBMITTED};
  for (int i = 0; i < 3; i++) must(!clSetEventCallback(event, states[i], counts_status, &seen));
  resolve(gate, CL_COMPLETE);
  finish(seen.rig.queue);
  wait_for(&seen.count, 3);
  must(!clSetEventCallback(event, CL_COMPLETE, counts_status, &seen));
  wait_for(&seen.count, 4);
  say("%d calls, complete %d\n", seen.count, seen.numbers[CL_COMPLETE]);
  must(!clReleaseEvent(gate) && !clReleaseEvent(event));
  release(memory);
  down(seen.rig);
}

static void CL_CALLBACK releases_last(cl_event event, cl_int status, void *place) {
  struct seen *seen = place;
  seen->created += !clReleaseMemObject(seen->memory);
  seen->count++;
}
CASE(events_that_release, TOGETHER, "the function of an event has the last reference to the memory of its command") {
  struct seen seen = {.rig = up()};
  for (int i = 0; i < 10; i++) {
    seen.memory = new_buffer(seen.rig.context, 0, 4096);
    seen.count = 0;
    unsigned char value = i;
    cl_event event;
    must(!clEnqueueFillBuffer(seen.rig.queue, seen.memory, &value, 1, 0, 4096, 0, NULL, &event));
    must(!clSetEventCallback(event, CL_COMPLETE, releases_last, &seen) && !clReleaseEvent(event) && !clFlush(seen.rig.queue));
    wait_for(&seen.count, 1);
    must(!use_rig(seen.rig, 4096));
  }
  say("%d\n", seen.created);
  down(seen.rig);
}

static void CL_CALLBACK user_event_ends(cl_event event, cl_int status, void *place) {
  struct seen *seen = place;
  seen->created = use_rig(seen->rig, 2222);
  seen->count++;
}
CASE(user_events_that_use, TOGETHER, "the function of a user event, which the program calls itself by its status, reads and waits") {
  struct seen seen = {.rig = up()};
  cl_event event = new_user_event(seen.rig.context);
  must(!clSetEventCallback(event, CL_COMPLETE, user_event_ends, &seen));
  resolve(event, CL_COMPLETE);
  wait_for(&seen.count, 1);
  say("%d %d\n", seen.count, seen.created);
  must(!clReleaseEvent(event));
  down(seen.rig);
}

static void CL_CALLBACK memory_ends(cl_mem memory, void *place) {
  struct seen *seen = place;
  cl_int error;
  cl_mem other = clCreateBuffer(seen->rig.context, 0, 4096, NULL, &error);
  seen->created += !error && !clReleaseMemObject(other);
  seen->count++;
}
CASE(memory_that_creates, TOGETHER, "the function for the end of a buffer creates and releases another of that size") {
  struct seen seen = {.rig = up()};
  for (int i = 0; i < 10; i++) {
    cl_mem memory = new_buffer(seen.rig.context, 0, 4096);
    must(!clSetMemObjectDestructorCallback(memory, memory_ends, &seen));
    fill(seen.rig.queue, memory, i, 4096);
    if (i % 2) finish(seen.rig.queue);
    release(memory);
    finish(seen.rig.queue);
    must(!use_rig(seen.rig, 4096));
  }
  wait_for(&seen.count, 10);
  say("%d of %d\n", seen.created, seen.count);
  down(seen.rig);
}

struct numbered {
  struct seen *seen;
  int number;
};
static void CL_CALLBACK notes_number(cl_mem memory, void *place) {
  struct numbered *numbered = place;
  struct seen *seen = numbered->seen;
  seen->numbers[seen->order++] = numbered->number;
}
CASE(several_ends, TOGETHER, "several functions for the end of one buffer, a part of it and an image, in their order") {
  struct seen seen = {.rig = up()};
  cl_mem whole = new_buffer(seen.rig.context, 0, 4096);
  cl_buffer_region region = {0, 2048};
  cl_int status;
  cl_mem part = clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
  must(!status);
  struct numbered numbered[5];
  for (int i = 0; i < 5; i++) {
    numbered[i] = (struct numbered){&seen, i};
    must(!clSetMemObjectDestructorCallback(i < 3 ? whole : part, notes_number, &numbered[i]));
  }
  release(whole);
  say("%d ", seen.order);
  release(part);
  wait_for(&seen.order, 5);
  for (int i = 0; i < seen.order; i++) say("%d", seen.numbers[i]);
  say("\n");
  down(seen.rig);
}

static void CL_CALLBACK context_ends(cl_context context, void *place) {
  struct seen *seen = place;
  // PoCL holds a lock here that whatever releases an object needs.
  cl_uint count;
  seen->created += !clGetContextInfo(seen->rig.context, CL_CONTEXT_NUM_DEVICES, sizeof count, &count, NULL) && !clRetainContext(seen->rig.context);
  seen->count++;
}
CASE(contexts_that_retain, TOGETHER, "the function for the end of a context asks for another, and retains it") {
  struct seen seen = {.rig = up()};
  for (int i = 0; i < 5; i++) {
    struct rig rig = up_alone();
    must(!clSetContextDestructorCallback(rig.context, context_ends, &seen) && !use_rig(rig, 4096));
    down_alone(rig);
  }
  wait_for(&seen.count, 5);
  say("%d of %d\n", seen.created, seen.count);
  for (int i = 0; i < seen.created; i++) must(!clReleaseContext(seen.rig.context));
  must(!use_rig(seen.rig, 4096));
  down(seen.rig);
}

static void CL_CALLBACK frees(cl_command_queue queue, cl_uint count, void **addresses, void *place) {
  struct seen *seen = place;
  for (cl_uint i = 0; i < count; i++) clSVMFree(seen->rig.context, addresses[i]);
  seen->count += count;
}
CASE(shared_memory_that_the_program_frees, TOGETHER, "a function frees shared memory in a command, and the same size is allocated at once") {
  struct seen seen = {.rig = up()};
  for (int i = 0; i < 5; i++) {
    void *addresses[] = {clSVMAlloc(seen.rig.context, 0, 4096, 0), clSVMAlloc(seen.rig.context, 0, 8192, 0)};
    unsigned char value = i;
    must(!clEnqueueSVMMemFill(seen.rig.queue, addresses[0], &value, 1, 4096, 0, NULL, NULL));
    must(!clEnqueueSVMFree(seen.rig.queue, 2, addresses, frees, &seen, 0, NULL, NULL));
    void *next = clSVMAlloc(seen.rig.context, 0, 4096, 0);
    must(next);
    finish(seen.rig.queue);
    clSVMFree(seen.rig.context, next);
  }
  wait_for(&seen.count, 10);
  say("%d\n", seen.count);
  down(seen.rig);
}

static void CL_CALLBACK is_built(cl_program program, void *place) {
  struct seen *seen = place;
  cl_int error;
  cl_kernel kernel = clCreateKernel(program, "twice", &error);
  if (!error) seen->created = !clReleaseKernel(kernel) && !use(seen->rig.context, seen->queue, 4096, 6);
  seen->count++;
}
CASE(a_build_that_uses, TOGETHER, "the function for the end of a build makes a kernel, and uses a buffer") {
  struct seen seen = {.rig = up()};
  seen.queue = new_queue(seen.rig.context, 0);
  const char *source = "kernel void twice(global int *a) { a[get_global_id(0)] *= 2; }";
  cl_int status;
  cl_program program = clCreateProgramWithSource(seen.rig.context, 1, &source, NULL, &status);
  must(!status && !clBuildProgram(program, 0, NULL, NULL, is_built, &seen));
  wait_for(&seen.count, 1);
  say("%d %d\n", seen.count, seen.created);
  must(!clReleaseProgram(program) && !clReleaseCommandQueue(seen.queue));
  down(seen.rig);
}

static void CL_CALLBACK native(void *arguments) {
  struct { struct seen *seen; void *memory; } *held = arguments;
  memset(held->memory, 77, 4096);
  cl_int error;
  cl_mem other = clCreateBuffer(held->seen->rig.context, 0, 4096, NULL, &error);
  held->seen->created += !error && !clReleaseMemObject(other);
}
CASE(native_kernels_that_create, TOGETHER, "native kernels write to buffers, and create others") {
  if (!has_native_kernels()) {
    say("no native kernels\n");
    return;
  }
  struct seen seen = {.rig = up()};
  for (int i = 0; i < 5; i++) {
    cl_mem memory = new_buffer(seen.rig.context, 0, 4096);
    struct { struct seen *seen; void *memory; } held = {&seen, NULL};
    const void *place = &held.memory;
    must(!clEnqueueNativeKernel(seen.rig.queue, native, &held, sizeof held, 1, &memory, &place, 0, NULL, NULL));
    say("%d", reads(seen.rig.queue, memory, 77, 4096));
    release(memory);
  }
  say(" %d\n", seen.created);
  down(seen.rig);
}
