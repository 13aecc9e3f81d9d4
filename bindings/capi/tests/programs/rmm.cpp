// `binpool::device_resource` is a resource of CCCL and RMM: scripts/rmm compiles it, and runs it where there is a GPU.

#include <cuda_runtime_api.h>

#include <binpool.hpp>
#include <cstdio>
#include <cstring>
#include <cuda/memory_resource>
#include <rmm/device_buffer.hpp>
#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

using resource = binpool::device_resource<cuda::mr::device_accessible>;
using shared = binpool::device_resource<cuda::mr::device_accessible, cuda::mr::host_accessible>;

static_assert(cuda::mr::synchronous_resource<resource> && cuda::mr::resource<resource>);
static_assert(cuda::mr::resource_with<resource, cuda::mr::device_accessible>);
static_assert(!cuda::mr::resource_with<resource, cuda::mr::host_accessible>);
static_assert(cuda::mr::resource_with<shared, cuda::mr::device_accessible, cuda::mr::host_accessible>);

static void check(bool holds, const char *what) {
  if (!holds) throw std::runtime_error(what);
}

static void run() {
  resource ours(binpool::pool::cuda(0, nullptr));
  const cuda::mr::any_resource<cuda::mr::device_accessible> kept = ours;
  rmm::mr::set_current_device_resource(ours);
  {
    const cuda::stream_ref stream{cudaStream_t{}};
    const rmm::device_buffer buffer(1 << 20, stream);
    const rmm::device_buffer copy(buffer, stream, rmm::device_async_resource_ref(ours));
    check(ours.pool().statistics().active_blocks == 2, "both buffers are of the pool");
    rmm::mr::statistics_resource_adaptor counted{rmm::device_async_resource_ref(ours)};
    const rmm::device_buffer third(1 << 10, stream, counted);
    check(counted.get_bytes_counter().value == 1 << 10, "an adaptor goes on top");
    ours.pool().set_limit(64 << 20);
    try {
      const rmm::device_buffer large(1 << 30, stream);
      check(false, "the limit counts");
    } catch (const std::bad_alloc &shortage) {
      check(std::strstr(shortage.what(), "raise the limit") != nullptr, "the report is the message");
    }
    stream.sync();
  }
  check(ours.pool().statistics().active_blocks == 0, "all is given back");
}

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("It compiles. There is no GPU to run it on.");
    return 0;
  }
  try {
    run();
  } catch (const std::exception &failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
  return 0;
}
