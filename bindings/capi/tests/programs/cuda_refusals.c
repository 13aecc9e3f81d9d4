/* What pools over CUDA refuse, and which thread has the message. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "binpool.h"

static void expect(int line, binpool_status found, binpool_status status, const char *text) {
  if (found != status || !strstr(binpool_last_error_message(), text)) {
    fprintf(stderr, "line %d: %d: %s\n", line, (int)found, binpool_last_error_message());
    exit(1);
  }
}
#define EXPECT(call, status, text) expect(__LINE__, call, BINPOOL_STATUS_##status, text)

static binpool_pool *pool;

/* Allocates on a thread whose context is none. */
static void *elsewhere(void *unused) {
  (void)unused;
  for (int i = 0; i < 1000; i++) {
    binpool_block *block = NULL;
    uint64_t address = 0;
    EXPECT(binpool_allocate(pool, (size_t)(1 + i) << 10, &block), OK, "");
    EXPECT(binpool_block_device_ptr(block, &address), OK, "");
    if (address == 0 || address % 256 != 0) exit(1);
    EXPECT(binpool_block_free(block), OK, "");
  }
  return (void *)(binpool_last_error_message()[0] == '\0' ? &pool : NULL);
}

int main(void) {
  binpool_options options = {.struct_size = sizeof options, .segments = BINPOOL_SEGMENTS_OFF};
  EXPECT(binpool_pool_new_cuda(0, NULL, &options, &pool), UNSUPPORTED, "without segments over pages");
  EXPECT(binpool_pool_new_cuda(0, NULL, NULL, NULL), INVALID_ARGUMENT, "the argument `pool` is null");
  if (pool != NULL) return 1;

  EXPECT(binpool_pool_new_cuda(0, NULL, NULL, &pool), OK, "");
  binpool_block *block = NULL, *nothing = NULL;
  void *memory = NULL;
  size_t offset = 0;
  uint64_t address = 0;
  EXPECT(binpool_allocate_on(pool, NULL, 1000, &block), OK, "");
  EXPECT(binpool_block_cl_mem(block, &memory, &offset), UNSUPPORTED, "use `binpool_block_device_ptr`");
  EXPECT(binpool_block_cl_kernel_argument(block, &memory), UNSUPPORTED, "use `binpool_block_device_ptr`");
  EXPECT(binpool_allocate(pool, 0, &nothing), OK, "");
  EXPECT(binpool_block_device_ptr(nothing, &address), INVALID_ARGUMENT, "a block of 0 bytes has no memory");
  EXPECT(binpool_block_free(nothing), OK, "");

  pthread_t threads[4];
  void *is_silent = NULL;
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, elsewhere, NULL);
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], &is_silent);
    if (!is_silent) return 1;
  }
  EXPECT(binpool_pool_free(pool), OK, "a block of 0 bytes has no memory");
  EXPECT(binpool_block_free(block), OK, "");
  return 0;
}
