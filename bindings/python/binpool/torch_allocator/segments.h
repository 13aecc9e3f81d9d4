// Segments of binpool, from which PyTorch's own allocator carves the blocks of private pools.

#pragma once

#include "blocks.h"
#include "functions.h"

#include <vector>

namespace binpool {

// Where a segment of PyTorch's own allocator lies.
struct Segment {
  DeviceIndex device;
  size_t bytes;
};

// What PyTorch's own allocator takes the segments of private pools from.
class Segments : public Forwarding {
 public:
  Segments(CUDAAllocator* native, const Functions& functions, std::vector<std::unique_ptr<Device>>& devices)
      : Forwarding(native), functions_(functions), devices_(devices) {}

  // PyTorch calls it for the current device, and tries again after it has freed memory where this returns null.
  void* raw_alloc(size_t bytes) override {
    DeviceIndex device = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
    free_kept();
    void* pointer = functions_.allocate_segment(static_cast<ptrdiff_t>(bytes), device, nullptr);
    if (pointer) {
      std::lock_guard<std::mutex> lock(mutex_);
      lent_[reinterpret_cast<uint64_t>(pointer)] = {device, bytes};
      devices_.at(device)->segments.increase(static_cast<int64_t>(bytes));
    }
    return pointer;
  }

  // A segment that is freed while a graph is captured waits for the end of the capture: freeing it waits for the device.
  void raw_delete(void* pointer) override {
    Segment segment{};
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto found = lent_.find(reinterpret_cast<uint64_t>(pointer));
      TORCH_CHECK(found != lent_.end(), "invalid device pointer: ", pointer);
      segment = found->second;
      lent_.erase(found);
      devices_.at(segment.device)->segments.decrease(static_cast<int64_t>(segment.bytes));
      kept_.emplace_back(pointer, segment);
    }
    functions_.take_back(pointer);
    free_kept();
  }

  // Has segments wait for `captures_` to be 0 again, and those that are being freed end before.
  void begin_capture() {
    std::lock_guard<std::mutex> lock(freeing_);
    captures_.fetch_add(1);
  }

  void free_kept() {
    // Freeing waits for the device, which no capture may begin meanwhile.
    std::lock_guard<std::mutex> no_capture_begins(freeing_);
    std::vector<std::pair<void*, Segment>> kept;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (captures_.load() == 0) {
        kept.swap(kept_);
      }
    }
    for (const auto& [pointer, segment] : kept) {
      functions_.free_segment(pointer, static_cast<ptrdiff_t>(segment.bytes), segment.device, nullptr);
    }
  }

  std::map<uint64_t, Segment> lent() {
    std::lock_guard<std::mutex> lock(mutex_);
    return lent_;
  }

  // How many captures may go on.
  std::atomic<int> captures_{0};

 private:
  const Functions& functions_;
  std::vector<std::unique_ptr<Device>>& devices_;
  std::mutex freeing_;
  std::mutex mutex_;
  std::map<uint64_t, Segment> lent_;
  std::vector<std::pair<void*, Segment>> kept_;
};

} // namespace binpool
