// A layer of OpenCL's loader that counts calls, below binpool's: scripts/under-programs compares the two.
// Each process appends its counts to the file that the variable PROBE_COUNTS names.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_layer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct _cl_icd_dispatch ours;

// The functions that are counted: all but those of other interfaces.
#define COUNTED(F) \
  F(clGetPlatformIDs) F(clGetPlatformInfo) F(clGetDeviceIDs) F(clGetDeviceInfo) F(clCreateContext) F(clCreateContextFromType) \
  F(clRetainContext) F(clReleaseContext) F(clGetContextInfo) F(clCreateCommandQueue) F(clRetainCommandQueue) F(clReleaseCommandQueue) \
  F(clGetCommandQueueInfo) F(clSetCommandQueueProperty) F(clCreateBuffer) F(clCreateImage2D) F(clCreateImage3D) F(clRetainMemObject) \
  F(clReleaseMemObject) F(clGetSupportedImageFormats) F(clGetMemObjectInfo) F(clGetImageInfo) F(clCreateSampler) F(clRetainSampler) \
  F(clReleaseSampler) F(clGetSamplerInfo) F(clCreateProgramWithSource) F(clCreateProgramWithBinary) F(clRetainProgram) \
  F(clReleaseProgram) F(clBuildProgram) F(clUnloadCompiler) F(clGetProgramInfo) F(clGetProgramBuildInfo) F(clCreateKernel) \
  F(clCreateKernelsInProgram) F(clRetainKernel) F(clReleaseKernel) F(clSetKernelArg) F(clGetKernelInfo) F(clGetKernelWorkGroupInfo) \
  F(clWaitForEvents) F(clGetEventInfo) F(clRetainEvent) F(clReleaseEvent) F(clGetEventProfilingInfo) F(clFlush) F(clFinish) \
  F(clEnqueueReadBuffer) F(clEnqueueWriteBuffer) F(clEnqueueCopyBuffer) F(clEnqueueReadImage) F(clEnqueueWriteImage) \
  F(clEnqueueCopyImage) F(clEnqueueCopyImageToBuffer) F(clEnqueueCopyBufferToImage) F(clEnqueueMapBuffer) F(clEnqueueMapImage) \
  F(clEnqueueUnmapMemObject) F(clEnqueueNDRangeKernel) F(clEnqueueTask) F(clEnqueueNativeKernel) F(clEnqueueMarker) \
  F(clEnqueueWaitForEvents) F(clEnqueueBarrier) F(clGetExtensionFunctionAddress) F(clSetEventCallback) F(clCreateSubBuffer) \
  F(clSetMemObjectDestructorCallback) F(clCreateUserEvent) F(clSetUserEventStatus) F(clEnqueueReadBufferRect) F(clEnqueueWriteBufferRect) \
  F(clEnqueueCopyBufferRect) F(clCreateSubDevices) F(clRetainDevice) F(clReleaseDevice) F(clCreateImage) \
  F(clCreateProgramWithBuiltInKernels) F(clCompileProgram) F(clLinkProgram) F(clUnloadPlatformCompiler) F(clGetKernelArgInfo) \
  F(clEnqueueFillBuffer) F(clEnqueueFillImage) F(clEnqueueMigrateMemObjects) F(clEnqueueMarkerWithWaitList) \
  F(clEnqueueBarrierWithWaitList) F(clGetExtensionFunctionAddressForPlatform) F(clCreateCommandQueueWithProperties) F(clCreatePipe) \
  F(clGetPipeInfo) F(clSVMAlloc) F(clSVMFree) F(clEnqueueSVMFree) F(clEnqueueSVMMemcpy) F(clEnqueueSVMMemFill) F(clEnqueueSVMMap) \
  F(clEnqueueSVMUnmap) F(clCreateSamplerWithProperties) F(clSetKernelArgSVMPointer) F(clSetKernelExecInfo) F(clCloneKernel) \
  F(clCreateProgramWithIL) F(clEnqueueSVMMigrateMem) F(clGetDeviceAndHostTimer) F(clGetHostTimer) F(clGetKernelSubGroupInfo) \
  F(clSetDefaultDeviceCommandQueue) F(clSetProgramReleaseCallback) F(clSetProgramSpecializationConstant) F(clCreateBufferWithProperties) \
  F(clCreateImageWithProperties) F(clSetContextDestructorCallback)

// Each counts, and jumps to that below: the arguments stay where they are, whatever they are.
#if defined __x86_64__
#define CODE(NAME) "lock incq count_" NAME "(%rip)\n jmp *below_" NAME "(%rip)\n"
#elif defined __aarch64__
#define CODE(NAME) \
  "adrp x16, count_" NAME "\n add x16, x16, :lo12:count_" NAME "\n 0: ldxr x17, [x16]\n add x17, x17, 1\n stxr w15, x17, [x16]\n cbnz w15, 0b\n" \
  "adrp x16, below_" NAME "\n ldr x16, [x16, :lo12:below_" NAME "]\n br x16\n"
#else
#error "the functions that count are written for x86-64 and aarch64"
#endif

#define DEFINE(NAME) \
  __attribute__((used)) static long count_##NAME; \
  __attribute__((used)) static void *below_##NAME; \
  extern __attribute__((visibility("hidden"))) void on_##NAME(void); \
  __asm__(".text\n on_" #NAME ": " CODE(#NAME));
COUNTED(DEFINE)

static void report(void) {
  const char *path = getenv("PROBE_COUNTS");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
#define WRITE(NAME) \
  if (count_##NAME) fprintf(file, "%s %ld\n", #NAME, count_##NAME);
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
  memcpy(&ours, target, known * sizeof(void *));
#define REPLACE(NAME) \
  below_##NAME = (void *)ours.NAME; \
  if (below_##NAME) *(void **)&ours.NAME = (void *)on_##NAME;
  COUNTED(REPLACE)
  *count_ret = known;
  *layer_ret = &ours;
  atexit(report);
  return CL_SUCCESS;
}
