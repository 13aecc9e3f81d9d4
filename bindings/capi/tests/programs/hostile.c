/* Calls that no sound program makes, and those that few make: each has the answer that the header promises, and nothing is left.
 *
 *     hostile opencl|cuda      prints nothing, and ends with 0, where that is so */

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "binpool.h"

#include "../../examples/opencl_calls.h"

static void expect(int line, binpool_status found, binpool_status status, const char *text) {
  if (found != status || !strstr(binpool_last_error_message(), text)) {
    fprintf(stderr, "line %d: %d: %s\n", line, (int)found, binpool_last_error_message());
    exit(1);
  }
}
#define EXPECT(call, status, text) expect(__LINE__, call, BINPOOL_STATUS_##status, text)
#define OK(call) EXPECT(call, OK, "")
#define NULL_(call, name) EXPECT(call, INVALID_ARGUMENT, "the argument `" name "` is null")

static void check(bool holds, const char *what, int line) {
  if (!holds) {
    fprintf(stderr, "line %d: %s\n", line, what);
    exit(1);
  }
}
#define CHECK(condition) check((condition), #condition, __LINE__)

enum { MIB = 1 << 20, THREADS = 24 };

static bool is_cuda;
static cl_handle device, context, queues[2];
/* The second takes no more than 1 MiB. */
static binpool_pool *pool, *small;

static binpool_status open_pool(const binpool_options *options, binpool_pool **made) {
  if (is_cuda) return binpool_pool_new_cuda(0, NULL, options, made);
  return binpool_pool_new_opencl(context, device, queues[0], options, made);
}

/* The queue of a number: of CUDA's default streams, the legacy one by both of its handles, and that of the calling thread. */
static void *queue(int number) {
  if (is_cuda) return (void *)(uintptr_t)(number % 3);
  return queues[number % 2];
}

static binpool_block *block_of(size_t bytes) {
  binpool_block *block = NULL;
  OK(binpool_allocate(pool, bytes, &block));
  return block;
}

static void null_pointers(void) {
  binpool_block *block = block_of(1000), *out = NULL;
  binpool_recording *recording = NULL;
  void *memory = NULL;
  size_t offset = 0;
  uint64_t number = 0;
  char *text = NULL;
  NULL_(open_pool(NULL, NULL), "pool");
  if (!is_cuda) {
    binpool_pool *other = NULL;
    NULL_(binpool_pool_new_opencl(NULL, device, queues[0], NULL, &other), "context");
    NULL_(binpool_pool_new_opencl(context, NULL, queues[0], NULL, &other), "device");
    NULL_(binpool_pool_new_opencl(context, device, NULL, NULL, &other), "queue");
    NULL_(binpool_allocate_on(pool, NULL, 10, &out), "queue");
    NULL_(binpool_pool_retire_queue(pool, NULL), "queue");
    NULL_(binpool_block_record_use(block, NULL), "queue");
    NULL_(binpool_block_order_before(block, NULL), "queue");
    CHECK(other == NULL);
  }
  NULL_(binpool_pool_free(NULL), "pool");
  NULL_(binpool_allocate(NULL, 10, &out), "pool");
  NULL_(binpool_allocate(pool, 10, NULL), "block");
  NULL_(binpool_allocate_on(NULL, queue(0), 10, &out), "pool");
  NULL_(binpool_allocate_on(pool, queue(0), 10, NULL), "block");
  NULL_(binpool_pool_retire_queue(NULL, queue(0)), "pool");
  NULL_(binpool_pool_statistics(NULL, NULL, 0), "pool");
  NULL_(binpool_pool_statistics(pool, NULL, 8), "statistics");
  NULL_(binpool_pool_report(NULL, &text), "pool");
  NULL_(binpool_pool_report(pool, NULL), "report");
  NULL_(binpool_pool_snapshot_json(NULL, &text), "pool");
  NULL_(binpool_pool_snapshot_json(pool, NULL), "json");
  NULL_(binpool_pool_limit(NULL, &number), "pool");
  NULL_(binpool_pool_limit(pool, NULL), "bytes");
  NULL_(binpool_pool_set_limit(NULL, 1), "pool");
  NULL_(binpool_pool_trim(NULL, 0, &number), "pool");
  NULL_(binpool_pool_watch(NULL, 0), "pool");
  NULL_(binpool_pool_stop_watching(NULL), "pool");
  NULL_(binpool_pool_record(NULL, "x", &recording), "pool");
  NULL_(binpool_pool_record(pool, NULL, &recording), "path");
  NULL_(binpool_pool_record(pool, "/nowhere/x", NULL), "recording");
  NULL_(binpool_recording_finish(NULL, NULL), "recording");
  NULL_(binpool_tag_enter(NULL), "name");
  NULL_(binpool_block_free(NULL), "block");
  NULL_(binpool_block_cl_mem(NULL, &memory, &offset), "block");
  NULL_(binpool_block_cl_mem(block, NULL, &offset), "memory");
  NULL_(binpool_block_cl_mem(block, &memory, NULL), "offset");
  NULL_(binpool_block_cl_kernel_argument(NULL, &memory), "block");
  NULL_(binpool_block_cl_kernel_argument(block, NULL), "memory");
  NULL_(binpool_block_device_ptr(NULL, &number), "block");
  NULL_(binpool_block_device_ptr(block, NULL), "address");
  NULL_(binpool_block_host_ptr(NULL, &memory), "block");
  NULL_(binpool_block_host_ptr(block, NULL), "address");
  NULL_(binpool_block_wait(NULL), "block");
  NULL_(binpool_block_record_use(NULL, queue(1)), "block");
  NULL_(binpool_block_order_before(NULL, queue(1)), "block");
  CHECK(binpool_block_size(NULL) == 0 && binpool_block_class_size(NULL) == 0);
  binpool_string_free(NULL);
  CHECK(out == NULL && memory == NULL && offset == 0 && number == 0 && text == NULL && recording == NULL);
  OK(binpool_block_free(block));
}

/* Structs of all sizes, each in memory of its own, behind which the address sanitizer looks. */
static void struct_sizes(void) {
  for (size_t size = sizeof(size_t); size < 100; size++) {
    for (int is_set = 0; is_set < 2; is_set++) {
      char *bytes = calloc(1, size);
      memcpy(bytes, &size, sizeof size);
      bytes[size - 1] |= is_set && size > sizeof(binpool_options);
      binpool_pool *made = NULL;
      binpool_status status = open_pool((const binpool_options *)(void *)bytes, &made);
      if (size < 16)
        EXPECT(status, INVALID_ARGUMENT, "`struct_size` is");
      else if (bytes[size - 1] && size > sizeof(binpool_options))
        EXPECT(status, UNSUPPORTED, "a field of `binpool_options`");
      else
        OK(status);
      CHECK((made != NULL) == (status == BINPOOL_STATUS_OK));
      if (made) OK(binpool_pool_free(made));
      free(bytes);
    }
  }
  for (size_t size = 0; size < 400; size++) {
    unsigned char *bytes = malloc(size + 1);
    memset(bytes, 0xAB, size + 1);
    OK(binpool_pool_statistics(pool, (binpool_statistics *)(void *)bytes, size));
    CHECK(bytes[size] == 0xAB);
    for (size_t at = sizeof(binpool_statistics); at < size; at++) CHECK(bytes[at] == 0);
    free(bytes);
  }
  uint32_t wrong[] = {3, 5, 99, UINT32_MAX};
  for (int i = 0; i < 4; i++) {
    binpool_pool *made = NULL;
    binpool_options options = {.struct_size = sizeof options, .segments = wrong[i]};
    EXPECT(open_pool(&options, &made), INVALID_ARGUMENT, "`segments` is");
    options = (binpool_options){.struct_size = sizeof options, .reuse = i == 0 ? 7 : wrong[i]};
    EXPECT(open_pool(&options, &made), INVALID_ARGUMENT, "`reuse` is");
    CHECK(made == NULL);
  }
}

static void sizes(void) {
  size_t all[] = {0, 1, 255, 256, 4095, 4097, MIB, 40 * MIB, 1 << 30, SIZE_MAX / 2, SIZE_MAX / 2 + 1, SIZE_MAX - 4096, SIZE_MAX - 1, SIZE_MAX};
  uint64_t limits[] = {64 * MIB, 1, UINT64_MAX - 1};
  for (int of = 0; of < 3; of++) {
    OK(binpool_pool_trim(pool, 0, NULL));
    OK(binpool_pool_set_limit(pool, limits[of]));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
      if (of == 2 && all[i] > 40 * MIB && all[i] <= 1 << 30) continue; /* Not on a device of whatever size. */
      for (int on = 0; on < 2; on++) {
        binpool_block *block = NULL;
        binpool_status status =
            on ? binpool_allocate_on(pool, queue(i), all[i], &block) : binpool_allocate(pool, all[i], &block);
        bool fits = all[i] == 0 || (of != 1 && all[i] <= 40 * MIB);
        if (fits) {
          OK(status);
          CHECK(binpool_block_size(block) == all[i] && binpool_block_class_size(block) >= all[i]);
          OK(binpool_block_free(block));
        } else {
          EXPECT(status, OUT_OF_MEMORY, "out of memory");
          CHECK(block == NULL);
        }
      }
    }
  }
  uint64_t limit = 1;
  OK(binpool_pool_set_limit(pool, 0));
  OK(binpool_pool_limit(pool, &limit));
  CHECK(limit == 0);
  OK(binpool_pool_trim(pool, UINT64_MAX, NULL));
}

static void order(void) {
  EXPECT(binpool_tag_leave(), INVALID_ARGUMENT, "this thread has no tag");
  OK(binpool_pool_stop_watching(pool));
  for (int i = 0; i < 10000; i++) OK(binpool_tag_enter(i % 2 ? "" : "\xff\n\""));
  OK(binpool_pool_watch(pool, 1));
  OK(binpool_pool_watch(pool, 0));
  binpool_block *block = block_of(5000);
  char *text = NULL;
  OK(binpool_pool_report(pool, &text));
  binpool_string_free(text);
  OK(binpool_pool_snapshot_json(pool, &text));
  binpool_string_free(text);
  for (int i = 0; i < 3; i++) {
    OK(binpool_pool_retire_queue(pool, queue(1)));
    OK(binpool_block_record_use(block, queue(i)));
    OK(binpool_block_order_before(block, queue(i)));
  }
  OK(binpool_block_free(block));
  OK(binpool_pool_stop_watching(pool));
  OK(binpool_pool_stop_watching(pool));
  for (int i = 0; i < 10000; i++) OK(binpool_tag_leave());
  EXPECT(binpool_tag_leave(), INVALID_ARGUMENT, "this thread has no tag");

  /* The pool first, and its blocks after it, of which one was used on another queue. */
  binpool_pool *other = NULL;
  OK(open_pool(NULL, &other));
  binpool_block *blocks[3] = {NULL, NULL, NULL};
  for (int i = 0; i < 3; i++) OK(binpool_allocate_on(other, queue(i), 1000 << i, &blocks[i]));
  binpool_recording *recording = NULL;
  OK(binpool_pool_record(other, "/dev/null", &recording));
  OK(binpool_pool_free(other));
  OK(binpool_block_record_use(blocks[0], queue(1)));
  CHECK(binpool_block_size(blocks[2]) == 4000);
  for (int i = 0; i < 3; i++) OK(binpool_block_free(blocks[i]));
  OK(binpool_recording_finish(recording, NULL));

  if (is_cuda) {
    EXPECT(binpool_pool_new_cuda(UINT32_MAX, NULL, NULL, &other), BACKEND, "");
  } else {
    binpool_pool *same = NULL; /* Another device's handle is looked up, not followed. */
    EXPECT(binpool_pool_new_opencl(context, context, queues[0], NULL, &same), INVALID_ARGUMENT, "");
  }
}

static void recordings(void) {
  binpool_recording *recording = NULL, *second = NULL;
  binpool_recording_summary summary = {0, 0, 0};
  static char longest[70000];
  memset(longest, 'x', sizeof longest - 1);
  longest[0] = '/';
  const char *refused[] = {"", "/", "/nowhere/x", "/dev/null/x", longest};
  for (int i = 0; i < 5; i++) EXPECT(binpool_pool_record(pool, refused[i], &recording), IO, "cannot be written");
  EXPECT(binpool_pool_record(pool, "\xff", &recording), INVALID_ARGUMENT, "not UTF-8");
  CHECK(recording == NULL);

  OK(binpool_pool_record(pool, "/dev/full", &recording));
  EXPECT(binpool_pool_record(pool, "/dev/null", &second), BUSY, "");
  OK(binpool_block_free(block_of(100)));
  EXPECT(binpool_recording_finish(recording, &summary), IO, "/dev/full cannot be written: No space left on device");
  CHECK(second == NULL && summary.allocations == 0);

  int ends[2];
  char path[64], start[10] = "";
  CHECK(pipe(ends) == 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
  OK(binpool_pool_record(pool, path, &recording));
  OK(binpool_block_free(block_of(100)));
  OK(binpool_recording_finish(recording, &summary));
  CHECK(summary.allocations == 1 && summary.frees == 1);
  CHECK(read(ends[0], start, 9) == 9 && strcmp(start, "h version") == 0);
  close(ends[0]);
  close(ends[1]);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static binpool_block *left[THREADS];

/* Leaves a block to the next thread, and frees that of the one before. */
static void *come_and_go(void *number) {
  int own = (int)(uintptr_t)number;
  binpool_block *blocks[20];
  for (int i = 0; i < 20; i++) OK(binpool_allocate_on(pool, queue(own + i), (size_t)(own + 1) << (i % 12), &blocks[i]));
  for (int i = 0; i < 20; i++) {
    if (i % 3 == 0) OK(binpool_block_record_use(blocks[i], queue(i + 1)));
    if (i == 7) EXPECT(binpool_allocate(pool, SIZE_MAX, &blocks[i]), OUT_OF_MEMORY, "out of memory");
    pthread_mutex_lock(&lock);
    binpool_block *others = left[i];
    left[i] = blocks[i];
    pthread_mutex_unlock(&lock);
    if (others) OK(binpool_block_free(others));
  }
  if (own % 4 == 0) OK(binpool_pool_trim(pool, 0, NULL));
  return NULL;
}

static pthread_key_t key;

/* The last calls of a thread, or its first ones. */
static void at_the_end(void *rounds) {
  binpool_block *block = NULL;
  OK(binpool_allocate_on(pool, queue(2), 3000, &block));
  EXPECT(binpool_tag_leave(), INVALID_ARGUMENT, "");
  OK(binpool_block_free(block));
  EXPECT(binpool_allocate_on(small, queue(2), 4 * MIB, &block), OUT_OF_MEMORY, "");
  uintptr_t rest = (uintptr_t)rounds - 1;
  if (rest > 0) pthread_setspecific(key, (void *)rest);
}

static void *ends_with_calls(void *number) {
  if ((uintptr_t)number % 2) OK(binpool_block_free(block_of(3000)));
  pthread_setspecific(key, (void *)(uintptr_t)3);
  return NULL;
}

static void threads(void) {
  void *(*bodies[])(void *) = {come_and_go, ends_with_calls};
  for (int round = 0; round < 4; round++) {
    for (int body = 0; body < 2; body++) {
      pthread_t all[THREADS];
      for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&all[i], NULL, bodies[body], (void *)(uintptr_t)i) == 0);
      for (int i = 0; i < THREADS; i++) CHECK(pthread_join(all[i], NULL) == 0);
    }
  }
  for (int i = 0; i < THREADS; i++)
    if (left[i]) OK(binpool_block_free(left[i]));
}

/* What threads that come and go free serves the next ones. */
static void *use_some(void *unused) {
  (void)unused;
  binpool_block *blocks[8];
  for (int i = 0; i < 8; i++) OK(binpool_allocate_on(pool, queue(2), MIB, &blocks[i]));
  for (int i = 0; i < 8; i++) OK(binpool_block_free(blocks[i]));
  return NULL;
}

static uint64_t managed(void) {
  binpool_statistics now;
  OK(binpool_pool_statistics(pool, &now, sizeof now));
  CHECK(now.active_blocks == 0 && now.active_bytes == 0);
  return now.managed_bytes;
}

static void level(void) {
  for (int i = 0; i < 60; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, use_some, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  CHECK(managed() <= 128 * MIB); /* They had 480 MiB, one after another. */
}

int main(int argc, char **argv) {
  is_cuda = argc > 1 && strcmp(argv[1], "cuda") == 0;
  if (!is_cuda) {
    load_opencl();
    open_device(&device, &context);
    for (int i = 0; i < 2; i++) {
      cl_int code = CL_SUCCESS;
      queues[i] = cl.CreateCommandQueue(context, device, 0, &code);
      CHECK(code == CL_SUCCESS);
    }
  }
  CHECK(pthread_key_create(&key, at_the_end) == 0);
  CHECK(strcmp(binpool_last_error_message(), "") == 0);
  OK(open_pool(NULL, &pool));
  binpool_options options = {.struct_size = sizeof options, .limit_bytes = MIB};
  OK(open_pool(&options, &small));
  null_pointers();
  struct_sizes();
  sizes();
  order();
  recordings();
  threads();
  level();
  OK(binpool_pool_trim(pool, 0, NULL));
  CHECK(managed() == 0);
  OK(binpool_pool_free(pool));
  OK(binpool_pool_free(small));
  if (!is_cuda) {
    for (int i = 0; i < 2; i++) cl.ReleaseCommandQueue(queues[i]);
    cl.ReleaseContext(context);
  }
  return 0;
}
