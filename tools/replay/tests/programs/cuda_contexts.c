// CUDA's contexts: those that are not current, retained often, reset, and of two devices.
#include "cuda.h"

CASE(no_context_is_current, TOGETHER, "calls without a current context, and after it is gone") {
  must(!cuInit(0) && !cuCtxSetCurrent(NULL));
  CUdeviceptr address;
  CUcontext current;
  size_t free, total;
  say("%d %d ", cuMemAlloc_v2(&address, 4096), cuMemAllocAsync(&address, 4096, NULL));
  say("%d %d ", cuMemGetInfo_v2(&free, &total), cuCtxSynchronize());
  must(!cuCtxGetCurrent(&current));
  say("%d\n", current == NULL);
  struct rig rig = up();
  say("%d\n", use(rig.stream, 4096, 1));
  down(rig);
}

CASE(pushed_and_popped, TOGETHER, "contexts are pushed and popped, and memory is freed while another is current") {
  struct rig rig = up();
  CUcontext other, popped;
  must(!cuDevicePrimaryCtxRetain(&other, 1));
  CUdeviceptr address = allocate(4096);
  must(!cuCtxPushCurrent_v2(other));
  CUdeviceptr there = allocate(8192);
  CUdevice device;
  must(!cuCtxGetDevice(&device));
  say("%d ", device);
  must(!cuCtxPopCurrent_v2(&popped));
  say("%d ", popped == other);
  must(!cuCtxPushCurrent_v2(other) && !cuMemFree_v2(there) && !cuCtxPopCurrent_v2(&popped) && !cuMemFree_v2(address));
  must(!cuDevicePrimaryCtxRelease_v2(1));
  say("%d\n", use(rig.stream, 4096, 1));
  down(rig);
}

static void *uses_its_own(void *place) {
  struct rig *rig = place;
  CUdeviceptr address;
  CUresult without = cuMemAlloc_v2(&address, 4096);
  must(!cuCtxSetCurrent(rig->context));
  must(!use(rig->stream, 4096, 1) && !use_plain(rig->stream, 4096, 2));
  return (void *)(intptr_t)without;
}
CASE(current_on_threads, TOGETHER, "threads have no current context until they set one") {
  struct rig rig = up();
  for (int i = 0; i < 5; i++) say("%d ", (int)(intptr_t)on_thread(uses_its_own, &rig, 0));
  say("\n");
  down(rig);
}

CASE(retained_often, ALONE, "the primary context is retained and released many times, and used in between") {
  must(!cuInit(0));
  for (int i = 0; i < 20; i++) {
    CUcontext first, second;
    must(!cuDevicePrimaryCtxRetain(&first, 0) && !cuDevicePrimaryCtxRetain(&second, 0) && !cuCtxSetCurrent(first));
    say("%d", first == second);
    CUstream stream = new_stream();
    must(!use(stream, 4096 + i, 1) && !use_plain(stream, 4096, 2) && !cuDevicePrimaryCtxRelease_v2(0));
    must(!use(stream, 4096 + i, 3));
    synchronize(stream);
    must(!cuStreamDestroy_v2(stream) && !cuDevicePrimaryCtxRelease_v2(0));
    unsigned flags;
    int is_active;
    must(!cuDevicePrimaryCtxGetState(0, &flags, &is_active));
    say("%d ", is_active);
  }
  say("\n");
}

CASE(reset, ALONE, "the primary context is reset with memory in it, retained and used again") {
  struct rig rig = up();
  for (int i = 0; i < 4; i++) {
    allocate(MIB);
    must(!use(rig.stream, 4096, 1));
    synchronize(rig.stream);
    must(!cuDevicePrimaryCtxReset_v2(0));
    must(!cuDevicePrimaryCtxRetain(&rig.context, 0) && !cuCtxSetCurrent(rig.context));
    rig.stream = new_stream();
    say("%d %d\n", use(rig.stream, 4096, 2), use_plain(rig.stream, 4096, 2));
  }
}

CASE(peers, TOGETHER, "memory of one device is copied to that of another, before and after each may use the other's") {
  struct rig rig = up();
  CUcontext other;
  int can = 0;
  must(!cuDevicePrimaryCtxRetain(&other, 1) && !cuDeviceCanAccessPeer(&can, 0, 1));
  must(!cuCtxSetCurrent(other));
  CUdeviceptr there = allocate(4096);
  must(!cuCtxSetCurrent(rig.context));
  CUdeviceptr here = allocate(4096);
  for (int i = 0; i < 3; i++) {
    fill(rig.stream, here, 20 + i, 4096);
    must(!cuMemcpyPeerAsync(there, other, here, rig.context, 4096, rig.stream));
    fill(rig.stream, here, 0, 4096);
    must(!cuMemcpyPeerAsync(here, rig.context, there, other, 4096, rig.stream));
    say("%d", reads(rig.stream, here, 20 + i, 4096));
  }
  // By now it may be so already, from another case.
  CUresult enabled = can ? cuCtxEnablePeerAccess(other, 0) : 0;
  say(" %d\n", enabled == 0 || enabled == 704);
  must(!cuMemFree_v2(here) && !cuCtxSetCurrent(other) && !cuMemFree_v2(there) && !cuCtxSetCurrent(rig.context) && !cuDevicePrimaryCtxRelease_v2(1));
  say("%d\n", use(rig.stream, 4096, 1));
  down(rig);
}

CASE(devices, TOGETHER, "how many devices there are, and how much memory they have; no such device") {
  must(!cuInit(0));
  int count;
  CUdevice device;
  size_t bytes[2];
  must(!cuDeviceGetCount(&count) && !cuDeviceTotalMem_v2(&bytes[0], 0) && !cuDeviceTotalMem_v2(&bytes[1], 1));
  say("%d %zu %zu %d\n", count, bytes[0], bytes[1], cuDeviceGet(&device, 77) != 0);
  struct rig rig = up();
  must(!use(rig.stream, 64, 1));
  down(rig);
}
