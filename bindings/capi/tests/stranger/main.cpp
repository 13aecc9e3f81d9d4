// A program of a user who has installed binpool.

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <binpool.hpp>
#include <cstring>
#include <iostream>
#include <vector>

std::vector<float> wave(binpool::pool &pool, cl_command_queue queue, float height, std::size_t count);

int main() {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
  cl_int code = clGetPlatformIDs(1, &platform, nullptr);
  if (code == CL_SUCCESS) code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr);
  if (code != CL_SUCCESS) return 1;
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
  if (code != CL_SUCCESS) return 1;

  int result = 0;
  try {
    auto pool = binpool::pool::opencl(context, device, queue);
    float sum = 0;
    for (int step = 1; step <= 10; step++) {
      for (float value : wave(pool, queue, static_cast<float>(step), 1000)) sum += value;
    }
    const auto now = pool.statistics();
    std::cout << "sum " << sum << ", " << now.hits << " hits, " << now.misses << " miss, binpool " << binpool_version() << "\n";
    result = std::strcmp(binpool_version(), BINPOOL_VERSION) == 0 ? 0 : 1;
  } catch (const binpool::error &failure) {
    std::cerr << failure.what() << "\n";
    result = 1;
  }
  clReleaseCommandQueue(queue);
  clReleaseContext(context);
  return result;
}
