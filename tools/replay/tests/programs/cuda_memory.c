// CUDA's memory: kinds, orders, and what programs ask about it.
#include "cuda.h"

CASE(plain_memory, TOGETHER, "memory of many sizes comes and goes, freed in another order") {
  struct rig rig = up();
  CUdeviceptr addresses[200];
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 200; i++) addresses[i] = allocate(1 + 1000 * i);
    for (int i = 0; i < 200; i += 50) fill(rig.stream, addresses[i], i, 1 + 1000 * i);
    for (int i = 0; i < 200; i += 50) say("%d", reads(rig.stream, addresses[i], i, 1 + 1000 * i));
    for (int i = 0; i < 200; i++) must(!cuMemFree_v2(addresses[i * 77 % 200]));
  }
  say("\n");
  down(rig);
}

CASE(free_with_work_pending, TOGETHER, "memory is freed by cuMemFree and cuMemFreeAsync while commands that use it are held up") {
  struct rig rig = up();
  CUdeviceptr kept = allocate_on(rig.stream, 4096);
  for (int i = 0; i < 5; i++) {
    CUdeviceptr address = allocate_on(rig.stream, 4096);
    struct gate gate = close_gate(rig.stream);
    fill(rig.stream, address, 10 + i, 4096);
    must(!cuMemcpyDtoDAsync_v2(kept, address, 4096, rig.stream) && !cuMemFreeAsync(address, rig.stream));
    CUdeviceptr next = allocate_on(rig.stream, 4096);
    fill(rig.stream, next, 99, 4096);
    open_gate(gate);
    say("%d", reads(rig.stream, kept, 10 + i, 4096));
    must(!cuMemFree_v2(next));
  }
  say("\n");
  must(!cuMemFree_v2(kept));
  down(rig);
}

CASE(freed_on_another_stream, TOGETHER, "memory is allocated on one stream and freed on another, in an order by events") {
  struct rig rig = up();
  CUstream other = new_stream();
  CUevent event;
  must(!cuEventCreate(&event, 2));
  for (int i = 0; i < 20; i++) {
    CUdeviceptr address = allocate_on(rig.stream, 4096 * (1 + i % 3));
    fill(rig.stream, address, i, 4096);
    must(!cuEventRecord(event, rig.stream) && !cuStreamWaitEvent(other, event, 0));
    say("%d", reads(other, address, i, 4096));
    must(!cuMemFreeAsync(address, other));
  }
  say("\n");
  must(!cuEventDestroy_v2(event));
  synchronize(other);
  must(!cuStreamDestroy_v2(other));
  down(rig);
}

CASE(default_streams, TOGETHER, "memory on the default stream, that of the thread, and that of another thread") {
  struct rig rig = up();
  const CUstream streams[] = {NULL, (CUstream)1, (CUstream)2};
  for (int i = 0; i < 9; i++) say("%d %d ", use(streams[i % 3], 4096, i), use_plain(streams[i / 3], 4096, i));
  say("\n");
  down(rig);
}

CASE(ranges, TOGETHER, "what the driver says of addresses in memory, at its end, behind it, and after it was freed") {
  struct rig rig = up();
  const int attributes[] = {11, 12};
  for (int i = 0; i < 4; i++) {
    size_t bytes = 1000 + 1000 * i, told = 0;
    CUdeviceptr address = i % 2 ? allocate(bytes) : allocate_on(rig.stream, bytes), start = 0, by_attribute = 0, by_both = 0;
    CUresult first = cuMemGetAddressRange_v2(&start, &told, address + 500);
    say("%d %d %zu ", first, start == address, told);
    first = cuMemGetAddressRange_v2(&start, NULL, address + bytes - 1);
    say("%d ", first);
    first = cuPointerGetAttribute(&by_attribute, 11, address + 1);
    say("%d %d ", first, by_attribute == address);
    size_t length = 0;
    void *places[] = {&by_both, &length};
    first = cuPointerGetAttributes(2, attributes, places, address + 2);
    say("%d %d %zu ", first, by_both == address, length);
    synchronize(rig.stream);
    must(!cuMemFree_v2(address));
    say("%d\n", cuMemGetAddressRange_v2(&start, &told, 16));
  }
  down(rig);
}

CASE(wrong_frees, TOGETHER, "null is freed, nothing is allocated, and memory that is none is freed") {
  struct rig rig = up();
  CUdeviceptr address = 5;
  say("%d ", cuMemFree_v2(0) != 0);
  say("%d ", cuMemAlloc_v2(&address, 0) != 0);
  say("%d ", cuMemAllocAsync(&address, 0, rig.stream) != 0);
  say("%d ", cuMemAlloc_v2(&address, SIZE_MAX / 2) != 0);
  say("%d ", cuMemFree_v2(12345) != 0);
  say("%d ", cuMemFreeAsync(12345, rig.stream) != 0);
  say("%d\n", use(rig.stream, 4096, 1));
  down(rig);
}

CASE(no_memory_left, ALONE, "memory until there is none, by each function, and again once it is freed") {
  struct rig rig = up();
  CUdeviceptr addresses[100];
  for (int round = 0; round < 3; round++) {
    CUresult status = 0;
    int count = 0;
    while (count < 100) {
      status = count % 2 ? cuMemAlloc_v2(&addresses[count], 100 * MIB) : cuMemAllocAsync(&addresses[count], 100 * MIB, rig.stream);
      if (status) break;
      count++;
    }
    say("%d after %d\n", status, count);
    for (int i = 0; i < count; i++) must(!cuMemFreeAsync(addresses[i], rig.stream));
    synchronize(rig.stream);
  }
  say("%d\n", use(rig.stream, 4096, 1));
  down(rig);
}

CASE(other_kinds, TOGETHER, "managed and pinned memory, of several sizes, used by commands") {
  struct rig rig = up();
  for (int i = 0; i < 5; i++) {
    CUdeviceptr managed;
    unsigned char *pinned;
    must(!cuMemAllocManaged(&managed, 4096 << i, 1) && !cuMemHostAlloc((void **)&pinned, 4096, 1));
    fill(rig.stream, managed, 70 + i, 4096);
    must(!cuMemcpyDtoHAsync_v2(pinned, managed, 4096, rig.stream));
    synchronize(rig.stream);
    say("%d", pinned[4095] == 70 + i);
    must(!cuMemFree_v2(managed) && !cuMemFreeHost(pinned));
  }
  say("\n");
  down(rig);
}

CASE(pools_of_the_program, TOGETHER, "memory from the device's pool and from pools that the program makes, and trims") {
  struct rig rig = up();
  CUmemoryPool own, of_device;
  must(!cuDeviceGetMemPool(&of_device, 0));
  const struct { int type, handles, where, id; void *security; size_t most; char reserved[56]; } properties = {.type = 1, .where = 1};
  must(!cuMemPoolCreate(&own, &properties));
  for (int i = 0; i < 10; i++) {
    CUdeviceptr address;
    must(!cuMemAllocFromPoolAsync(&address, 4096, i % 2 ? own : of_device, rig.stream));
    fill(rig.stream, address, i, 4096);
    say("%d", reads(rig.stream, address, i, 4096));
    must(!cuMemFreeAsync(address, rig.stream) && !cuMemPoolTrimTo(own, 0) && !cuMemPoolTrimTo(of_device, 0));
  }
  synchronize(rig.stream);
  say(" %d\n", cuMemPoolDestroy(own));
  down(rig);
}

CASE(pages, TOGETHER, "addresses are reserved, pages mapped there, their handles released before, retained again, and unmapped") {
  struct rig rig = up();
  size_t page;
  const struct { int type, handles, where, id; char rest[40]; } properties = {.type = 1, .where = 1};
  must(!cuMemGetAllocationGranularity(&page, &properties, 0));
  for (int i = 0; i < 4; i++) {
    uint64_t pages, again;
    CUdeviceptr address;
    must(!cuMemCreate(&pages, page, &properties, 0) && !cuMemAddressReserve(&address, page, 0, 0, 0) && !cuMemMap(address, page, 0, pages, 0));
    must(!cuMemRelease(pages));
    CUresult status = cuMemRetainAllocationHandle(&again, (void *)address);
    say("%d ", status);
    if (!status) must(!cuMemRelease(again));
    must(!cuMemUnmap(address, page) && !cuMemAddressFree(address, page));
  }
  say("%d\n", use(rig.stream, 4096, 3));
  down(rig);
}

CASE(functions_by_name, TOGETHER, "functions are asked for by name: one is called, and one does not exist") {
  struct rig rig = up();
  CUresult (*by_name)(CUdeviceptr *, size_t, CUstream) = NULL;
  void *none = NULL;
  CUdeviceptr address;
  int status;
  CUresult found = cuGetProcAddress_v2("cuMemAllocAsync", (void **)&by_name, 12000, 0, &status);
  say("%d %d ", found, by_name && !by_name(&address, 4096, rig.stream));
  say("%d ", by_name ? cuMemFreeAsync(address, rig.stream) : 0);
  say("%d\n", cuGetProcAddress_v2("cuNoSuchFunction", &none, 12000, 0, &status) != 0);
  down(rig);
}

CASE(memory_that_is_free, ALONE, "what is free, as the program is told, while memory comes and goes") {
  struct rig rig = up();
  size_t before, now, total, again;
  must(!cuMemGetInfo_v2(&before, &total));
  for (int i = 0; i < 5; i++) {
    CUdeviceptr address = i % 2 ? allocate(64 * MIB) : allocate_on(rig.stream, 64 * MIB);
    must(!cuMemGetInfo_v2(&now, &again));
    say("%d %d ", total == again, before - now >= 64u * MIB);
    must(!cuMemFreeAsync(address, rig.stream));
    synchronize(rig.stream);
    must(!cuMemGetInfo_v2(&now, &again));
    say("%d\n", now <= total && total == again);
  }
  down(rig);
}
