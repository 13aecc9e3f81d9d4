// PyTorch's allocator for CUDA, as the versions 2.9 to 2.15 have it; BINPOOL_TORCH is 209 to 215.

#pragma once

#include <c10/cuda/CUDAAllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace binpool {

using namespace c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::GatheredContext;
using c10::MempoolId_t;
using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using Context = std::shared_ptr<GatheredContext>;

#if BINPOOL_TORCH >= 211
using PoolAllocator = std::shared_ptr<CUDAAllocator>;
#else
using PoolAllocator = CUDAAllocator*;
#endif

// What is recorded, and how.
struct Recording {
  bool enabled;
  CreateContextFn recorder;
  size_t most_entries;
  RecordContext when;
  bool clear;
  std::vector<std::string> skip;
};

// PyTorch's own allocator, under another name: passes every call on. Where versions differ, it calls functions of our own,
// which derived classes override: `take_snapshot`, `use_pool`, `set_last_resort`, `record_as`.
class Forwarding : public CUDAAllocator {
 public:
  explicit Forwarding(CUDAAllocator* native) : native_(native) {}

  c10::DataPtr allocate(size_t bytes) override {
    return native_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return native_->raw_deleter();
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
  }
  bool initialized() override {
    return native_->initialized();
  }
  void emptyCache(MempoolId_t id) override {
    native_->emptyCache(id);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    return native_->getDeviceStats(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    native_->resetAccumulatedStats(device);
  }
  void resetPeakStats(DeviceIndex device) override {
    native_->resetPeakStats(device);
  }
  void* raw_alloc(size_t bytes) override {
    return native_->raw_alloc(bytes);
  }
  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    return native_->raw_alloc_with_stream(bytes, stream);
  }
  void raw_delete(void* pointer) override {
    native_->raw_delete(pointer);
  }
  void init(int device_count) override {
    native_->init(device_count);
  }
  double getMemoryFraction(DeviceIndex device) override {
    return native_->getMemoryFraction(device);
  }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    native_->setMemoryFraction(fraction, device);
  }
  void enable(bool value) override {
    native_->enable(value);
  }
  bool isEnabled() const override {
    return native_->isEnabled();
  }
  void cacheInfo(DeviceIndex device, size_t* largest) override {
    native_->cacheInfo(device, largest);
  }
  void* getBaseAllocation(void* pointer, size_t* bytes) override {
    return native_->getBaseAllocation(pointer, bytes);
  }
  void recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) override {
    native_->recordStream(block, stream);
  }
  void beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override {
    native_->beginAllocateToPool(device, id, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t id) override {
    native_->endAllocateToPool(device, id);
  }
  void releasePool(DeviceIndex device, MempoolId_t id) override {
    native_->releasePool(device, id);
  }
  int getPoolUseCount(DeviceIndex device, MempoolId_t id) override {
    return native_->getPoolUseCount(device, id);
  }
  void createOrIncrefPool(DeviceIndex device, MempoolId_t id, PoolAllocator allocator) override {
    use_pool(device, id, std::move(allocator));
  }
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id, const std::unordered_set<void*>& expected) override {
    return native_->checkPoolLiveAllocations(device, id, expected);
  }
  ShareableHandle shareIpcHandle(void* pointer) override {
    return native_->shareIpcHandle(pointer);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return native_->getIpcDevPtr(std::move(handle));
  }
  bool isHistoryEnabled() override {
    return native_->isHistoryEnabled();
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& annotation) override {
    native_->recordAnnotation(annotation);
  }
  void pushCompileContext(std::string& context) override {
    native_->pushCompileContext(context);
  }
  void popCompileContext() override {
    native_->popCompileContext();
  }
  void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override {
    native_->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override {
    native_->attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(DeviceIndex device, DeviceIndex other) override {
    native_->enablePeerAccess(device, other);
  }
  cudaError_t memcpyAsync(
      void* to,
      int to_device,
      const void* from,
      int from_device,
      size_t bytes,
      cudaStream_t stream,
      bool p2p_enabled) override {
    return native_->memcpyAsync(to, to_device, from, from_device, bytes, stream, p2p_enabled);
  }
  std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override {
    return native_->getCheckpointState(device, id);
  }
  CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<AllocatorState> state) override {
    return native_->setCheckpointPoolState(device, std::move(state));
  }
  std::string name() override {
    return native_->name();
  }

#if BINPOOL_TORCH < 210
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) {
    c10::cuda::CUDAGuard guard(device);
    size_t free = 0;
    size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return {free, total};
  }
#else
  std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    return native_->getExpandableSegmentSizes(device);
  }
  void setNoSplit(DeviceIndex device, MempoolId_t id) override {
    native_->setNoSplit(device, id);
  }
  void setUserMetadata(const std::string& metadata) override {
    native_->setUserMetadata(metadata);
  }
  std::string getUserMetadata() override {
    return native_->getUserMetadata();
  }
#endif
#if BINPOOL_TORCH >= 211
  SnapshotInfo snapshot(MempoolId_t id, bool include_traces) override {
    return take_snapshot(id, include_traces);
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) override {
    set_last_resort(device, id, use_on_oom);
  }
  void recordHistory(
      bool enabled,
      CreateContextFn recorder,
      size_t most_entries,
      RecordContext when,
      bool clear,
      const std::vector<std::string>& skip) override {
    record_as({enabled, recorder, most_entries, when, clear, skip});
  }
#else
  SnapshotInfo snapshot(MempoolId_t id) override {
    return take_snapshot(id, true);
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t id) override {
    set_last_resort(device, id, true);
  }
  void recordHistory(bool enabled, CreateContextFn recorder, size_t most_entries, RecordContext when, bool clear) override {
    record_as({enabled, recorder, most_entries, when, clear, {}});
  }
#endif

#if BINPOOL_TORCH >= 212
  Context getContextForPointer(const void* pointer) override {
    return native_->getContextForPointer(pointer);
  }
  void attachOomRejectionObserver(OomRejectionObserver observer) override {
    native_->attachOomRejectionObserver(std::move(observer));
  }
#endif
#if BINPOOL_TORCH >= 213
  void markCaptureBegin(DeviceIndex device) override {
    native_->markCaptureBegin(device);
  }
  void markCaptureEnd(DeviceIndex device) override {
    native_->markCaptureEnd(device);
  }
  c10::DataPtr allocateWithAddress(size_t bytes, void* address) override {
    return native_->allocateWithAddress(bytes, address);
  }
#endif
#if BINPOOL_TORCH >= 214
  bool supportsUserMetadata() override {
    return native_->supportsUserMetadata();
  }
  void annotateMemory(const void* pointer, const std::string& metadata) override {
    native_->annotateMemory(pointer, metadata);
  }
#endif

 protected:
  virtual SnapshotInfo take_snapshot(MempoolId_t id, [[maybe_unused]] bool include_traces) {
#if BINPOOL_TORCH >= 211
    return native_->snapshot(id, include_traces);
#else
    return native_->snapshot(id);
#endif
  }
  // Uses a private pool once more, and creates it where there is none.
  virtual void use_pool(DeviceIndex device, MempoolId_t id, PoolAllocator allocator) {
    native_->createOrIncrefPool(device, id, std::move(allocator));
  }
  // Sets whether memory of a private pool is taken before a request fails.
  virtual void set_last_resort(DeviceIndex device, MempoolId_t id, [[maybe_unused]] bool is_last_resort) {
#if BINPOOL_TORCH >= 211
    native_->setUseOnOOM(device, id, is_last_resort);
#else
    native_->setUseOnOOM(device, id);
#endif
  }
  virtual void record_as(const Recording& how) {
#if BINPOOL_TORCH >= 211
    native_->recordHistory(how.enabled, how.recorder, how.most_entries, how.when, how.clear, how.skip);
#else
    native_->recordHistory(how.enabled, how.recorder, how.most_entries, how.when, how.clear);
#endif
  }

  CUDAAllocator* const native_;
};

} // namespace binpool
