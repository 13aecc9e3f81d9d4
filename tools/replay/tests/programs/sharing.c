// Memory that the host and kernels use at the same time, and memory of the host.
#include "opencl.h"
#include <sys/mman.h>

static volatile int *new_flags(cl_context context) {
  const cl_svm_mem_flags fine = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;
  volatile int *flags = clSVMAlloc(context, fine | CL_MEM_SVM_ATOMICS, 4096, 0);
  if (!flags) flags = clSVMAlloc(context, fine, 4096, 0);
  must(flags);
  flags[0] = flags[1] = 0;
  return flags;
}

// A kernel that runs until the program lets it go, and uses `memory` then.
static cl_kernel begin_spinning(struct rig rig, volatile int *flags, cl_mem memory) {
  cl_kernel kernel = new_kernel(rig.context, "spin");
  must(!clSetKernelArgSVMPointer(kernel, 0, (void *)flags) && !clSetKernelArg(kernel, 1, sizeof memory, &memory));
  launch(rig.queue, kernel, 1);
  must(!clFlush(rig.queue));
  while (!flags[1]) nap(1000);
  return kernel;
}

static void end_spinning(struct rig rig, volatile int *flags, cl_kernel kernel) {
  flags[0] = 1;
  finish(rig.queue);
  must(!clReleaseKernel(kernel));
  clSVMFree(rig.context, (void *)flags);
}

// A buffer that the kernel uses is released, and one of that size is used on another queue before the host lets the kernel go.
static void spin(bool second_is_first, bool is_released) {
  if (!has_fine_grained_memory()) {
    say("no fine-grained memory\n");
    return;
  }
  struct rig rig = up_alone();
  volatile int *flags = new_flags(rig.context);
  cl_mem first = new_buffer(rig.context, 0, 4096);
  fill(rig.queue, first, 1, 4096);
  finish(rig.queue);
  cl_command_queue other = second_is_first ? new_queue(rig.context, 0) : NULL;
  cl_kernel kernel = begin_spinning(rig, flags, first);
  if (is_released) release(first);
  cl_mem second = new_buffer(rig.context, 0, 4096);
  if (!other) other = new_queue(rig.context, 0);
  fill(other, second, 9, 4096);
  say("meanwhile: %d\n", reads(other, second, 9, 4096));
  end_spinning(rig, flags, kernel);
  say("afterwards: %d\n", reads(other, second, 9, 4096));
  if (!is_released) release(first);
  release(second);
  must(!clReleaseCommandQueue(other));
  down_alone(rig);
}
CASE(spin_beside_a_new_queue, ALONE, "a kernel waits for the host by shared memory; a queue made meanwhile uses memory like that of the kernel") { spin(false, true); }
CASE(spin_beside_an_old_queue, ALONE, "the same with a queue from before") { spin(true, true); }
CASE(spin_and_keep, ALONE, "the same, and the kernel's memory is not released") { spin(false, false); }

CASE(spin_on_memory_of_the_host, ALONE, "a kernel waits for the host by memory that it was given, which the device shares") {
  struct rig rig = up_alone();
  cl_bool is_unified;
  must(!clGetDeviceInfo(rig.device, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof is_unified, &is_unified, NULL));
  cl_device_type type;
  must(!clGetDeviceInfo(rig.device, CL_DEVICE_TYPE, sizeof type, &type, NULL));
  if (!is_unified || type != CL_DEVICE_TYPE_CPU) {
    say("no memory that is shared at once\n");
    return;
  }
  cl_int status;
  volatile int *flags = aligned_alloc(4096, 4096);
  flags[0] = flags[1] = 0;
  cl_mem shared = clCreateBuffer(rig.context, CL_MEM_USE_HOST_PTR, 4096, (void *)flags, &status);
  cl_mem memory = new_buffer(rig.context, 0, 2048);
  cl_kernel kernel = new_kernel(rig.context, "spin");
  must(!status && !clSetKernelArg(kernel, 0, sizeof shared, &shared) && !clSetKernelArg(kernel, 1, sizeof memory, &memory));
  launch(rig.queue, kernel, 1);
  must(!clFlush(rig.queue));
  while (!flags[1]) nap(1000);
  cl_command_queue other = new_queue(rig.context, 0);
  say("meanwhile: %d\n", use(rig.context, other, 2048, 3));
  flags[0] = 1;
  finish(rig.queue);
  say("afterwards: %d\n", reads(rig.queue, memory, 5, 1));
  release(shared);
  release(memory);
  must(!clReleaseKernel(kernel) && !clReleaseCommandQueue(other));
  free((void *)flags);
  down_alone(rig);
}

CASE(host_pointers, TOGETHER, "buffers on the program's memory: maps return it, and it can be freed after the release") {
  struct rig rig = up();
  for (int i = 1; i < 6; i++) {
    size_t bytes = 4096 * i;
    unsigned char *host = aligned_alloc(4096, bytes);
    memset(host, i, bytes);
    cl_int status;
    cl_mem memory = clCreateBuffer(rig.context, CL_MEM_USE_HOST_PTR, bytes, host, &status);
    must(!status);
    void *told;
    must(!clGetMemObjectInfo(memory, CL_MEM_HOST_PTR, sizeof told, &told, NULL));
    unsigned char *mapped = clEnqueueMapBuffer(rig.queue, memory, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 64, 100, 0, NULL, NULL, &status);
    say("%d %d %d", told == host, mapped == host + 64, is_filled(mapped, i, 100));
    must(!clEnqueueUnmapMemObject(rig.queue, memory, mapped, 0, NULL, NULL));
    fill(rig.queue, memory, 100 + i, bytes);
    say(" %d\n", reads(rig.queue, memory, 100 + i, bytes));
    release(memory);
    free(host);
  }
  down(rig);
}

CASE(two_buffers_on_the_same_bytes, TOGETHER, "two buffers on the same memory of the host, one after the other") {
  struct rig rig = up();
  unsigned char *host = aligned_alloc(4096, 8192);
  for (int i = 0; i < 3; i++) {
    memset(host, i, 8192);
    cl_int status;
    cl_mem first = clCreateBuffer(rig.context, CL_MEM_USE_HOST_PTR, 8192, host, &status);
    cl_mem second = clCreateBuffer(rig.context, CL_MEM_USE_HOST_PTR, 4096, host + 4096, &status);
    must(!status);
    say("%d %d\n", reads(rig.queue, first, i, 8192), reads(rig.queue, second, i, 4096));
    release(first);
    say("%d\n", reads(rig.queue, second, i, 4096));
    release(second);
  }
  free(host);
  down(rig);
}

CASE(copied_bytes, TOGETHER, "buffers that begin as copies of memory that is freed at once, of every kind of flags") {
  struct rig rig = up();
  const cl_mem_flags flags[] = {CL_MEM_COPY_HOST_PTR, CL_MEM_COPY_HOST_PTR | CL_MEM_ALLOC_HOST_PTR, CL_MEM_COPY_HOST_PTR | CL_MEM_READ_ONLY};
  for (int i = 0; i < 9; i++) {
    unsigned char *host = malloc(5000);
    memset(host, i, 5000);
    cl_int status;
    // At an address that is no multiple of anything.
    cl_mem memory = clCreateBuffer(rig.context, flags[i % 3], 4999, host + 1, &status);
    must(!status);
    memset(host, 99, 5000);
    free(host);
    void *told;
    must(!clGetMemObjectInfo(memory, CL_MEM_HOST_PTR, sizeof told, &told, NULL));
    say("%d %d\n", told == NULL, reads(rig.queue, memory, i, 4999));
    release(memory);
  }
  down(rig);
}

CASE(shared_between_processes, FIRST, "a kernel's result in memory that a child of the process has, too") {
  unsigned char *host = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int ends[2];
  must(!pipe(ends));
  pid_t child = fork();
  if (!child) {
    char go;
    if (read(ends[0], &go, 1) != 1) _exit(1);
    _exit(host[100]);
  }
  struct rig rig = up_alone();
  cl_int status;
  cl_mem memory = clCreateBuffer(rig.context, CL_MEM_USE_HOST_PTR, 4096, host, &status);
  must(!status);
  fill(rig.queue, memory, 42, 4096);
  void *mapped = clEnqueueMapBuffer(rig.queue, memory, CL_TRUE, CL_MAP_READ, 0, 4096, 0, NULL, NULL, &status);
  must(mapped && write(ends[1], "g", 1) == 1);
  say_end("the child's byte", child);
  must(!clEnqueueUnmapMemObject(rig.queue, memory, mapped, 0, NULL, NULL));
  finish(rig.queue);
  release(memory);
  say("%d\n", use_rig(rig, 4096));
  down_alone(rig);
}

CASE(shared_memory, TOGETHER, "shared virtual memory of several alignments: copied, filled, mapped, and freed by commands") {
  struct rig rig = up();
  for (int i = 0; i < 6; i++) {
    cl_uint alignment = i < 3 ? 0 : 4 << i;
    unsigned char *first = clSVMAlloc(rig.context, 0, 4096, alignment), *second = clSVMAlloc(rig.context, CL_MEM_READ_WRITE, 4096, alignment);
    must(first && second);
    say("%d ", !alignment || !((uintptr_t)first % alignment));
    unsigned char value = 10 + i;
    must(!clEnqueueSVMMemFill(rig.queue, first, &value, 1, 4096, 0, NULL, NULL));
    must(!clEnqueueSVMMemcpy(rig.queue, CL_FALSE, second, first, 4096, 0, NULL, NULL));
    must(!clEnqueueSVMMap(rig.queue, CL_TRUE, CL_MAP_READ, second, 4096, 0, NULL, NULL));
    say("%d\n", is_filled(second, value, 4096));
    must(!clEnqueueSVMUnmap(rig.queue, second, 0, NULL, NULL));
    void *list[] = {second};
    if (i % 2) must(!clEnqueueSVMFree(rig.queue, 1, list, NULL, NULL, 0, NULL, NULL));
    finish(rig.queue);
    clSVMFree(rig.context, first);
    if (i % 2 == 0) clSVMFree(rig.context, second);
  }
  clSVMFree(rig.context, NULL);
  down(rig);
}

CASE(a_kernel_on_shared_memory, TOGETHER, "kernels use shared virtual memory as an argument, and by an address they are told of") {
  struct rig rig = up();
  cl_kernel kernel = new_kernel(rig.context, "add");
  unsigned char *to = clSVMAlloc(rig.context, 0, 256, 0), *from = clSVMAlloc(rig.context, 0, 256, 0), value = 4;
  must(!clEnqueueSVMMemFill(rig.queue, to, &value, 1, 256, 0, NULL, NULL) && !clEnqueueSVMMemFill(rig.queue, from, &value, 1, 256, 0, NULL, NULL));
  must(!clSetKernelArgSVMPointer(kernel, 0, to) && !clSetKernelArgSVMPointer(kernel, 1, from));
  void *list[] = {to, from};
  must(!clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, sizeof list, list));
  launch(rig.queue, kernel, 256);
  launch(rig.queue, kernel, 256);
  must(!clEnqueueSVMMap(rig.queue, CL_TRUE, CL_MAP_READ, to, 256, 0, NULL, NULL));
  say("%d\n", is_filled(to, 12, 256));
  must(!clEnqueueSVMUnmap(rig.queue, to, 0, NULL, NULL));
  finish(rig.queue);
  must(!clReleaseKernel(kernel));
  clSVMFree(rig.context, to);
  clSVMFree(rig.context, from);
  down(rig);
}

CASE(a_buffer_on_shared_memory, TOGETHER, "a buffer on shared virtual memory, which is freed after it") {
  struct rig rig = up();
  cl_int status;
  for (int i = 0; i < 3; i++) {
    unsigned char *address = clSVMAlloc(rig.context, 0, 4096, 0);
    cl_mem memory = clCreateBuffer(rig.context, CL_MEM_USE_HOST_PTR, 4096, address, &status);
    must(!status);
    cl_bool is_shared_memory = 9;
    must(!clGetMemObjectInfo(memory, CL_MEM_USES_SVM_POINTER, sizeof is_shared_memory, &is_shared_memory, NULL));
    fill(rig.queue, memory, 60 + i, 4096);
    say("%d %d\n", is_shared_memory, reads(rig.queue, memory, 60 + i, 4096));
    release(memory);
    clSVMFree(rig.context, address);
  }
  down(rig);
}
