// A layer of OpenCL's loader that counts calls, below binpool's: scripts/under-programs compares the two.
// Each process appends its counts to the file that the variable PROBE_COUNTS names.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_layer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct _cl_icd_dispatch ours;
static const struct _cl_icd_dispatch *next;

// The functions that are counted: result, name, parameters, arguments.
#define COUNTED(F) \
  F(cl_mem, clCreateBuffer, (cl_context c, cl_mem_flags f, size_t n, void *h, cl_int *e), (c, f, n, h, e)) \
  F(cl_mem, clCreateSubBuffer, (cl_mem m, cl_mem_flags f, cl_buffer_create_type t, const void *i, cl_int *e), (m, f, t, i, e)) \
  F(cl_mem, clCreateImage, (cl_context c, cl_mem_flags f, const cl_image_format *a, const cl_image_desc *d, void *h, cl_int *e), (c, f, a, d, h, e)) \
  F(cl_int, clRetainMemObject, (cl_mem m), (m)) \
  F(cl_int, clReleaseMemObject, (cl_mem m), (m)) \
  F(void *, clSVMAlloc, (cl_context c, cl_svm_mem_flags f, size_t n, cl_uint a), (c, f, n, a)) \
  F(cl_int, clSetKernelArg, (cl_kernel k, cl_uint i, size_t n, const void *v), (k, i, n, v)) \
  F(cl_int, clEnqueueNDRangeKernel, (cl_command_queue q, cl_kernel k, cl_uint d, const size_t *o, const size_t *g, const size_t *l, cl_uint n, const cl_event *w, cl_event *e), (q, k, d, o, g, l, n, w, e))

#define DEFINE(RESULT, NAME, PARAMETERS, ARGUMENTS) \
  static long count_##NAME; \
  static RESULT CL_API_CALL on_##NAME PARAMETERS { __atomic_add_fetch(&count_##NAME, 1, __ATOMIC_RELAXED); return next->NAME ARGUMENTS; }
COUNTED(DEFINE)

static void report(void) {
  const char *path = getenv("PROBE_COUNTS");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
#define WRITE(RESULT, NAME, PARAMETERS, ARGUMENTS) fprintf(file, "%s %ld\n", #NAME, count_##NAME);
  COUNTED(WRITE)
  fclose(file);
}

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void *value, size_t *size_ret) {
  static const char text[] = "probe";
  cl_layer_api_version version = CL_LAYER_API_VERSION_100;
  int is_version = name == CL_LAYER_API_VERSION;
  size_t needed = is_version ? sizeof version : sizeof text;
  if (value && size < needed) return CL_INVALID_VALUE;
  if (value) memcpy(value, is_version ? (const void *)&version : text, needed);
  if (size_ret) *size_ret = needed;
  return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint count, const struct _cl_icd_dispatch *target, cl_uint *count_ret, const struct _cl_icd_dispatch **layer_ret) {
  size_t known = sizeof ours / sizeof(void *);
  if (count < known) known = count;
  next = target;
  memcpy(&ours, target, known * sizeof(void *));
#define REPLACE(RESULT, NAME, PARAMETERS, ARGUMENTS) ours.NAME = on_##NAME;
  COUNTED(REPLACE)
  *count_ret = known;
  *layer_ret = &ours;
  atexit(report);
  return CL_SUCCESS;
}
