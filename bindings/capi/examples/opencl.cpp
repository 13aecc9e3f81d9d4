// Pools and blocks as values of C++: freed at the end of their scope, and errors as exceptions. Built by CMakeLists.txt.

#include <iostream>
#include <stdexcept>
#include <vector>

#include <binpool.hpp>

#include "opencl_calls.h"

static void require(bool holds, const char *what) {
  if (!holds) throw std::runtime_error(what);
}

static void run(cl_handle context, cl_handle device, cl_handle queue) {
  binpool::options options;
  options.limit_bytes = 16 << 20;
  auto pool = binpool::pool::opencl(context, device, queue, options);

  for (unsigned char round = 0; round < 10; round++) {
    const binpool::block block = pool.allocate(1 << 20);
    const auto [memory, offset] = block.cl_mem();
    std::vector<unsigned char> bytes(block.size());
    int code = cl.EnqueueFillBuffer(queue, memory, &round, 1, offset, bytes.size(), 0, nullptr, nullptr);
    require(code == CL_SUCCESS, "a fill");
    code = cl.EnqueueReadBuffer(queue, memory, CL_TRUE, offset, bytes.size(), bytes.data(), 0, nullptr, nullptr);
    require(code == CL_SUCCESS, "a read");
    require(bytes == std::vector<unsigned char>(bytes.size(), round), "the bytes of this round");
  }
  require(pool.statistics().active_blocks == 0, "no block is left");
  require(pool.statistics().misses == 1, "the device was asked once");

  bool refused = false;
  try {
    pool.allocate(32 << 20);
  } catch (const binpool::out_of_memory &error) {
    refused = true;
    std::cout << error.what() << "\n";
  }
  require(refused, "a block beyond the limit is refused");
}

int main() {
  load_opencl();
  cl_handle device = nullptr, context = nullptr;
  open_device(&device, &context);
  cl_int code = CL_SUCCESS;
  cl_handle queue = cl.CreateCommandQueue(context, device, 0, &code);
  int result = 0;
  try {
    require(code == CL_SUCCESS, "a queue");
    run(context, device, queue);
  } catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    result = 1;
  }
  cl.ReleaseCommandQueue(queue);
  cl.ReleaseContext(context);
  return result;
}
