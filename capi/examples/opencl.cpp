// Pools and blocks as values of C++: freed at the end of their scope, and errors as exceptions.
//
//     c++ opencl.cpp -I../include -L../../target/debug -lbinpool_capi -ldl -o opencl && ./opencl

#include <iostream>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "binpool.h"
#include "opencl_calls.h"

namespace binpool {

struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void check(binpool_status status) {
  if (status == BINPOOL_STATUS_OK) return;
  std::string message = binpool_last_error_message();
  if (status == BINPOOL_STATUS_OUT_OF_MEMORY) throw OutOfMemory(message);
  if (status == BINPOOL_STATUS_INVALID_ARGUMENT) throw std::invalid_argument(message);
  throw std::runtime_error(message);
}

struct Free {
  void operator()(binpool_pool *pool) const { binpool_pool_free(pool); }
  void operator()(binpool_block *block) const { binpool_block_free(block); }
};

struct Place {
  void *memory;
  size_t offset;
};

class Block {
 public:
  explicit Block(binpool_block *block) : block_(block) {}
  size_t size() const { return binpool_block_size(block_.get()); }

  Place place() const {
    Place place{};
    check(binpool_block_cl_mem(block_.get(), &place.memory, &place.offset));
    return place;
  }

 private:
  std::unique_ptr<binpool_block, Free> block_;
};

class Pool {
 public:
  Pool(void *context, void *device, void *queue, const binpool_options &options) {
    binpool_pool *pool = nullptr;
    check(binpool_pool_new_opencl(context, device, queue, &options, &pool));
    pool_.reset(pool);
  }

  Block allocate(size_t bytes) const {
    binpool_block *block = nullptr;
    check(binpool_allocate(pool_.get(), bytes, &block));
    return Block(block);
  }

  binpool_statistics statistics() const {
    binpool_statistics now{};
    check(binpool_pool_statistics(pool_.get(), &now, sizeof now));
    return now;
  }

 private:
  std::unique_ptr<binpool_pool, Free> pool_;
};

}  // namespace binpool

static void require(bool holds, const char *what) {
  if (!holds) throw std::runtime_error(what);
}

static void run(cl_handle context, cl_handle device, cl_handle queue) {
  binpool_options options{};
  options.struct_size = sizeof options;
  options.limit_bytes = 16 << 20;
  binpool::Pool pool(context, device, queue, options);

  for (unsigned char round = 0; round < 10; round++) {
    binpool::Block block = pool.allocate(1 << 20);
    auto [memory, offset] = block.place();
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
  } catch (const binpool::OutOfMemory &error) {
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
