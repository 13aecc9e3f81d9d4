// What the cases of CUDA share: the functions of the driver that they call, and a context that is current.
#pragma once
#include "case.h"

typedef int CUresult;
typedef int CUdevice;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct graph *CUgraph;
typedef struct executable *CUgraphExec;
typedef struct pool *CUmemoryPool;
typedef uint64_t CUdeviceptr;

// The stand-in for the driver has no header.
#define FUNCTIONS(F)                                                                                                             \
  F(cuInit, unsigned)                                                                                                            \
  F(cuDeviceGet, CUdevice *, int)                                                                                                \
  F(cuDeviceGetCount, int *)                                                                                                     \
  F(cuDeviceTotalMem_v2, size_t *, CUdevice)                                                                                     \
  F(cuDeviceCanAccessPeer, int *, CUdevice, CUdevice)                                                                            \
  F(cuDeviceGetMemPool, CUmemoryPool *, CUdevice)                                                                                \
  F(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)                                                                             \
  F(cuDevicePrimaryCtxRelease_v2, CUdevice)                                                                                      \
  F(cuDevicePrimaryCtxReset_v2, CUdevice)                                                                                        \
  F(cuDevicePrimaryCtxGetState, CUdevice, unsigned *, int *)                                                                     \
  F(cuCtxSetCurrent, CUcontext)                                                                                                  \
  F(cuCtxGetCurrent, CUcontext *)                                                                                                \
  F(cuCtxPushCurrent_v2, CUcontext)                                                                                              \
  F(cuCtxPopCurrent_v2, CUcontext *)                                                                                             \
  F(cuCtxGetDevice, CUdevice *)                                                                                                  \
  F(cuCtxEnablePeerAccess, CUcontext, unsigned)                                                                                  \
  F(cuCtxSynchronize, void)                                                                                                      \
  F(cuMemGetInfo_v2, size_t *, size_t *)                                                                                         \
  F(cuMemAlloc_v2, CUdeviceptr *, size_t)                                                                                        \
  F(cuMemFree_v2, CUdeviceptr)                                                                                                   \
  F(cuMemAllocManaged, CUdeviceptr *, size_t, unsigned)                                                                          \
  F(cuMemHostAlloc, void **, size_t, unsigned)                                                                                   \
  F(cuMemFreeHost, void *)                                                                                                       \
  F(cuMemAllocAsync, CUdeviceptr *, size_t, CUstream)                                                                            \
  F(cuMemFreeAsync, CUdeviceptr, CUstream)                                                                                       \
  F(cuMemPoolCreate, CUmemoryPool *, const void *)                                                                               \
  F(cuMemPoolDestroy, CUmemoryPool)                                                                                              \
  F(cuMemPoolTrimTo, CUmemoryPool, size_t)                                                                                       \
  F(cuMemAllocFromPoolAsync, CUdeviceptr *, size_t, CUmemoryPool, CUstream)                                                      \
  F(cuMemGetAddressRange_v2, CUdeviceptr *, size_t *, CUdeviceptr)                                                               \
  F(cuPointerGetAttribute, void *, int, CUdeviceptr)                                                                             \
  F(cuPointerGetAttributes, unsigned, const int *, void **, CUdeviceptr)                                                         \
  F(cuMemsetD8Async, CUdeviceptr, unsigned char, size_t, CUstream)                                                               \
  F(cuMemsetD32Async, CUdeviceptr, unsigned, size_t, CUstream)                                                                   \
  F(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, size_t, CUstream)                                                           \
  F(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr, size_t, CUstream)                                                                 \
  F(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, size_t, CUstream)                                                            \
  F(cuMemcpyPeerAsync, CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream)                                         \
  F(cuStreamCreate, CUstream *, unsigned)                                                                                        \
  F(cuStreamDestroy_v2, CUstream)                                                                                                \
  F(cuStreamSynchronize, CUstream)                                                                                               \
  F(cuStreamGetCtx, CUstream, CUcontext *)                                                                                       \
  F(cuStreamWaitEvent, CUstream, CUevent, unsigned)                                                                              \
  F(cuStreamWaitValue32_v2, CUstream, CUdeviceptr, unsigned, unsigned)                                                           \
  F(cuStreamBeginCapture_v2, CUstream, int)                                                                                      \
  F(cuStreamEndCapture, CUstream, CUgraph *)                                                                                     \
  F(cuStreamIsCapturing, CUstream, int *)                                                                                        \
  F(cuThreadExchangeStreamCaptureMode, int *)                                                                                    \
  F(cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph, unsigned long long)                                                     \
  F(cuGraphLaunch, CUgraphExec, CUstream)                                                                                        \
  F(cuGraphExecDestroy, CUgraphExec)                                                                                             \
  F(cuGraphDestroy, CUgraph)                                                                                                     \
  F(cuLaunchHostFunc, CUstream, void (*)(void *), void *)                                                                        \
  F(cuEventCreate, CUevent *, unsigned)                                                                                          \
  F(cuEventDestroy_v2, CUevent)                                                                                                  \
  F(cuEventRecord, CUevent, CUstream)                                                                                            \
  F(cuEventQuery, CUevent)                                                                                                       \
  F(cuEventSynchronize, CUevent)                                                                                                 \
  F(cuMemGetAllocationGranularity, size_t *, const void *, int)                                                                  \
  F(cuMemAddressReserve, CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)                                         \
  F(cuMemAddressFree, CUdeviceptr, size_t)                                                                                       \
  F(cuMemCreate, uint64_t *, size_t, const void *, unsigned long long)                                                           \
  F(cuMemRelease, uint64_t)                                                                                                      \
  F(cuMemRetainAllocationHandle, uint64_t *, void *)                                                                             \
  F(cuMemMap, CUdeviceptr, size_t, size_t, uint64_t, unsigned long long)                                                         \
  F(cuMemUnmap, CUdeviceptr, size_t)                                                                                             \
  F(cuGetProcAddress_v2, const char *, void **, int, uint64_t, int *)
#define DECLARE(NAME, ...) CUresult NAME(__VA_ARGS__);
FUNCTIONS(DECLARE)

enum { DEFAULT = 0, PER_THREAD = 2, MIB = 1 << 20 };

// The context of the first device, retained and current on this thread, and a stream of it.
struct rig {
  CUcontext context;
  CUstream stream;
};
struct rig up(void);
void down(struct rig rig);

CUstream new_stream(void);
CUdeviceptr allocate(size_t bytes);
CUdeviceptr allocate_on(CUstream stream, size_t bytes);
void fill(CUstream stream, CUdeviceptr address, unsigned char value, size_t bytes);
// Whether all bytes have this value.
bool reads(CUstream stream, CUdeviceptr address, unsigned char value, size_t bytes);
// Allocates on a stream, fills, reads and frees. Returns the first error, or 1 if the bytes are wrong.
CUresult use(CUstream stream, size_t bytes, unsigned char value);
// The same by cuMemAlloc.
CUresult use_plain(CUstream stream, size_t bytes, unsigned char value);

// Holds a stream up until it is opened.
struct gate {
  _Atomic unsigned *word;
};
struct gate close_gate(CUstream stream);
void open_gate(struct gate gate);

static inline void synchronize(CUstream stream) { must(!cuStreamSynchronize(stream)); }
