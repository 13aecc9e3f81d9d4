// CUDA's runtime over the stand-in for its driver (backend-cuda/stand-in), as far as PyTorch needs it to allocate memory and capture graphs
// without a GPU. It is loaded before the real one (`LD_PRELOAD`), and what is not here fails there.

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#undef cudaStreamGetCaptureInfo

namespace {

thread_local int device = 0;
thread_local cudaError_t last = cudaSuccess;

cudaError_t seen(CUresult result) {
  if (result != CUDA_SUCCESS) {
    last = static_cast<cudaError_t>(result);
  }
  return static_cast<cudaError_t>(result);
}

template <typename Function>
Function find(const char* name) {
  static void* library = dlopen("libcuda.so.1", RTLD_NOW);
  void* function = library ? dlsym(library, name) : nullptr;
  if (!function) {
    std::fprintf(stderr, "the stand-in has no %s\n", name);
    std::abort();
  }
  return reinterpret_cast<Function>(function);
}

// Calls a function of the driver by its name, with the current device's context.
template <typename... Arguments>
cudaError_t call(const char* name, Arguments... arguments) {
  static std::array<CUcontext, 2> contexts{};
  static std::mutex mutex;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!contexts[device]) {
      find<CUresult (*)(unsigned)>("cuInit")(0);
      find<CUresult (*)(CUcontext*, int)>("cuDevicePrimaryCtxRetain")(&contexts[device], device);
    }
    find<CUresult (*)(CUcontext)>("cuCtxSetCurrent")(contexts[device]);
  }
  return seen(find<CUresult (*)(Arguments...)>(name)(arguments...));
}

CUdeviceptr address(const void* pointer) {
  return reinterpret_cast<CUdeviceptr>(pointer);
}

// The captures that go on, by their streams.
std::mutex captures_mutex;
std::map<cudaStream_t, unsigned long long> captures;

} // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 2;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* current) {
  *current = device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int wanted) {
  device = wanted;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  return std::exchange(last, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return last;
}
const char* cudaGetErrorString(cudaError_t) {
  return "an error of the stand-in";
}
const char* cudaGetErrorName(cudaError_t) {
  return "an error of the stand-in";
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call("cuMemGetInfo_v2", free, total);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  size_t free = 0;
  std::strcpy(properties->name, "stand-in");
  properties->major = 9;
  properties->multiProcessorCount = 132;
  properties->warpSize = 32;
  return cudaMemGetInfo(&free, &properties->totalGlobalMem);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return call("cuCtxSynchronize");
}
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return call("cuMemAlloc_v2", reinterpret_cast<CUdeviceptr*>(pointer), bytes);
}
cudaError_t cudaFree(void* pointer) {
  return pointer ? call("cuMemFree_v2", address(pointer)) : cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return call("cuMemsetD8Async", address(to), static_cast<unsigned char>(value), bytes, stream);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return call("cuMemcpyHtoDAsync_v2", address(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost:
      return call("cuMemcpyDtoHAsync_v2", to, address(from), bytes, stream);
    default:
      return call("cuMemcpyDtoDAsync_v2", address(to), address(from), bytes, stream);
  }
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return call("cuStreamCreate", stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call("cuStreamSynchronize", stream);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cuEventCreate", event, flags);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cuEventRecord", event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cuEventQuery", event);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cuEventSynchronize", event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call("cuEventDestroy_v2", event);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call("cuThreadExchangeStreamCaptureMode", mode);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  static unsigned long long next = 1;
  std::lock_guard<std::mutex> lock(captures_mutex);
  captures[stream] = next++;
  return call("cuStreamBeginCapture_v2", stream, mode);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  std::lock_guard<std::mutex> lock(captures_mutex);
  captures.erase(stream);
  return call("cuStreamEndCapture", stream, graph);
}
cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t stream,
    cudaStreamCaptureStatus* status,
    unsigned long long* id,
    cudaGraph_t*,
    const cudaGraphNode_t**,
    const cudaGraphEdgeData**,
    size_t*) {
  std::lock_guard<std::mutex> lock(captures_mutex);
  auto found = captures.find(stream);
  *status = found == captures.end() ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  if (id && found != captures.end()) {
    *id = found->second;
  }
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(stream, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return call("cuGraphInstantiateWithFlags", executable, graph, 0ULL);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return call("cuGraphLaunch", executable, stream);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return call("cuGraphExecDestroy", executable);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call("cuGraphDestroy", graph);
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t) {
  *handle = {};
  return cudaSuccess;
}
}
