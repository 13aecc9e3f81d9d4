// Events of the program, queues without an order, and what commands wait for.
#include "opencl.h"

struct later {
  cl_event event;
  cl_int status;
};
static void *resolves_later(void *place) {
  struct later *later = place;
  nap(20000);
  resolve(later->event, later->status);
  return NULL;
}

CASE(resolved_on_a_thread, TOGETHER, "clFinish, a read and a map wait for an event that another thread resolves later") {
  struct rig rig = up();
  for (int i = 0; i < 3; i++) {
    cl_mem memory = new_buffer(rig.context, 0, 4096);
    struct later later = {new_user_event(rig.context), CL_COMPLETE};
    unsigned char value = i, byte = 9;
    must(!clEnqueueFillBuffer(rig.queue, memory, &value, 1, 0, 4096, 1, &later.event, NULL));
    pthread_t thread = start(resolves_later, &later, 0);
    cl_int status = 0;
    if (i == 0) finish(rig.queue);
    if (i < 2) must(!clEnqueueReadBuffer(rig.queue, memory, CL_TRUE, 5, 1, &byte, 0, NULL, NULL));
    else {
      unsigned char *mapped = clEnqueueMapBuffer(rig.queue, memory, CL_TRUE, CL_MAP_READ, 0, 16, 0, NULL, NULL, &status);
      byte = mapped[3];
      must(!clEnqueueUnmapMemObject(rig.queue, memory, mapped, 0, NULL, NULL));
    }
    join(thread);
    say("%d\n", byte);
    must(!clReleaseEvent(later.event));
    release(memory);
  }
  down(rig);
}

CASE(events_with_errors, TOGETHER, "an event that the program ends with an error, what waits for it, and the queue afterwards") {
  // The queue that had such commands is not used again.
  struct rig rig = up_alone();
  // From before the memory: PoCL 3.1 ends the process if a command fails on a queue that has come after another by a barrier.
  cl_command_queue queue = new_queue(rig.context, 0);
  cl_mem memory = new_buffer(rig.context, 0, 4096), kept = new_buffer(rig.context, 0, 4096);
  fill(rig.queue, kept, 8, 4096);
  finish(rig.queue);
  cl_event gate = new_user_event(rig.context), event;
  unsigned char value = 3;
  must(!clEnqueueFillBuffer(queue, memory, &value, 1, 0, 4096, 1, &gate, &event));
  resolve(gate, -77);
  cl_int waited = clWaitForEvents(1, &event), state = 99, of_gate = 99;
  must(!clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
  must(!clGetEventInfo(gate, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof of_gate, &of_gate, NULL));
  say("%d %d %d\n", waited, state < 0, of_gate);
  must(!clReleaseEvent(gate) && !clReleaseEvent(event));
  release(memory);
  for (int i = 0; i < 5; i++) must(!use_rig(rig, 4096));
  say("%d\n", reads(rig.queue, kept, 8, 4096));
  release(kept);
  must(!clReleaseCommandQueue(queue));
  down_alone(rig);
}

CASE(chains_of_events, TOGETHER, "30 user events and as many commands on two queues, each waiting for the one before; the last is resolved first") {
  struct rig rig = up();
  enum { LINKS = 30 };
  cl_command_queue queues[] = {rig.queue, new_queue(rig.context, 0)};
  cl_event gates[LINKS], ends[LINKS];
  cl_mem memory = new_buffer(rig.context, 0, 256);
  for (unsigned char i = 0; i < LINKS; i++) {
    gates[i] = new_user_event(rig.context);
    cl_event before[] = {gates[i], i ? ends[i - 1] : gates[i]};
    must(!clEnqueueFillBuffer(queues[i % 2], memory, &i, 1, 0, 256, 2, before, &ends[i]));
    must(!clFlush(queues[i % 2]));
  }
  for (int i = LINKS - 1; i >= 0; i--) resolve(gates[i], CL_COMPLETE);
  must(!clWaitForEvents(LINKS, ends));
  say("%d\n", reads(rig.queue, memory, LINKS - 1, 256));
  for (int i = 0; i < LINKS; i++) must(!clReleaseEvent(gates[i]) && !clReleaseEvent(ends[i]));
  release(memory);
  must(!clReleaseCommandQueue(queues[1]));
  down(rig);
}

CASE(without_order, TOGETHER, "commands on an out-of-order queue, in an order that events give, on memory that comes and goes") {
  struct rig rig = up();
  cl_command_queue queue = new_queue(rig.context, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  int wrong = 0;
  for (unsigned char i = 0; i < 40; i++) {
    cl_mem from = new_buffer(rig.context, 0, 4096), to = new_buffer(rig.context, 0, 4096);
    unsigned char bytes[4096];
    cl_event events[3];
    must(!clEnqueueFillBuffer(queue, from, &i, 1, 0, 4096, 0, NULL, &events[0]));
    must(!clEnqueueCopyBuffer(queue, from, to, 0, 0, 4096, 1, &events[0], &events[1]));
    must(!clEnqueueReadBuffer(queue, to, CL_FALSE, 0, 4096, bytes, 1, &events[1], &events[2]));
    release(from);
    must(!clWaitForEvents(1, &events[2]));
    wrong += !is_filled(bytes, i, 4096);
    for (int k = 0; k < 3; k++) must(!clReleaseEvent(events[k]));
    release(to);
  }
  finish(queue);
  say("wrong: %d\n", wrong);
  must(!clReleaseCommandQueue(queue));
  down(rig);
}

CASE(barriers_and_markers, TOGETHER, "barriers and markers with and without lists, by the functions of every version") {
  struct rig rig = up();
  cl_command_queue queue = new_queue(rig.context, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  cl_mem memory = new_buffer(rig.context, 0, 4096);
  cl_event event, marker;
  for (unsigned char i = 0; i < 4; i++) {
    must(!clEnqueueFillBuffer(queue, memory, &i, 1, 0, 4096, 0, NULL, &event));
    if (i == 0) must(!clEnqueueBarrierWithWaitList(queue, 0, NULL, NULL));
    if (i == 1) must(!clEnqueueBarrierWithWaitList(queue, 1, &event, NULL));
    if (i == 2) must(!clEnqueueBarrier(queue));
    if (i == 3) must(!clEnqueueMarkerWithWaitList(queue, 1, &event, &marker) && !clWaitForEvents(1, &marker) && !clReleaseEvent(marker));
    must(!clReleaseEvent(event));
    say("%d", reads(queue, memory, i, 4096));
  }
  must(!clEnqueueMarker(queue, &marker) && !clWaitForEvents(1, &marker) && !clReleaseEvent(marker));
  say("\n");
  release(memory);
  must(!clReleaseCommandQueue(queue));
  down(rig);
}

static void *waits(void *event) { return (void *)(intptr_t)clWaitForEvents(1, (cl_event *)event); }
CASE(several_wait, TOGETHER, "four threads wait for one event, which the fifth resolves") {
  struct rig rig = up();
  cl_event event = new_user_event(rig.context);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) threads[i] = start(waits, &event, 0);
  nap(10000);
  resolve(event, CL_COMPLETE);
  for (int i = 0; i < 4; i++) say("%d", (int)(intptr_t)join(threads[i]));
  say(" %d\n", clSetUserEventStatus(event, CL_COMPLETE));
  must(!clReleaseEvent(event));
  down(rig);
}

CASE(two_queues_take_turns, TOGETHER, "two queues use memory in turns that user events hold up, and the memory is released at once") {
  struct rig rig = up();
  cl_command_queue other = new_queue(rig.context, 0);
  for (unsigned char i = 0; i < 10; i++) {
    cl_mem memory = new_buffer(rig.context, 0, 4096);
    cl_event gate = new_user_event(rig.context), first, second;
    unsigned char next = i + 1, bytes[4096];
    must(!clEnqueueFillBuffer(rig.queue, memory, &i, 1, 0, 4096, 1, &gate, &first) && !clFlush(rig.queue));
    must(!clEnqueueFillBuffer(other, memory, &next, 1, 0, 4096, 1, &first, NULL));
    must(!clEnqueueReadBuffer(other, memory, CL_FALSE, 0, 4096, bytes, 0, NULL, &second) && !clFlush(other));
    release(memory);
    cl_mem again = new_buffer(rig.context, 0, 4096);
    resolve(gate, CL_COMPLETE);
    must(!clWaitForEvents(1, &second));
    say("%d", is_filled(bytes, next, 4096));
    must(!clReleaseEvent(gate) && !clReleaseEvent(first) && !clReleaseEvent(second));
    release(again);
  }
  say("\n");
  must(!clReleaseCommandQueue(other));
  down(rig);
}

CASE(profiled, TOGETHER, "times of commands on memory that comes and goes, which are in their order") {
  struct rig rig = up();
  cl_command_queue queue = new_queue(rig.context, CL_QUEUE_PROFILING_ENABLE);
  const cl_profiling_info names[] = {CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_SUBMIT, CL_PROFILING_COMMAND_START, CL_PROFILING_COMMAND_END};
  for (unsigned char i = 0; i < 5; i++) {
    cl_mem memory = new_buffer(rig.context, 0, 1 << 16);
    cl_event event;
    must(!clEnqueueFillBuffer(queue, memory, &i, 1, 0, 1 << 16, 0, NULL, &event) && !clWaitForEvents(1, &event));
    cl_ulong times[4];
    for (int k = 0; k < 4; k++) must(!clGetEventProfilingInfo(event, names[k], sizeof times[k], &times[k], NULL));
    say("%d", times[0] <= times[1] && times[1] <= times[2] && times[2] <= times[3]);
    must(!clReleaseEvent(event));
    release(memory);
  }
  cl_event gate = new_user_event(rig.context);
  cl_ulong time;
  say(" %d\n", clGetEventProfilingInfo(gate, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL));
  resolve(gate, CL_COMPLETE);
  must(!clReleaseEvent(gate) && !clReleaseCommandQueue(queue));
  down(rig);
}

struct held {
  atomic_bool *is_open;
  void *memory;
};
static void CL_CALLBACK held_up(void *place) {
  struct held *held = place;
  while (!*held->is_open) nap(500);
  memset(held->memory, 21, 4096);
}
CASE(native_kernel_holds_up, TOGETHER, "a native kernel waits for the host while its memory is released and another queue goes on") {
  if (!has_native_kernels()) {
    say("no native kernels\n");
    return;
  }
  struct rig rig = up();
  cl_mem memory = new_buffer(rig.context, 0, 4096), copy = new_buffer(rig.context, 0, 4096);
  atomic_bool is_open = false;
  struct held held = {&is_open, NULL};
  const void *place = &held.memory;
  must(!clEnqueueNativeKernel(rig.queue, held_up, &held, sizeof held, 1, &memory, &place, 0, NULL, NULL));
  must(!clEnqueueCopyBuffer(rig.queue, memory, copy, 0, 0, 4096, 0, NULL, NULL) && !clFlush(rig.queue));
  release(memory);
  cl_command_queue other = new_queue(rig.context, 0);
  say("meanwhile: %d\n", use(rig.context, other, 4096, 5));
  is_open = true;
  say("afterwards: %d\n", reads(rig.queue, copy, 21, 4096));
  release(copy);
  must(!clReleaseCommandQueue(other));
  down(rig);
}
