// Programs that load OpenCL's loader themselves, and unload it. They are a program of their own, which is not linked to it.
#define CL_TARGET_OPENCL_VERSION 300
#include "case.h"
#include <CL/cl.h>
#include <dlfcn.h>

// No case goes with others.
void hold_device(void) {}

struct functions {
  void *library;
  __typeof__(&clGetPlatformIDs) get_platforms;
  __typeof__(&clGetDeviceIDs) get_devices;
  __typeof__(&clCreateContext) create_context;
  __typeof__(&clReleaseContext) release_context;
  __typeof__(&clCreateCommandQueueWithProperties) create_queue;
  __typeof__(&clReleaseCommandQueue) release_queue;
  __typeof__(&clCreateBuffer) create_buffer;
  __typeof__(&clReleaseMemObject) release_buffer;
  __typeof__(&clEnqueueFillBuffer) fill;
  __typeof__(&clEnqueueReadBuffer) read;
};

static struct functions load(void *library) {
  must(library);
  return (struct functions){
      library,
      dlsym(library, "clGetPlatformIDs"),
      dlsym(library, "clGetDeviceIDs"),
      dlsym(library, "clCreateContext"),
      dlsym(library, "clReleaseContext"),
      dlsym(library, "clCreateCommandQueueWithProperties"),
      dlsym(library, "clReleaseCommandQueue"),
      dlsym(library, "clCreateBuffer"),
      dlsym(library, "clReleaseMemObject"),
      dlsym(library, "clEnqueueFillBuffer"),
      dlsym(library, "clEnqueueReadBuffer"),
  };
}

static void use_by(struct functions by) {
  cl_platform_id platform;
  cl_device_id device;
  cl_int status = 0;
  must(!by.get_platforms(1, &platform, NULL) && !by.get_devices(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
  cl_context context = by.create_context(NULL, 1, &device, NULL, NULL, &status);
  cl_command_queue queue = by.create_queue(context, device, NULL, &status);
  for (int i = 0; i < 5; i++) {
    cl_mem memory = by.create_buffer(context, 0, 4096, NULL, &status);
    unsigned char value = 7, seen[2] = {0};
    status |= by.fill(queue, memory, &value, 1, 0, 4096, 0, NULL, NULL);
    status |= by.read(queue, memory, CL_TRUE, 4094, 2, seen, 0, NULL, NULL);
    say("%d %d ", status, seen[1]);
    status |= by.release_buffer(memory);
  }
  status |= by.release_queue(queue);
  status |= by.release_context(context);
  say("%d\n", status);
}

static void *open_local(void) { return dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL); }

CASE(loaded_again, ALONE, "the loader is loaded, used and unloaded three times") {
  for (int i = 0; i < 3; i++) {
    struct functions by = load(open_local());
    use_by(by);
    say("closed: %d\n", dlclose(by.library));
  }
}
CASE(unloaded_unused, ALONE, "the loader is loaded and unloaded ten times, and used only then") {
  for (int i = 0; i < 10; i++) dlclose(open_local());
  use_by(load(open_local()));
}
static void *loads_and_uses(void *none) {
  use_by(load(open_local()));
  return NULL;
}
CASE(loaded_on_threads, ALONE, "a thread that ends loads the loader, and then the next") {
  for (int i = 0; i < 3; i++) on_thread(loads_and_uses, NULL, 0);
}
CASE(loaded_lazily_and_globally, ALONE, "the loader is loaded with other flags while it is in use") {
  struct functions first = load(open_local());
  use_by(load(dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_GLOBAL)));
  dlclose(first.library);
  use_by(first);
}
CASE(loaded_in_a_namespace, ALONE, "the loader is loaded in a namespace of its own, beside the first") {
  use_by(load(open_local()));
  void *other = dlmopen(LM_ID_NEWLM, "libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (other) use_by(load(other));
  use_by(load(open_local()));
}
CASE(loaded_in_a_child, ALONE, "a child loads and uses the loader, which its parent only loads") {
  void *library = open_local();
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    use_by(load(open_local()));
    fflush(stdout);
    _exit(2);
  }
  say_end("child", child);
  use_by(load(library));
}
