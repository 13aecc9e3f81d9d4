// CUDA's streams: destroyed with work, captured, and functions of the host in them.
#include "cuda.h"

CASE(destroyed_with_work, TOGETHER, "streams are destroyed while their commands are held up, and memory of theirs is freed afterwards") {
  struct rig rig = up();
  for (int i = 0; i < 5; i++) {
    CUstream stream = new_stream();
    CUdeviceptr address = allocate_on(stream, 4096);
    CUevent event;
    must(!cuEventCreate(&event, 2));
    struct gate gate = close_gate(stream);
    fill(stream, address, 40 + i, 4096);
    must(!cuEventRecord(event, stream) && !cuStreamDestroy_v2(stream));
    say("%d", cuEventQuery(event));
    open_gate(gate);
    must(!cuEventSynchronize(event));
    say("%d ", reads(rig.stream, address, 40 + i, 4096));
    must(!cuMemFreeAsync(address, rig.stream) && !cuEventDestroy_v2(event) && !use(rig.stream, 4096, 9));
  }
  say("\n");
  down(rig);
}

CASE(freed_and_destroyed, TOGETHER, "memory is freed on a stream that is held up and destroyed, and the size is asked for on another") {
  struct rig rig = up();
  for (int i = 0; i < 5; i++) {
    CUstream stream = new_stream();
    CUdeviceptr address = allocate_on(stream, 4096);
    struct gate gate = close_gate(stream);
    fill(stream, address, 1, 4096);
    must(!cuMemFreeAsync(address, stream) && !cuStreamDestroy_v2(stream));
    CUdeviceptr next = allocate_on(rig.stream, 4096);
    fill(rig.stream, next, 2, 4096);
    synchronize(rig.stream);
    open_gate(gate);
    nap(2000);
    say("%d", reads(rig.stream, next, 2, 4096));
    must(!cuMemFreeAsync(next, rig.stream));
  }
  say("\n");
  down(rig);
}

CASE(many_streams, TOGETHER, "60 streams at the same time, each with memory, and memory of each freed on the next") {
  struct rig rig = up();
  enum { COUNT = 60 };
  CUstream streams[COUNT];
  CUdeviceptr addresses[COUNT];
  for (int i = 0; i < COUNT; i++) {
    streams[i] = new_stream();
    addresses[i] = allocate_on(streams[i], 4096);
    fill(streams[i], addresses[i], i, 4096);
    synchronize(streams[i]);
  }
  int wrong = 0;
  for (int i = 0; i < COUNT; i++) {
    wrong += !reads(streams[(i + 1) % COUNT], addresses[i], i, 4096);
    must(!cuMemFreeAsync(addresses[i], streams[(i + 1) % COUNT]));
  }
  for (int i = 0; i < COUNT; i++) must(!cuStreamDestroy_v2(streams[i]));
  say("wrong: %d\n", wrong);
  down(rig);
}

CASE(captured, ALONE, "a stream is captured, with memory in the capture if the driver allows it, and its graph runs three times") {
  struct rig rig = up();
  CUdeviceptr address = allocate(4096), other = allocate(4096);
  CUgraph graph;
  CUgraphExec executable;
  int is_capturing;
  must(!cuStreamBeginCapture_v2(rig.stream, 2) && !cuStreamIsCapturing(rig.stream, &is_capturing));
  fill(rig.stream, address, 5, 4096);
  must(!cuMemcpyDtoDAsync_v2(other, address, 4096, rig.stream) && !cuStreamEndCapture(rig.stream, &graph));
  say("%d ", is_capturing);
  must(!cuGraphInstantiateWithFlags(&executable, graph, 0) && !cuGraphDestroy(graph));
  for (int i = 0; i < 3; i++) {
    fill(rig.stream, other, 0, 4096);
    must(!cuGraphLaunch(executable, rig.stream));
    say("%d", reads(rig.stream, other, 5, 4096));
    must(!use(rig.stream, 4096, 7));
  }
  must(!cuGraphExecDestroy(executable) && !cuMemFree_v2(address) && !cuMemFree_v2(other));
  say("\n");
  down(rig);
}

CASE(memory_during_a_capture, ALONE, "memory is allocated and freed, on other streams and by the plain functions, while a stream is captured, in each mode") {
  struct rig rig = up();
  CUstream other = new_stream();
  must(!use(other, 4096, 1) && !use_plain(other, 4096, 1));
  for (int mode = 0; mode < 3; mode++) {
    CUgraph graph = NULL;
    CUdeviceptr address;
    must(!cuStreamBeginCapture_v2(rig.stream, mode));
    CUresult ordered = cuMemAllocAsync(&address, 4096, other);
    if (!ordered) ordered = cuMemFreeAsync(address, other);
    CUresult ended = cuStreamEndCapture(rig.stream, &graph);
    say("%d %d ", ordered, ended);
    if (graph) must(!cuGraphDestroy(graph));
  }
  int old = 2;
  must(!cuThreadExchangeStreamCaptureMode(&old));
  say("%d\n", use(rig.stream, 4096, 2));
  down(rig);
}

struct called {
  struct gate gate;
  atomic_int count;
};
static void function_of_the_host(void *place) {
  struct called *called = place;
  // It must not call the driver.
  free(malloc(1000));
  called->count++;
}
CASE(functions_of_the_host, TOGETHER, "functions of the host run between commands on memory that comes and goes") {
  struct rig rig = up();
  struct called called = {0};
  for (int i = 0; i < 20; i++) {
    CUdeviceptr address = allocate_on(rig.stream, 4096);
    fill(rig.stream, address, i, 4096);
    must(!cuLaunchHostFunc(rig.stream, function_of_the_host, &called) && !cuMemFreeAsync(address, rig.stream));
  }
  synchronize(rig.stream);
  say("%d\n", called.count);
  down(rig);
}

CASE(events_across_streams, TOGETHER, "events that are recorded again and destroyed before what waits for them has run") {
  struct rig rig = up();
  CUstream other = new_stream();
  CUcontext of_stream;
  must(!cuStreamGetCtx(other, &of_stream));
  say("%d ", of_stream == rig.context);
  CUdeviceptr address = allocate_on(rig.stream, 4096);
  for (int i = 0; i < 10; i++) {
    CUevent event;
    must(!cuEventCreate(&event, 2));
    struct gate gate = close_gate(rig.stream);
    fill(rig.stream, address, i, 4096);
    must(!cuEventRecord(event, rig.stream) && !cuStreamWaitEvent(other, event, 0) && !cuEventDestroy_v2(event));
    must(!cuMemsetD32Async(address, 0x01010101 * (i + 1), 1024, other));
    open_gate(gate);
    synchronize(rig.stream);
    say("%d", reads(other, address, i + 1, 4096));
  }
  say("\n");
  must(!cuMemFreeAsync(address, other) && !cuCtxSynchronize() && !cuStreamDestroy_v2(other));
  down(rig);
}
