/* A pool over a stream of a program's own: blocks by their addresses, two streams, and a limit.
 *
 * The driver is loaded when the program runs, so that this is built without its headers. A program includes <cuda.h> and links with
 * -lcuda instead.
 */

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binpool.h"

enum { BYTES = 3 << 20 };

static void check(bool holds, const char *what, int line) {
  if (!holds) {
    fprintf(stderr, "line %d: %s: %s\n", line, what, binpool_last_error_message());
    exit(1);
  }
}
#define CHECK(condition) check((condition), #condition, __LINE__)
#define OK(call) CHECK((call) == BINPOOL_STATUS_OK)
#define CU(call) CHECK((call) == 0)

typedef void *handle;

static struct {
  int (*Init)(unsigned);
  int (*DeviceGet)(int *, int);
  int (*DevicePrimaryCtxRetain)(handle *, int);
  int (*DevicePrimaryCtxRelease_v2)(int);
  int (*CtxSetCurrent)(handle);
  int (*StreamCreate)(handle *, unsigned);
  int (*StreamSynchronize)(handle);
  int (*StreamDestroy_v2)(handle);
  int (*MemsetD8Async)(uint64_t, unsigned char, size_t, handle);
  int (*MemcpyDtoHAsync_v2)(void *, uint64_t, size_t, handle);
} cu;

static void load_call(void *library, const char *name, void *call) {
  *(void **)call = dlsym(library, name);
  CHECK(*(void **)call != NULL);
}

static void load_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  CHECK(library != NULL);
#define LOAD(name) load_call(library, "cu" #name, (void *)&cu.name)
  LOAD(Init);
  LOAD(DeviceGet);
  LOAD(DevicePrimaryCtxRetain);
  LOAD(DevicePrimaryCtxRelease_v2);
  LOAD(CtxSetCurrent);
  LOAD(StreamCreate);
  LOAD(StreamSynchronize);
  LOAD(StreamDestroy_v2);
  LOAD(MemsetD8Async);
  LOAD(MemcpyDtoHAsync_v2);
#undef LOAD
}

/* Reads a block on a stream, and checks that all of it is `value`. */
static void expect(handle stream, const binpool_block *block, unsigned char value) {
  static unsigned char bytes[BYTES];
  uint64_t address = 0;
  OK(binpool_block_device_ptr(block, &address));
  CU(cu.MemcpyDtoHAsync_v2(bytes, address, BYTES, stream));
  CU(cu.StreamSynchronize(stream));
  for (size_t i = 0; i < BYTES; i++) CHECK(bytes[i] == value);
}

int main(void) {
  load_driver();
  CU(cu.Init(0));
  int device = 0;
  handle context = NULL, first = NULL, second = NULL;
  CU(cu.DeviceGet(&device, 0));
  CU(cu.DevicePrimaryCtxRetain(&context, device));
  CU(cu.CtxSetCurrent(context));
  CU(cu.StreamCreate(&first, 1));
  CU(cu.StreamCreate(&second, 1));

  binpool_options options = {.struct_size = sizeof options, .limit_bytes = 64 << 20};
  binpool_pool *pool = NULL;
  OK(binpool_pool_new_cuda(0, first, &options, &pool));

  for (unsigned char round = 1; round <= 10; round++) {
    binpool_block *block = NULL, *other = NULL;
    uint64_t address = 0, other_address = 0;
    OK(binpool_allocate(pool, BYTES, &block));
    OK(binpool_allocate_on(pool, second, BYTES, &other));
    OK(binpool_block_device_ptr(block, &address));
    OK(binpool_block_device_ptr(other, &other_address));
    CHECK(address != other_address);
    CU(cu.MemsetD8Async(address, round, BYTES, first));
    CU(cu.MemsetD8Async(other_address, (unsigned char)(100 + round), BYTES, second));

    /* The second stream waits, on the device, for what the first one does with the block. */
    OK(binpool_block_order_before(block, second));
    expect(second, block, round);
    expect(second, other, (unsigned char)(100 + round));
    OK(binpool_block_free(block));
    OK(binpool_block_free(other));
  }
  binpool_statistics now;
  OK(binpool_pool_statistics(pool, &now, sizeof now));
  CHECK(now.active_blocks == 0 && now.hits > 0 && now.managed_bytes <= options.limit_bytes);

  uint64_t released = 0;
  OK(binpool_pool_trim(pool, 0, &released));
  CHECK(released == now.managed_bytes);

  binpool_block *large = NULL;
  CHECK(binpool_allocate(pool, 100 << 20, &large) == BINPOOL_STATUS_OUT_OF_MEMORY);
  CHECK(strstr(binpool_last_error_message(), "out of memory: could not allocate 100.0 MiB") != NULL);

  /* Streams outlive their pool. */
  OK(binpool_pool_free(pool));
  CU(cu.StreamDestroy_v2(first));
  CU(cu.StreamDestroy_v2(second));
  CU(cu.DevicePrimaryCtxRelease_v2(device));
  return 0;
}
