/* The few calls of OpenCL that the examples make, loaded when the program runs, so that they are built without its headers. A program
 * includes <CL/cl.h> and links with -lOpenCL instead. */

#ifndef OPENCL_CALLS_H
#define OPENCL_CALLS_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *cl_handle;
typedef int32_t cl_int;
typedef uint32_t cl_uint;

enum { CL_SUCCESS = 0, CL_TRUE = 1 };
static const uint64_t CL_DEVICE_TYPE_ALL = 0xFFFFFFFF;

static struct {
  cl_int (*GetPlatformIDs)(cl_uint, cl_handle *, cl_uint *);
  cl_int (*GetDeviceIDs)(cl_handle, uint64_t, cl_uint, cl_handle *, cl_uint *);
  cl_handle (*CreateContext)(const intptr_t *, cl_uint, const cl_handle *, void *, void *, cl_int *);
  cl_handle (*CreateCommandQueue)(cl_handle, cl_handle, uint64_t, cl_int *);
  cl_handle (*CreateProgramWithSource)(cl_handle, cl_uint, const char **, const size_t *, cl_int *);
  cl_int (*BuildProgram)(cl_handle, cl_uint, const cl_handle *, const char *, void *, void *);
  cl_handle (*CreateKernel)(cl_handle, const char *, cl_int *);
  cl_int (*SetKernelArg)(cl_handle, cl_uint, size_t, const void *);
  cl_int (*EnqueueNDRangeKernel)(cl_handle, cl_handle, cl_uint, const size_t *, const size_t *, const size_t *,
                                 cl_uint, const cl_handle *, cl_handle *);
  cl_int (*EnqueueFillBuffer)(cl_handle, cl_handle, const void *, size_t, size_t, size_t, cl_uint,
                              const cl_handle *, cl_handle *);
  cl_int (*EnqueueReadBuffer)(cl_handle, cl_handle, cl_uint, size_t, size_t, void *, cl_uint,
                              const cl_handle *, cl_handle *);
  cl_int (*Finish)(cl_handle);
  cl_int (*ReleaseKernel)(cl_handle);
  cl_int (*ReleaseProgram)(cl_handle);
  cl_int (*ReleaseCommandQueue)(cl_handle);
  cl_int (*ReleaseContext)(cl_handle);
} cl;

static inline void load_call(void *library, const char *name, void *call) {
  *(void **)call = dlsym(library, name);
  if (!*(void **)call) {
    fprintf(stderr, "the OpenCL library has no %s\n", name);
    exit(1);
  }
}

/* Loads the library that binpool loads. */
static inline void load_opencl(void) {
  const char *named = getenv("OPENCL_DYLIB_PATH");
  void *library = named ? dlopen(named, RTLD_NOW) : NULL;
  if (!library) library = dlopen("libOpenCL.so", RTLD_NOW);
  if (!library) library = dlopen("libOpenCL.so.1", RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
#define LOAD(name) load_call(library, "cl" #name, (void *)&cl.name)
  LOAD(GetPlatformIDs);
  LOAD(GetDeviceIDs);
  LOAD(CreateContext);
  LOAD(CreateCommandQueue);
  LOAD(CreateProgramWithSource);
  LOAD(BuildProgram);
  LOAD(CreateKernel);
  LOAD(SetKernelArg);
  LOAD(EnqueueNDRangeKernel);
  LOAD(EnqueueFillBuffer);
  LOAD(EnqueueReadBuffer);
  LOAD(Finish);
  LOAD(ReleaseKernel);
  LOAD(ReleaseProgram);
  LOAD(ReleaseCommandQueue);
  LOAD(ReleaseContext);
#undef LOAD
}

/* Opens the first device of the first platform. */
static inline void open_device(cl_handle *device, cl_handle *context) {
  cl_handle platform = NULL;
  cl_int code = cl.GetPlatformIDs(1, &platform, NULL);
  if (code == CL_SUCCESS) code = cl.GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, device, NULL);
  if (code == CL_SUCCESS) *context = cl.CreateContext(NULL, 1, device, NULL, NULL, &code);
  if (code != CL_SUCCESS) {
    fprintf(stderr, "no OpenCL device: %d\n", (int)code);
    exit(1);
  }
}

#endif
