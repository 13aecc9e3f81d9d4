/* A pool over a program's own OpenCL context: blocks in its own commands, two queues, a limit, and a recording. */

#include <stdbool.h>
#include <string.h>

#include "binpool.h"
#include "opencl_calls.h"

enum { COUNT = 100000 };

static void check(bool holds, const char *what, int line) {
  if (!holds) {
    fprintf(stderr, "line %d: %s: %s\n", line, what, binpool_last_error_message());
    exit(1);
  }
}
#define CHECK(condition) check((condition), #condition, __LINE__)
#define OK(call) CHECK((call) == BINPOOL_STATUS_OK)
#define CL(call) CHECK((call) == CL_SUCCESS)

static cl_handle create_queue(cl_handle context, cl_handle device) {
  cl_int code = CL_SUCCESS;
  cl_handle queue = cl.CreateCommandQueue(context, device, 0, &code);
  CL(code);
  return queue;
}

/* Fills a block by a command of the program's own. */
static void fill(cl_handle queue, const binpool_block *block, uint32_t value) {
  void *memory = NULL;
  size_t offset = 0;
  OK(binpool_block_cl_mem(block, &memory, &offset));
  CL(cl.EnqueueFillBuffer(queue, memory, &value, sizeof value, offset, binpool_block_size(block), 0, NULL, NULL));
}

/* Reads a block on a queue, and checks that all of it is `value`. */
static void expect(cl_handle queue, const binpool_block *block, uint32_t value) {
  static uint32_t words[COUNT];
  void *memory = NULL;
  size_t offset = 0;
  OK(binpool_block_cl_mem(block, &memory, &offset));
  CL(cl.EnqueueReadBuffer(queue, memory, CL_TRUE, offset, sizeof words, words, 0, NULL, NULL));
  for (size_t i = 0; i < COUNT; i++) CHECK(words[i] == value);
}

static cl_handle build(cl_handle context, cl_handle device, cl_handle *program) {
  const char *source = "kernel void add(global uint *to, uint more) { to[get_global_id(0)] += more; }";
  cl_int code = CL_SUCCESS;
  *program = cl.CreateProgramWithSource(context, 1, &source, NULL, &code);
  CL(code);
  CL(cl.BuildProgram(*program, 1, &device, "", NULL, NULL));
  cl_handle kernel = cl.CreateKernel(*program, "add", &code);
  CL(code);
  return kernel;
}

int main(int argc, char **argv) {
  load_opencl();
  cl_handle device = NULL, context = NULL, program = NULL;
  open_device(&device, &context);
  cl_handle upload = create_queue(context, device), compute = create_queue(context, device);
  cl_handle add = build(context, device, &program);

  binpool_options options = {.struct_size = sizeof options, .limit_bytes = 64 << 20};
  binpool_pool *pool = NULL;
  OK(binpool_pool_new_opencl(context, device, upload, &options, &pool));
  binpool_recording *recording = NULL;
  if (argc > 1) OK(binpool_pool_record(pool, argv[1], &recording));

  /* Two blocks of one buffer, so that the second one has an offset there. */
  binpool_block *first = NULL, *second = NULL;
  OK(binpool_allocate(pool, COUNT * sizeof(uint32_t), &first));
  OK(binpool_allocate(pool, COUNT * sizeof(uint32_t), &second));
  fill(upload, first, 1);
  fill(upload, second, 2);

  /* A kernel gets an object that begins where the block does. */
  void *argument = NULL;
  uint32_t more = 40;
  size_t items = COUNT;
  OK(binpool_block_cl_kernel_argument(second, &argument));
  CL(cl.SetKernelArg(add, 0, sizeof argument, &argument));
  CL(cl.SetKernelArg(add, 1, sizeof more, &more));
  CL(cl.EnqueueNDRangeKernel(upload, add, 1, NULL, &items, NULL, 0, NULL, NULL));

  /* Another queue: its commands come after those of the block's own, by a wait on the device. */
  OK(binpool_block_order_before(first, compute));
  OK(binpool_block_order_before(second, compute));
  expect(compute, first, 1);
  expect(compute, second, 42);

  /* Enqueue, then free: the next user on the queue gets the memory, behind these commands. */
  OK(binpool_block_free(second));
  OK(binpool_block_free(first));
  CL(cl.Finish(compute));
  OK(binpool_allocate(pool, COUNT * sizeof(uint32_t), &first));
  fill(upload, first, 7);
  expect(upload, first, 7);
  binpool_statistics now;
  OK(binpool_pool_statistics(pool, &now, sizeof now));
  CHECK(now.active_blocks == 1 && now.active_bytes == COUNT * sizeof(uint32_t));
  CHECK(now.managed_bytes <= options.limit_bytes && now.hits >= 1);

  /* What does not fit has a report for its message. */
  CHECK(binpool_allocate(pool, 100 << 20, &second) == BINPOOL_STATUS_OUT_OF_MEMORY);
  CHECK(strstr(binpool_last_error_message(), "out of memory: could not allocate 100.0 MiB") != NULL);

  char *report = NULL;
  OK(binpool_pool_report(pool, &report));
  printf("%s\n", report);
  binpool_string_free(report);

  if (recording) {
    binpool_recording_summary summary;
    OK(binpool_recording_finish(recording, &summary));
    CHECK(summary.allocations == 3 && summary.frees == 2 && summary.shortages == 1);
  }
  OK(binpool_pool_free(pool));
  OK(binpool_block_free(first)); /* The pool may go first. */
  cl.ReleaseKernel(add);
  cl.ReleaseProgram(program);
  cl.ReleaseCommandQueue(upload);
  cl.ReleaseCommandQueue(compute);
  cl.ReleaseContext(context);
  return 0;
}
