// Memory resources over pools. The argument is `opencl` for containers in shared memory of OpenCL; `cuda` for addresses on a CUDA device; `managed` for
// containers in managed memory, which the stand-in of the driver does not let the host touch.

#include <binpool.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../../examples/opencl_calls.h"

static void check(bool holds, const char *what, int line) {
  if (holds) return;
  std::fprintf(stderr, "line %d: %s: %s\n", line, what, binpool_last_error_message());
  std::exit(1);
}
#define CHECK(condition) check(condition, #condition, __LINE__)

static binpool::options shared_memory() {
  binpool::options options;
  options.memory = BINPOOL_MEMORY_SHARED;
  options.limit_bytes = 64 << 20;
  return options;
}

static void use_containers(binpool::host_resource &resource) {
  for (int round = 0; round < 10; round++) {
    std::pmr::vector<int> numbers(&resource);
    for (int number = 0; number < 10000; number++) numbers.push_back(number);
    long sum = 0;
    for (int number : numbers) sum += number;
    CHECK(sum == 49995000);
  }
  CHECK(resource.pool().statistics().active_blocks == 0);
  CHECK(resource.pool().statistics().hits > 100);
  for (std::size_t alignment = 1; alignment <= 1 << 14; alignment *= 2) {
    void *address = resource.allocate(100, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(address) % alignment == 0);
    std::memset(address, 1, 100);
    resource.deallocate(address, 100, alignment);
  }
  try {
    static_cast<void>(resource.allocate(65 << 20));
    CHECK(false);
  } catch (const std::bad_alloc &shortage) {
    CHECK(std::strstr(shortage.what(), "could not allocate 65.0 MiB") != nullptr);
  }
  const binpool::block block = resource.pool().allocate(100);
  block.wait();
  std::memset(block.host_ptr(), 7, 100);
}

static void use_opencl() {
  load_opencl();
  cl_handle device = nullptr, context = nullptr;
  open_device(&device, &context);
  cl_int code = CL_SUCCESS;
  cl_handle queue = cl.CreateCommandQueue(context, device, 0, &code);
  CHECK(code == CL_SUCCESS);
  try {
    binpool::host_resource resource(binpool::pool::opencl(context, device, queue, shared_memory()));
    use_containers(resource);
    binpool_status status = BINPOOL_STATUS_OK;
    const binpool::block block = resource.pool().allocate(1, status);
    void *memory = nullptr;
    std::size_t offset = 0;
    CHECK(binpool_block_cl_mem(block.handle(), &memory, &offset) == BINPOOL_STATUS_UNSUPPORTED);
    CHECK(binpool_block_cl_kernel_argument(block.handle(), &memory) == BINPOOL_STATUS_UNSUPPORTED);
  } catch (const binpool::error &failure) {
    // A device without fine-grained memory says so.
    CHECK(failure.status() == BINPOOL_STATUS_UNSUPPORTED && std::strstr(failure.what(), "shared virtual memory"));
  }
  cl.ReleaseCommandQueue(queue);
  cl.ReleaseContext(context);
}

namespace properties {
struct device {};
struct host {};
}  // namespace properties

// As `cuda::stream_ref` is.
struct stream_ref {
  void *get() const { return nullptr; }
};

template <class Resource, class Property, class = void>
struct has : std::false_type {};
template <class Resource, class Property>
struct has<Resource, Property, std::void_t<decltype(get_property(std::declval<const Resource &>(), Property()))>> : std::true_type {};

using resource_of_device = binpool::device_resource<properties::device>;
static_assert(has<resource_of_device, properties::device>::value && !has<resource_of_device, properties::host>::value);

static void use_managed() {
  binpool::host_resource managed(binpool::pool::cuda(0, nullptr, shared_memory()));
  use_containers(managed);
}

static void use_cuda() {
  binpool::host_resource managed(binpool::pool::cuda(0, nullptr, shared_memory()));
  const binpool::block block = managed.pool().allocate(8);
  CHECK(block.device_ptr() == reinterpret_cast<std::uintptr_t>(block.host_ptr()));

  resource_of_device resource(binpool::pool::cuda(0, nullptr));
  resource_of_device same = resource;
  CHECK(same == resource && resource != resource_of_device(binpool::pool::cuda(0, nullptr)));
  void *const per_thread = reinterpret_cast<void *>(2);
  void *one = resource.allocate(stream_ref(), 1000);
  void *two = same.allocate(per_thread, 1000, 1 << 12);
  void *three = resource.allocate_sync(0);
  CHECK(reinterpret_cast<std::uintptr_t>(one) % 256 == 0 && reinterpret_cast<std::uintptr_t>(two) % (1 << 12) == 0);
  CHECK(resource.pool().statistics().active_blocks == 3);
  same.deallocate(per_thread, one, 1000);
  resource.deallocate(per_thread, two, 1000, 1 << 12);
  resource.deallocate_sync(three, 0);
  CHECK(resource.pool().statistics().active_blocks == 0);
}

int main(int, char **arguments) {
  const std::string over = arguments[1];
  try {
    if (over == "opencl") use_opencl();
    if (over == "cuda") use_cuda();
    if (over == "managed") use_managed();
  } catch (const std::exception &failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
  return 0;
}
