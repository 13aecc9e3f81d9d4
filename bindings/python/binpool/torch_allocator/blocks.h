// The blocks that PyTorch has of binpool, and what it is told of them.

#pragma once

#include "forwarding.h"

#include <c10/util/flat_hash_map.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>

namespace binpool {

// What a sum of PyTorch's statistics is made of. Only grows, but for the peak.
class Counter {
 public:
  void increase(int64_t amount) {
    int64_t now = taken_.fetch_add(amount, std::memory_order_relaxed) + amount - given_.load(std::memory_order_relaxed);
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void decrease(int64_t amount) {
    given_.fetch_add(amount, std::memory_order_relaxed);
  }
  int64_t current() const {
    // In this order: what is given was taken before.
    int64_t given = given_.load(std::memory_order_relaxed);
    return taken_.load(std::memory_order_relaxed) - given;
  }
  void reset_peak() {
    peak_before_ = std::max(peak_before_.load(), peak_.load());
    peak_ = current();
  }
  // What was counted since the program began, whatever was reset.
  int64_t total() const {
    return taken_;
  }
  int64_t highest() const {
    return std::max(peak_before_.load(), peak_.load());
  }
  void reset_accumulated() {
    taken_before_ = taken_.load();
    given_before_ = given_.load();
  }
  Stat stat() const {
    Stat stat;
    stat.current = current();
    stat.peak = std::max<int64_t>(peak_, stat.current);
    stat.allocated = taken_ - taken_before_;
    stat.freed = given_ - given_before_;
    return stat;
  }

 private:
  std::atomic<int64_t> taken_{0}, given_{0}, peak_{0}, peak_before_{0}, taken_before_{0}, given_before_{0};
};

// What PyTorch knows of the memory of a device.
struct alignas(128) Device {
  Counter blocks, bytes, asked;
  // The segments that PyTorch's own allocator has from binpool: those of its small and those of its large blocks.
  Counter segments;
  std::atomic<int64_t> retries{0}, shortages{0};
  // Since the program began: the requests that a limit refused, and the most bytes that the pool had before its peak was reset.
  std::atomic<uint64_t> refused{0}, peak_managed_before{0};
  // What the pool had done before the figures were reset.
  std::atomic<uint64_t> maps_before{0}, unmaps_before{0}, mapped_before{0}, unmapped_before{0};
  std::atomic<bool> has_begun{false};
  // The bytes of the fraction that is set; `kNoLimit` where none is.
  static constexpr size_t kNoLimit = ~size_t{0};
  std::atomic<size_t> allowed{kNoLimit};
};

struct Block {
  DeviceIndex device;
  bool is_shared;
  cudaStream_t stream;
  size_t asked;
  size_t bytes;
  Context context;
};

// The blocks by their addresses.
class Blocks {
 public:
  void insert(void* pointer, Block block) {
    Shard& shard = shard_of(pointer);
    std::lock_guard<std::mutex> lock(shard.mutex);
    shard.blocks[pointer] = std::move(block);
  }
  bool take(void* pointer, Block& block) {
    Shard& shard = shard_of(pointer);
    std::lock_guard<std::mutex> lock(shard.mutex);
    auto found = shard.blocks.find(pointer);
    if (found == shard.blocks.end()) {
      return false;
    }
    block = std::move(found->second);
    shard.blocks.erase(found);
    return true;
  }
  // Calls `use` with a block, and returns whether there is one.
  template <typename Use>
  bool with(void* pointer, Use use) {
    Shard& shard = shard_of(pointer);
    std::lock_guard<std::mutex> lock(shard.mutex);
    auto found = shard.blocks.find(pointer);
    if (found == shard.blocks.end()) {
      return false;
    }
    use(found->second);
    return true;
  }
  std::map<uint64_t, Block> of(DeviceIndex device) {
    std::map<uint64_t, Block> found;
    for (Shard& shard : shards_) {
      std::lock_guard<std::mutex> lock(shard.mutex);
      for (const auto& [pointer, block] : shard.blocks) {
        if (block.device == device) {
          found.emplace(reinterpret_cast<uint64_t>(pointer), block);
        }
      }
    }
    return found;
  }

 private:
  struct alignas(128) Shard {
    std::mutex mutex;
    ska::flat_hash_map<void*, Block> blocks;
  };
  Shard& shard_of(void* pointer) {
    return shards_[((reinterpret_cast<uint64_t>(pointer) >> 8) * 0x9e3779b97f4a7c15) >> 58];
  }
  std::array<Shard, 64> shards_;
};

} // namespace binpool
