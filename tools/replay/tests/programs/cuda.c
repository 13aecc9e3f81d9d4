// What the cases of CUDA share.
#include "cuda.h"

bool stand_in_was_called(const char *call);

// As the layer of the tests that counts OpenCL's calls.
__attribute__((destructor)) static void report(void) {
  const char *path = getenv("PROBE_COUNTS");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
#define WRITE(NAME, ...)                                                                                                         \
  if (stand_in_was_called(#NAME)) fprintf(file, "%s 1\n", #NAME);
  FUNCTIONS(WRITE)
  fclose(file);
}

struct rig up(void) {
  struct rig rig;
  must(!cuInit(0) && !cuDevicePrimaryCtxRetain(&rig.context, 0) && !cuCtxSetCurrent(rig.context));
  rig.stream = new_stream();
  return rig;
}

void hold_device(void) {
  CUcontext context;
  must(!cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0));
}

void down(struct rig rig) {
  synchronize(rig.stream);
  must(!cuStreamDestroy_v2(rig.stream) && !cuDevicePrimaryCtxRelease_v2(0) && !cuCtxSetCurrent(NULL));
}

CUstream new_stream(void) {
  CUstream stream;
  must(!cuStreamCreate(&stream, 1));
  return stream;
}

CUdeviceptr allocate(size_t bytes) {
  CUdeviceptr address;
  must(!cuMemAlloc_v2(&address, bytes));
  return address;
}

CUdeviceptr allocate_on(CUstream stream, size_t bytes) {
  CUdeviceptr address;
  must(!cuMemAllocAsync(&address, bytes, stream));
  return address;
}

void fill(CUstream stream, CUdeviceptr address, unsigned char value, size_t bytes) { must(!cuMemsetD8Async(address, value, bytes, stream)); }

bool reads(CUstream stream, CUdeviceptr address, unsigned char value, size_t bytes) {
  unsigned char *to = malloc(bytes);
  must(!cuMemcpyDtoHAsync_v2(to, address, bytes, stream));
  synchronize(stream);
  size_t i = 0;
  while (i < bytes && to[i] == value) i++;
  free(to);
  return i == bytes;
}

CUresult use(CUstream stream, size_t bytes, unsigned char value) {
  CUdeviceptr address;
  CUresult status = cuMemAllocAsync(&address, bytes, stream);
  if (status) return status;
  status = cuMemsetD8Async(address, value, bytes, stream);
  if (!status && !reads(stream, address, value, bytes)) status = 1;
  CUresult freed = cuMemFreeAsync(address, stream);
  return status ? status : freed;
}

CUresult use_plain(CUstream stream, size_t bytes, unsigned char value) {
  CUdeviceptr address;
  CUresult status = cuMemAlloc_v2(&address, bytes);
  if (status) return status;
  status = cuMemsetD8Async(address, value, bytes, stream);
  if (!status && !reads(stream, address, value, bytes)) status = 1;
  CUresult freed = cuMemFree_v2(address);
  return status ? status : freed;
}

struct gate close_gate(CUstream stream) {
  struct gate gate;
  must(!cuMemHostAlloc((void **)&gate.word, 4, 1));
  *gate.word = 0;
  must(!cuStreamWaitValue32_v2(stream, (CUdeviceptr)gate.word, 1, 0));
  return gate;
}

// The word stays: a stream may look at it later.
void open_gate(struct gate gate) { *gate.word = 1; }
