// Pools, blocks, recordings and tags as values of C++.

#include <binpool.hpp>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "../../examples/opencl_calls.h"

static void check(bool holds, const char *what, int line) {
  if (holds) return;
  std::fprintf(stderr, "line %d: %s: %s\n", line, what, binpool_last_error_message());
  std::exit(1);
}
#define CHECK(condition) check(condition, #condition, __LINE__)

static_assert(!std::is_copy_constructible_v<binpool::block> && std::is_nothrow_move_assignable_v<binpool::block>);
static_assert(!std::is_copy_constructible_v<binpool::pool> && std::is_nothrow_move_constructible_v<binpool::pool>);
static_assert(std::is_base_of_v<std::runtime_error, binpool::out_of_memory>);

// Returns the status of the error that `call` throws.
template <class Call>
static binpool_status thrown_by(Call call) {
  try {
    call();
  } catch (const binpool::error &failure) {
    return failure.status();
  }
  return BINPOOL_STATUS_OK;
}

static void run(cl_handle context, cl_handle device, cl_handle queue, cl_handle other) {
  auto pool = binpool::pool::opencl(context, device, queue);
  pool.watch();
  CHECK(pool.limit() == 0);
  pool.set_limit(1 << 20);
  CHECK(pool.limit() == 1 << 20);

  binpool::block outer;
  CHECK(!outer);
  {
    const binpool::tag tag("weights");
    binpool::block block = pool.allocate(1000);
    CHECK(block && block.size() == 1000 && block.class_size() >= 1000);
    CHECK(pool.report().find("weights") != std::string::npos);
    outer = std::move(block);
  }
  CHECK(pool.statistics().active_blocks == 1);
  CHECK(pool.snapshot_json().find("weights") != std::string::npos);
  outer.order_before(other);
  outer.free();
  CHECK(!outer && pool.statistics().active_blocks == 0);
  CHECK(pool.allocate_on(other, 10).cl_kernel_argument() != nullptr);
  CHECK(pool.report().find("weights") == std::string::npos);
  pool.stop_watching();

  binpool_status status = BINPOOL_STATUS_OK;
  CHECK(!pool.allocate(2 << 20, status) && status == BINPOOL_STATUS_OUT_OF_MEMORY);
  CHECK(pool.allocate(100, status) && status == BINPOOL_STATUS_OK);
  CHECK(thrown_by([&] { pool.allocate_on(nullptr, 1); }) == BINPOOL_STATUS_INVALID_ARGUMENT);
  CHECK(thrown_by([&] { pool.allocate(1).device_ptr(); }) == BINPOOL_STATUS_UNSUPPORTED);
  CHECK(thrown_by([&] { pool.allocate(1).host_ptr(); }) == BINPOOL_STATUS_UNSUPPORTED);
  CHECK(thrown_by([&] { pool.record("/nowhere/file"); }) == BINPOOL_STATUS_IO);
  try {
    pool.allocate(2 << 20);
    CHECK(false);
  } catch (const binpool::out_of_memory &shortage) {
    CHECK(std::string(shortage.what()).find("raise the limit") != std::string::npos);
  }

  binpool::recording recording = pool.record("/dev/null");
  pool.allocate(1);
  const auto summary = recording.finish();
  CHECK(summary.allocations == 1 && summary.frees == 1);
  { const binpool::recording ends_by_itself = pool.record("/dev/null"); }
  CHECK(thrown_by([&] { pool.record("/dev/null"); }) == BINPOOL_STATUS_OK);

  pool.retire_queue(other);
  CHECK(pool.trim() > 0 && pool.statistics().managed_bytes == 0);
  outer = pool.allocate(64);
  // Blocks outlive their pool.
  const binpool::pool gone = std::move(pool);
}

int main() {
  load_opencl();
  cl_handle device = nullptr, context = nullptr;
  open_device(&device, &context);
  cl_int code = CL_SUCCESS;
  cl_handle queue = cl.CreateCommandQueue(context, device, 0, &code);
  cl_handle other = cl.CreateCommandQueue(context, device, 0, &code);
  CHECK(code == CL_SUCCESS);
  run(context, device, queue, other);
  cl.ReleaseCommandQueue(other);
  cl.ReleaseCommandQueue(queue);
  cl.ReleaseContext(context);
  return 0;
}
