// The device's part of the program.

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <binpool.hpp>
#include <stdexcept>
#include <vector>

std::vector<float> wave(binpool::pool &pool, cl_command_queue queue, float height, std::size_t count) {
  const binpool::tag tag("wave");
  const binpool::block block = pool.allocate(count * sizeof(float));
  const auto [memory, offset] = block.cl_mem();
  const auto buffer = static_cast<cl_mem>(memory);
  std::vector<float> values(count);
  if (clEnqueueFillBuffer(queue, buffer, &height, sizeof height, offset, block.size(), 0, nullptr, nullptr) != CL_SUCCESS ||
      clEnqueueReadBuffer(queue, buffer, CL_TRUE, offset, block.size(), values.data(), 0, nullptr, nullptr) != CL_SUCCESS) {
    throw std::runtime_error("a command failed");
  }
  return values;
}
