// Many of everything.
#include "opencl.h"

CASE(many_contexts, TOGETHER, "150 contexts come and go, each with memory") {
  for (int i = 0; i < 150; i++) {
    cl_context context = new_context();
    cl_mem first = new_buffer(context, 0, 1 << 20), second = new_buffer(context, 0, 1 << 20);
    release(first);
    release(second);
    must(!clReleaseContext(context));
  }
  say("done\n");
}

CASE(contexts_at_a_time, TOGETHER, "50 contexts and their queues at the same time, released in the other order") {
  struct rig rigs[50];
  for (int i = 0; i < 50; i++) {
    rigs[i] = up_alone();
    must(!use_rig(rigs[i], 4096));
  }
  int wrong = 0;
  for (int i = 49; i >= 0; i--) {
    wrong += use_rig(rigs[i], 4096) != 0;
    down_alone(rigs[i]);
  }
  say("wrong: %d\n", wrong);
}

CASE(many_queues, ALONE, "12000 queues and user events come and go beside 12000 live buffers") {
  enum { COUNT = 12000 };
  struct rig rig = up();
  cl_mem *buffers = malloc(COUNT * sizeof *buffers);
  for (int i = 0; i < COUNT; i++) buffers[i] = new_buffer(rig.context, 0, 64);
  for (int i = 0; i < COUNT; i++) must(!clReleaseCommandQueue(new_queue(rig.context, 0)));
  for (int i = 0; i < COUNT; i++) {
    cl_event event = new_user_event(rig.context);
    resolve(event, CL_COMPLETE);
    must(!clReleaseEvent(event));
  }
  for (int i = 0; i < COUNT; i += 10) fill(rig.queue, buffers[i], i, 64);
  finish(rig.queue);
  for (int i = 0; i < COUNT; i++) release(buffers[i]);
  free(buffers);
  say("%d\n", use_rig(rig, 64));
  down(rig);
}

CASE(queues_at_a_time, TOGETHER, "150 queues at the same time use the same memory, one after the other") {
  struct rig rig = up();
  cl_command_queue queues[150];
  for (int i = 0; i < 150; i++) queues[i] = new_queue(rig.context, i % 3 ? 0 : CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  int wrong = 0;
  for (int i = 0; i < 150; i++) {
    cl_mem memory = new_buffer(rig.context, 0, 4096);
    for (int k = 0; k < 3; k++) {
      fill(queues[(i + k) % 150], memory, i + k, 4096);
      finish(queues[(i + k) % 150]);
    }
    wrong += !reads(queues[i], memory, i + 2, 4096);
    release(memory);
  }
  for (int i = 0; i < 150; i++) must(!clReleaseCommandQueue(queues[i]));
  say("wrong: %d\n", wrong);
  down(rig);
}

CASE(many_kernels, TOGETHER, "600 kernels with arguments at the same time, and clones of them") {
  enum { COUNT = 300 };
  struct rig rig = up();
  cl_program program = new_program(rig.context);
  cl_mem to = new_buffer(rig.context, 0, 256), from = new_buffer(rig.context, 0, 256);
  fill(rig.queue, to, 0, 256);
  fill(rig.queue, from, 1, 256);
  cl_kernel kernels[2 * COUNT];
  cl_int status, clone_status = 0;
  for (int i = 0; i < COUNT; i++) {
    kernels[i] = clCreateKernel(program, "add", &status);
    must(!status && !clSetKernelArg(kernels[i], 0, sizeof to, &to) && !clSetKernelArg(kernels[i], 1, sizeof from, &from));
    kernels[COUNT + i] = clCloneKernel(kernels[i], &status);
    clone_status |= status;
  }
  for (int i = 0; i < COUNT; i += 50) launch(rig.queue, kernels[i], 256);
  say("%d %d\n", clone_status, reads(rig.queue, to, 6, 256));
  for (int i = 0; i < 2 * COUNT; i++)
    if (kernels[i]) must(!clReleaseKernel(kernels[i]));
  must(!clReleaseProgram(program));
  release(to);
  release(from);
  down(rig);
}

CASE(many_buffers, TOGETHER, "4000 buffers of as many sizes at the same time, released in another order") {
  enum { COUNT = 4000 };
  struct rig rig = up();
  cl_mem *buffers = malloc(COUNT * sizeof *buffers);
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < COUNT; i++) buffers[i] = new_buffer(rig.context, 0, 1 + i);
    // 1009 and the count have no common divisor.
    for (int i = 0; i < COUNT; i++) release(buffers[(size_t)i * 1009 % COUNT]);
  }
  free(buffers);
  say("%d\n", use_rig(rig, 4000));
  down(rig);
}

CASE(many_flags, TOGETHER, "buffers of each combination of flags come and go") {
  const cl_mem_flags kinds[] = {0, CL_MEM_READ_WRITE, CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY}, host[] = {0, CL_MEM_ALLOC_HOST_PTR},
                     access[] = {0, CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_WRITE_ONLY, CL_MEM_HOST_NO_ACCESS};
  struct rig rig = up();
  for (int i = 0; i < 64; i++) {
    cl_mem_flags flags = kinds[i % 4] | host[i / 4 % 2] | access[i / 8 % 4], told;
    cl_mem memory = new_buffer(rig.context, flags, 4096);
    must(!clGetMemObjectInfo(memory, CL_MEM_FLAGS, sizeof told, &told, NULL));
    unsigned char bytes[16];
    cl_int read = clEnqueueReadBuffer(rig.queue, memory, CL_TRUE, 0, 16, bytes, 0, NULL, NULL);
    cl_int write = clEnqueueWriteBuffer(rig.queue, memory, CL_TRUE, 0, 16, bytes, 0, NULL, NULL);
    say("%llx: %llx %d %d\n", (unsigned long long)flags, (unsigned long long)told, read, write);
    release(memory);
  }
  down(rig);
}

CASE(many_parts, TOGETHER, "500 parts of one buffer, which is released first, and parts of it again") {
  struct rig rig = up();
  cl_mem parts[500];
  for (int round = 0; round < 2; round++) {
    cl_mem whole = new_buffer(rig.context, 0, 500 * 128);
    fill(rig.queue, whole, 7 + round, 500 * 128);
    int wrong = 0;
    for (int i = 0; i < 500; i++) {
      cl_buffer_region region = {128 * i, 128};
      cl_int status;
      parts[i] = clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
      must(!status);
    }
    release(whole);
    for (int i = 0; i < 500; i++) {
      if (i % 100 == 0) wrong += !reads(rig.queue, parts[i], 7 + round, 128);
      release(parts[i]);
    }
    say("wrong: %d\n", wrong);
  }
  down(rig);
}

CASE(much_shared_memory, TOGETHER, "1000 blocks of shared virtual memory at the same time") {
  struct rig rig = up();
  void *blocks[1000];
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 1000; i++) must((blocks[i] = clSVMAlloc(rig.context, 0, 64 + 64 * (i % 9), 0)));
    for (int i = 0; i < 1000; i++) clSVMFree(rig.context, blocks[i * 7 % 1000]);
  }
  say("done\n");
  down(rig);
}

CASE(many_programs, TOGETHER, "20 programs and their kernels at the same time, and samplers and images") {
  struct rig rig = up();
  cl_kernel kernels[20];
  for (int i = 0; i < 20; i++) kernels[i] = new_kernel(rig.context, "set");
  cl_int status;
  cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc description = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 16, .image_height = 16};
  cl_mem images[100];
  cl_sampler samplers[100];
  for (int i = 0; i < 100; i++) {
    images[i] = clCreateImage(rig.context, 0, &format, &description, NULL, &status);
    must(!status);
    samplers[i] = clCreateSampler(rig.context, CL_FALSE, CL_ADDRESS_NONE, CL_FILTER_NEAREST, &status);
    must(!status);
  }
  for (int i = 0; i < 100; i++) {
    release(images[i]);
    must(!clReleaseSampler(samplers[i]));
  }
  for (int i = 0; i < 20; i++) must(!clReleaseKernel(kernels[i]));
  say("%d\n", use_rig(rig, 1024));
  down(rig);
}

static void CL_CALLBACK count_event(cl_event event, cl_int status, void *count) { ++*(atomic_int *)count; }
static void CL_CALLBACK count_memory(cl_mem memory, void *count) { ++*(atomic_int *)count; }
CASE(many_callbacks, TOGETHER, "500 functions for events and as many for the ends of buffers") {
  struct rig rig = up();
  atomic_int events = 0, ends = 0;
  cl_mem memory = new_buffer(rig.context, 0, 64);
  for (int i = 0; i < 500; i++) {
    cl_event event;
    unsigned char value = i;
    must(!clEnqueueFillBuffer(rig.queue, memory, &value, 1, 0, 64, 0, NULL, &event));
    must(!clSetEventCallback(event, CL_COMPLETE, count_event, &events) && !clReleaseEvent(event));
    cl_mem other = new_buffer(rig.context, 0, 128);
    must(!clSetMemObjectDestructorCallback(other, count_memory, &ends));
    release(other);
  }
  finish(rig.queue);
  for (int i = 0; i < 2000 && events < 500; i++) nap(1000);
  say("events %d, ends %d\n", events, ends);
  release(memory);
  down(rig);
}

static void *lives_shortly(void *place) {
  must(!use_rig(*(struct rig *)place, 5000));
  return NULL;
}
CASE(many_threads, TOGETHER, "200 threads, eight at a time, use a device once each") {
  struct rig rig = up();
  for (int i = 0; i < 25; i++) {
    pthread_t threads[8];
    for (int k = 0; k < 8; k++) threads[k] = start(lives_shortly, &rig, 0);
    for (int k = 0; k < 8; k++) join(threads[k]);
  }
  say("done\n");
  down(rig);
}

CASE(many_pending_commands, TOGETHER, "1000 commands on memory that comes and goes wait for one event") {
  struct rig rig = up();
  cl_event gate = new_user_event(rig.context);
  must(!clEnqueueBarrierWithWaitList(rig.queue, 1, &gate, NULL));
  for (int i = 0; i < 1000; i++) {
    cl_mem memory = new_buffer(rig.context, 0, 4096);
    fill(rig.queue, memory, i, 4096);
    release(memory);
  }
  resolve(gate, CL_COMPLETE);
  must(!clReleaseEvent(gate));
  finish(rig.queue);
  say("%d\n", use_rig(rig, 4096));
  down(rig);
}
