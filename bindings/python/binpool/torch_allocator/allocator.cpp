// binpool in the place of PyTorch's own allocator for CUDA.
//
// `binpool.torch.use()` builds this against the installed PyTorch, and calls `binpool_torch_install`. Memory comes from the pools of
// the package's library. The memory of private pools (CUDA graphs, `torch.cuda.MemPool`, graph trees) is PyTorch's own allocator's, which
// takes its segments from the same pools: it knows how long a graph keeps its memory, and saves and restores the state of a pool.
//
// A request asks whether any private pool is allocated to at all (one atomic), looks up the device and the stream, and calls binpool.
// What PyTorch asks of a block later, by its address, is kept here.

#include "blocks.h"
#include "forwarding.h"
#include "functions.h"
#include "history.h"
#include "layout.h"
#include "segments.h"
#include "sharing.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/util/env.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <shared_mutex>
#include <thread>
#include <tuple>

namespace binpool {
namespace {

// What the thread does that pages are mapped for.
thread_local const Context* of_request = nullptr;

// The thread tries to allocate to private pools before its request fails.
thread_local bool in_last_resort = false;

// Sets a variable of the thread until the end of a scope, which may be an exception.
template <typename T>
class Within {
 public:
  Within(T& variable, T value) : variable_(variable), former_(std::exchange(variable, value)) {}
  ~Within() {
    variable_ = former_;
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  T& variable_;
  T former_;
};

// What a pool has done, for `binpool run`.
struct Totals {
  uint64_t served, refused, reserved, live;
};

class Binpool final : public Forwarding {
 public:
  Binpool(CUDAAllocator* native, void* library)
      : Forwarding(native),
        functions_(library),
        segments_(std::make_shared<Segments>(native, functions_, devices_)),
        history_(functions_),
        sharing_(functions_) {}

  static Binpool* instance;

  // Returns what the pool of a device has done since the program began.
  Totals totals(DeviceIndex index) {
    Totals totals{};
    if (static_cast<size_t>(index) < devices_.size()) {
      Device& device = *devices_[index];
      totals.served = static_cast<uint64_t>(device.blocks.total());
      totals.refused = device.refused;
      totals.reserved = std::max<uint64_t>(device.peak_managed_before, functions_.figures(index).peak_managed);
      totals.live = static_cast<uint64_t>(device.bytes.highest());
    }
    return totals;
  }

  // Returns what a block takes; 0 for one of a private pool.
  uint64_t granted(uint64_t address) {
    uint64_t bytes = 0;
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    blocks_.with(reinterpret_cast<void*>(address), [&](const Block& block) { bytes = block.bytes; });
    return bytes;
  }

  void init(int device_count) override {
    native_->init(device_count);
    while (devices_.size() < static_cast<size_t>(device_count)) {
      devices_.push_back(std::make_unique<Device>());
    }
  }

  std::string name() override {
    return "binpool";
  }

  // Allocating and freeing.

  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK_WITH(
        OutOfMemoryError, bytes < kExabyte, "CUDA out of memory. Tried to allocate more than 1EB memory.");
    if (C10_UNLIKELY(!native_->isEnabled() || is_uncached_)) {
      return native_->allocate(bytes);
    }
    DeviceIndex device = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
    void* pointer = bytes ? request(bytes, device, c10::cuda::getCurrentCUDAStream(device)) : nullptr;
    return {pointer, pointer, &free_block, c10::Device(c10::DeviceType::CUDA, device)};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return native_->isEnabled() && !is_uncached_ ? &free_block : native_->raw_deleter();
  }

  void* raw_alloc(size_t bytes) override {
    DeviceIndex device = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
    return raw_alloc_with_stream(bytes, c10::cuda::getCurrentCUDAStream(device));
  }

  void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    if (bytes == 0) {
      return nullptr;
    }
    if (C10_UNLIKELY(!native_->isEnabled() || is_uncached_)) {
      return native_->raw_alloc_with_stream(bytes, stream);
    }
    DeviceIndex device = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
    return request(bytes, device, stream);
  }

  void raw_delete(void* pointer) override {
    if (!pointer) {
      return;
    }
    Block block;
    if (!blocks_.take(pointer, block)) {
      // Of a private pool, or from before this allocator.
      native_->raw_delete(pointer);
      return;
    }
    Context context = history_.gather(RecordContext::ALL);
    Device& device = *devices_[block.device];
    device.blocks.decrease(1);
    device.bytes.decrease(static_cast<int64_t>(block.bytes));
    device.asked.decrease(static_cast<int64_t>(block.asked));
    if (history_.is_observed()) {
      Context& known = context ? context : block.context;
      auto address = reinterpret_cast<size_t>(pointer);
      // The pool takes the block at once, and gives it to others after the commands of its streams.
      history_.record(TraceEntry::FREE_REQUESTED, address, block.asked, block.stream, block.device, known);
      history_.record(TraceEntry::FREE_COMPLETED, address, block.asked, block.stream, block.device, known);
    }
    if (C10_UNLIKELY(block.is_shared)) {
      functions_.take_back(pointer);
    }
    functions_.free(pointer, static_cast<ptrdiff_t>(block.asked), block.device, block.stream);
    report_to_profiler(pointer, -static_cast<int64_t>(block.bytes), block.device);
    if (const c10::impl::PyInterpreter* trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr)) {
      (*trace)->trace_gpu_memory_deallocation(c10::DeviceType::CUDA, reinterpret_cast<uintptr_t>(pointer));
    }
  }

  void recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) override {
    if (!pointer.get()) {
      return;
    }
    if (pointer.get_deleter() != &free_block) {
      native_->recordStream(pointer, stream);
      return;
    }
    bool is_own = false;
    bool is_ours = blocks_.with(pointer.get(), [&](Block& block) { is_own = block.stream == stream.stream(); });
    if (is_own) {
      return;
    }
    if (is_ours) {
      functions_.record_stream(pointer.get(), stream.stream());
      return;
    }
    // PyTorch's own allocator looks at the deleter, which frees nothing here: there is no context.
    const c10::DataPtr as_native(pointer.get(), nullptr, native_->raw_deleter(), pointer.device());
    native_->recordStream(as_native, stream);
  }

  void emptyCache(MempoolId_t id) override {
    native_->emptyCache(id);
    forget_ended_captures();
    segments_->free_kept();
    if (id == MempoolId_t{0, 0}) {
      functions_.empty_cache();
    }
  }

  // Private pools.

  void beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    const bool is_new = make_pool(device, id);
    native_->beginAllocateToPool(device, id, filter);
    if (is_new && native_->getPoolUseCount(device, id) > 1) {
      // The use that PyTorch's allocator counts here is the first one.
      native_->releasePool(device, id);
    }
    allocated_to_.push_back({device, id, std::move(filter)});
    allocated_to_count_ += 1;
    segments_->begin_capture();
  }

  void endAllocateToPool(DeviceIndex device, MempoolId_t id) override {
    {
      std::unique_lock<std::shared_mutex> lock(mutex_);
      native_->endAllocateToPool(device, id);
      auto ended = std::find_if(allocated_to_.begin(), allocated_to_.end(), [&](const AllocatedTo& it) {
        return it.device == device && it.id == id;
      });
      if (ended != allocated_to_.end()) {
        if (ended->kind != AllocatedTo::NO_CAPTURE) {
          segments_->captures_.fetch_sub(1);
        }
        allocated_to_.erase(ended);
        allocated_to_count_ -= 1;
      }
    }
    segments_->free_kept();
  }

  void releasePool(DeviceIndex device, MempoolId_t id) override {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    if (native_->getPoolUseCount(device, id) == 1) {
      pools_.erase({device, id});
      last_resorts_.erase({device, id});
    }
    native_->releasePool(device, id);
  }

  CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<AllocatorState> state) override {
    CheckpointDelta delta = native_->setCheckpointPoolState(device, std::move(state));
    for (c10::DataPtr& pointer : delta.dataptrs_allocd) {
      void* const address = pointer.get();
      pointer.release_context();
      pointer = {address, address, &free_block, pointer.device()};
    }
    return delta;
  }

  // Figures.

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex index) override {
    auto stats = native_->getDeviceStats(index);
    Device& device = *devices_.at(index);
    const Figures figures = functions_.figures(index);
    add(stats.allocation, device.blocks.stat());
    add(stats.allocated_bytes, device.bytes.stat());
    add(stats.requested_bytes, device.asked.stat());
    add(stats.active, with(device.blocks.stat(), figures.pending_blocks));
    add(stats.active_bytes, with(device.bytes.stat(), figures.pending));
    // The segments of PyTorch's own allocator are among what the pool has.
    const Stat lent = device.segments.stat();
    Stat reserved;
    reserved.current = static_cast<int64_t>(figures.managed) - lent.current;
    reserved.peak = static_cast<int64_t>(figures.peak_managed) - lent.peak;
    reserved.allocated = static_cast<int64_t>(mapped(figures) - device.mapped_before) - lent.allocated;
    reserved.freed = static_cast<int64_t>(figures.unmapped - device.unmapped_before) - lent.freed;
    add(stats.reserved_bytes, reserved);
    stats.num_alloc_retries += device.retries;
    stats.num_ooms += device.shortages;
    stats.num_device_alloc += static_cast<int64_t>(figures.maps - device.maps_before);
    stats.num_device_free += static_cast<int64_t>(figures.unmaps - device.unmaps_before);
    return stats;
  }

  void resetAccumulatedStats(DeviceIndex index) override {
    native_->resetAccumulatedStats(index);
    Device& device = *devices_.at(index);
    for (Counter* counter : {&device.blocks, &device.bytes, &device.asked, &device.segments}) {
      counter->reset_accumulated();
    }
    const Figures figures = functions_.figures(index);
    device.maps_before = figures.maps;
    device.unmaps_before = figures.unmaps;
    device.mapped_before = mapped(figures);
    device.unmapped_before = figures.unmapped;
    device.retries = 0;
    device.shortages = 0;
  }

  void resetPeakStats(DeviceIndex index) override {
    native_->resetPeakStats(index);
    Device& device = *devices_.at(index);
    for (Counter* counter : {&device.blocks, &device.bytes, &device.asked, &device.segments}) {
      counter->reset_peak();
    }
    device.peak_managed_before = std::max<uint64_t>(device.peak_managed_before, functions_.figures(index).peak_managed);
    functions_.reset_peaks(index);
  }

  double getMemoryFraction(DeviceIndex device) override {
    const size_t allowed = devices_.at(device)->allowed;
    if (allowed == Device::kNoLimit) {
      return 1.0;
    }
    return static_cast<double>(allowed) / static_cast<double>(getMemoryInfo(device).second);
  }

  void setMemoryFraction(double fraction, DeviceIndex device) override {
    native_->setMemoryFraction(fraction, device);
    const auto total = static_cast<double>(getMemoryInfo(device).second);
    const auto allowed = static_cast<size_t>(fraction * total);
    functions_.check(functions_.set_limit(device, allowed));
    devices_.at(device)->allowed = allowed;
  }

  void cacheInfo(DeviceIndex device, size_t* largest) override {
    native_->cacheInfo(device, largest);
    *largest = std::max<size_t>(*largest, functions_.figures(device).held);
  }

  void* getBaseAllocation(void* pointer, size_t* bytes) override {
    bool is_ours = blocks_.with(pointer, [&](const Block& block) {
      if (bytes) {
        *bytes = block.bytes;
      }
    });
    return is_ours ? pointer : native_->getBaseAllocation(pointer, bytes);
  }

  // Histories.

  bool isHistoryEnabled() override {
    return history_.is_recording();
  }

  void pushCompileContext(std::string& context) override {
    native_->pushCompileContext(context);
    history_.push_compile_context(context);
  }

  void popCompileContext() override {
    native_->popCompileContext();
    history_.pop_compile_context();
  }

#if BINPOOL_TORCH >= 210
  void setUserMetadata(const std::string& metadata) override {
    native_->setUserMetadata(metadata);
    history_.set_user_metadata(metadata);
  }
#endif

#if BINPOOL_TORCH >= 212
  Context getContextForPointer(const void* pointer) override {
    Context context;
    const bool is_ours = blocks_.with(const_cast<void*>(pointer), [&](const Block& block) { context = block.context; });
    return is_ours ? context : native_->getContextForPointer(pointer);
  }
#endif

#if BINPOOL_TORCH >= 214
  void annotateMemory(const void* pointer, const std::string& metadata) override {
    Block block;
    if (blocks_.with(const_cast<void*>(pointer), [&](const Block& found) { block = found; })) {
      const auto address = reinterpret_cast<size_t>(pointer);
      history_.record(TraceEntry::ANNOTATE, address, block.asked, block.stream, block.device, block.context, &metadata);
    } else {
      native_->annotateMemory(pointer, metadata);
    }
  }
#endif

  void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override {
    // In a last resort, `run_out` calls it.
    native_->attachOutOfMemoryObserver([observer](int64_t device, size_t asked, size_t allowed, size_t free) {
      if (!in_last_resort) {
        observer(device, asked, allowed, free);
      }
    });
    history_.add(std::move(observer));
  }

  void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override {
    native_->attachAllocatorTraceTracker(tracker);
    history_.add(std::move(tracker), &see_pages);
  }

  // Other devices and other processes.

  void enablePeerAccess(DeviceIndex device, DeviceIndex other) override {
    native_->enablePeerAccess(device, other);
    functions_.check(functions_.enable_peer_access(device, other));
  }

  cudaError_t memcpyAsync(
      void* to,
      int to_device,
      const void* from,
      int from_device,
      size_t bytes,
      cudaStream_t stream,
      bool p2p_enabled) override {
    if (p2p_enabled || to_device == from_device) {
      return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    }
    // Pages are copied between devices by this call alone.
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
  }

  ShareableHandle shareIpcHandle(void* pointer) override {
    Block block;
    if (blocks_.with(pointer, [&](Block& found) {
          found.is_shared = true;
          block = found;
        })) {
      return sharing_.share(pointer, block.device, block.stream);
    }
    // A segment of a private pool may be of the pool.
    const auto address = reinterpret_cast<uint64_t>(pointer);
    const auto lent = segments_->lent();
    auto after = lent.upper_bound(address);
    if (after != lent.begin()) {
      const auto& [begin, segment] = *std::prev(after);
      if (address < begin + segment.bytes) {
        // NOLINTNEXTLINE(performance-no-int-to-ptr)
        auto handle = sharing_.share(reinterpret_cast<void*>(begin), segment.device, nullptr);
        handle.offset += static_cast<ptrdiff_t>(address - begin);
        return handle;
      }
    }
    return native_->shareIpcHandle(pointer);
  }

  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return Sharing::is_ours(handle) ? sharing_.receive(handle) : native_->getIpcDevPtr(std::move(handle));
  }

 protected:
  SnapshotInfo take_snapshot(MempoolId_t id, bool include_traces) override {
    SnapshotInfo info = Forwarding::take_snapshot(id, include_traces);
    if (id == MempoolId_t{0, 0}) {
      const auto lent = segments_->lent();
      for (size_t at = 0; at < devices_.size(); ++at) {
        const auto device = static_cast<DeviceIndex>(at);
        add_segments(device, functions_, blocks_.of(device), lent, info.segments);
      }
      std::sort(info.segments.begin(), info.segments.end(), [](const SegmentInfo& one, const SegmentInfo& other) {
        return std::tie(one.device, one.address) < std::tie(other.device, other.address);
      });
    }
    if (include_traces) {
      history_.add_to(info.device_traces);
    }
    return info;
  }

  void use_pool(DeviceIndex device, MempoolId_t id, PoolAllocator allocator) override {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    if (allocator) {
      pools_.emplace(device, id);
      Forwarding::use_pool(device, id, std::move(allocator));
    } else if (!make_pool(device, id)) {
      Forwarding::use_pool(device, id, nullptr);
    }
  }

  void set_last_resort(DeviceIndex device, MempoolId_t id, bool is_last_resort) override {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    if (is_last_resort) {
      last_resorts_.emplace(device, id);
    } else {
      last_resorts_.erase({device, id});
    }
    Forwarding::set_last_resort(device, id, is_last_resort);
  }

  void record_as(const Recording& how) override {
    Forwarding::record_as(how);
    history_.record_as(how, &see_pages);
  }

 private:
  static constexpr size_t kExabyte = 1152921504606846976ULL;

  struct AllocatedTo {
    DeviceIndex device;
    MempoolId_t id;
    std::function<bool(cudaStream_t)> filter;
    // Not known before the first request: it may be a capture that has not begun yet.
    enum { UNKNOWN, CAPTURE, NO_CAPTURE } kind = UNKNOWN;
    cudaStream_t captured = nullptr;
  };
  using PoolKey = std::pair<DeviceIndex, MempoolId_t>;

  static void free_block(void* pointer) {
    instance->raw_delete(pointer);
  }

  // Nothing may be thrown through binpool, which calls this.
  static void see_pages(int device, uint64_t address, size_t bytes, int is_mapped) noexcept {
    try {
      instance->history_.record(
          is_mapped ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_UNMAP,
          address,
          bytes,
          nullptr,
          static_cast<DeviceIndex>(device),
          of_request ? *of_request : nullptr);
    } catch (const std::exception& error) {
      TORCH_WARN("what watches PyTorch's memory failed: ", error.what());
    }
  }

  void* request(size_t bytes, DeviceIndex index, cudaStream_t stream) {
    if (C10_UNLIKELY(allocated_to_count_.load(std::memory_order_acquire) > 0) && is_delegated(index, stream)) {
      return native_->raw_alloc_with_stream(bytes, stream);
    }
    Device& device = *devices_.at(index);
    if (C10_UNLIKELY(!device.has_begun.load(std::memory_order_relaxed))) {
      begin(index);
    }
    Context context = history_.gather(RecordContext::STATE);
    Granted granted{};
    int status = 0;
    {
      Within<const Context*> within(of_request, &context);
      status = functions_.request(bytes, index, stream, &granted);
      if (C10_UNLIKELY(status == kOutOfMemory)) {
        status = request_again(bytes, index, stream, granted);
      }
    }
    if (C10_UNLIKELY(status == kOutOfMemory)) {
      if (void* pointer = request_of_last_resorts(bytes, index, stream)) {
        return pointer;
      }
      TORCH_CHECK_WITH(OutOfMemoryError, false, run_out(bytes, index, stream, context));
    }
    functions_.check(status);
    device.blocks.increase(1);
    device.bytes.increase(static_cast<int64_t>(granted.bytes));
    device.asked.increase(static_cast<int64_t>(bytes));
    blocks_.insert(granted.address, {index, false, stream, bytes, granted.bytes, context});
    if (history_.is_observed()) {
      history_.record(TraceEntry::ALLOC, reinterpret_cast<size_t>(granted.address), bytes, stream, index, context);
    }
    report_to_profiler(granted.address, static_cast<int64_t>(granted.bytes), index);
    if (const c10::impl::PyInterpreter* trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr)) {
      (*trace)->trace_gpu_memory_allocation(
          c10::DeviceType::CUDA, reinterpret_cast<uintptr_t>(granted.address));
    }
    return granted.address;
  }

  // Sets the limits of the environment before the first request.
  void begin(DeviceIndex index) {
    devices_[index]->has_begun = true;
    // Of `binpool run --limit`.
    if (const char* limit = std::getenv("BINPOOL_LIMIT"); limit && *limit) {
      devices_[index]->allowed = std::strtoull(limit, nullptr, 10);
      functions_.check(functions_.set_limit(index, devices_[index]->allowed));
    }
#if BINPOOL_TORCH >= 210
    const double fraction = CUDAAllocatorConfig::per_process_memory_fraction();
    if (fraction < 1.0 && devices_[index]->allowed == Device::kNoLimit) {
      setMemoryFraction(fraction, index);
    }
#endif
  }

  bool is_delegated(DeviceIndex device, cudaStream_t stream) {
    MempoolId_t id;
    {
      std::shared_lock<std::shared_mutex> lock(mutex_);
      auto found = std::find_if(allocated_to_.begin(), allocated_to_.end(), [&](const AllocatedTo& it) {
        return it.device == device && it.filter(stream);
      });
      if (found == allocated_to_.end()) {
        return false;
      }
      if (found->kind != AllocatedTo::UNKNOWN) {
        return true;
      }
      id = found->id;
    }
    const bool captured = is_captured(stream);
    std::unique_lock<std::shared_mutex> lock(mutex_);
    for (AllocatedTo& it : allocated_to_) {
      if (it.device == device && it.id == id && it.kind == AllocatedTo::UNKNOWN) {
        it.kind = AllocatedTo::CAPTURE;
        it.captured = stream;
        if (!captured) {
          set_no_capture(it);
        }
      }
    }
    return true;
  }

  static bool is_captured(cudaStream_t stream) {
    if (!stream) {
      return false;
    }
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) {
      // A stream that is gone.
      cudaGetLastError();
      return false;
    }
    return status != cudaStreamCaptureStatusNone;
  }

  // PyTorch does not end the use of a private pool whose capture has failed.
  void forget_ended_captures() {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    for (AllocatedTo& it : allocated_to_) {
      if (it.kind == AllocatedTo::CAPTURE && !is_captured(it.captured)) {
        set_no_capture(it);
      }
    }
  }

  void set_no_capture(AllocatedTo& it) {
    it.kind = AllocatedTo::NO_CAPTURE;
    segments_->captures_.fetch_sub(1);
  }

  // Creates a private pool whose segments come from binpool, with one use, and returns whether there was none.
  bool make_pool(DeviceIndex device, MempoolId_t id) {
    if (!pools_.emplace(device, id).second || is_of_native(device, id)) {
      return false;
    }
    // PyTorch's allocator takes no other's segments while its own are expandable ones.
    PoolAllocator allocator = nullptr;
    if (!CUDAAllocatorConfig::expandable_segments()) {
#if BINPOOL_TORCH >= 211
      allocator = segments_;
#else
      allocator = segments_.get();
#endif
    }
    Forwarding::use_pool(device, id, std::move(allocator));
    return true;
  }

  // Returns whether PyTorch's own allocator had a private pool before this one came.
  bool is_of_native(DeviceIndex device, MempoolId_t id) {
    if (!is_late_) {
      return false;
    }
    try {
      return native_->getPoolUseCount(device, id) > 0;
    } catch (const c10::Error&) {
      return false;
    }
  }

  // Tries once more, after everything that can free memory here.
  int request_again(size_t bytes, DeviceIndex device, cudaStream_t stream, Granted& granted) {
    devices_[device]->retries += 1;
    for (const auto& name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) {
      c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
    }
    forget_ended_captures();
    if (segments_->captures_.load() == 0) {
      native_->emptyCache({0, 0});
      segments_->free_kept();
    }
    return functions_.request(bytes, device, stream, &granted);
  }

  // Private pools that PyTorch was told to take memory from before it fails.
  void* request_of_last_resorts(size_t bytes, DeviceIndex device, cudaStream_t stream) {
    std::set<PoolKey> pools;
    {
      std::shared_lock<std::shared_mutex> lock(mutex_);
      pools = last_resorts_;
    }
    for (const auto& [of, id] : pools) {
      if (of != device) {
        continue;
      }
      const int uses = begin_last_resort(device, id);
      if (uses < 0) {
        continue;
      }
      void* pointer = nullptr;
      try {
        Within<bool> within(in_last_resort, true);
        pointer = native_->raw_alloc_with_stream(bytes, stream);
      } catch (const c10::OutOfMemoryError&) {
        // PyTorch's own allocator has counted it, and `run_out` counts it again.
        devices_[device]->shortages -= 1;
      } catch (...) {
        end_last_resort(device, id, uses);
        throw;
      }
      end_last_resort(device, id, uses);
      if (pointer) {
        return pointer;
      }
    }
    return nullptr;
  }

  // Has this thread allocate to a private pool, and returns how many uses of the pool that counts as; -1 where another thread allocates to
  // it, which only one thread can at a time, or the pool is gone.
  int begin_last_resort(DeviceIndex device, MempoolId_t id) {
    const auto self = std::this_thread::get_id();
    std::unique_lock<std::shared_mutex> lock(mutex_);
    if (last_resorts_.count({device, id}) == 0) {
      return -1;
    }
    const int before = native_->getPoolUseCount(device, id);
    int added = -1;
    try {
      native_->beginAllocateToPool(device, id, [self](cudaStream_t) { return std::this_thread::get_id() == self; });
      added = native_->getPoolUseCount(device, id) - before;
    } catch (const c10::Error&) {
      release_uses(device, id, native_->getPoolUseCount(device, id) - before);
    }
    return added;
  }

  void end_last_resort(DeviceIndex device, MempoolId_t id, int uses) {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    native_->endAllocateToPool(device, id);
    release_uses(device, id, uses);
  }

  void release_uses(DeviceIndex device, MempoolId_t id, int uses) {
    for (; uses > 0; --uses) {
      native_->releasePool(device, id);
    }
  }

  // Tells those who watch that memory has run out, and returns the text of the exception.
  std::string run_out(size_t bytes, DeviceIndex index, cudaStream_t stream, const Context& context) {
    const std::string report = functions_.last_error();
    Device& device = *devices_[index];
    device.shortages += 1;
    const auto [free, total] = getMemoryInfo(index);
    const size_t allowed = device.allowed;
    const bool is_limited = allowed != Device::kNoLimit;
    device.refused += is_limited ? 1 : 0;
    history_.record(TraceEntry::OOM, free, bytes, stream, index, context);
    const auto stats = getDeviceStats(index);
    const auto all = static_cast<size_t>(StatType::AGGREGATE);
    const int64_t allocated = stats.allocated_bytes[all].current;
    const int64_t reserved = stats.reserved_bytes[all].current;
    c10::reportOutOfMemoryToProfiler(
        static_cast<int64_t>(bytes), allocated, reserved, c10::Device(c10::DeviceType::CUDA, index));
    for (const auto& observer : history_.observers()) {
      observer(index, bytes, is_limited ? allowed : total, free);
    }
    const std::string limit = is_limited ? in_units(allowed) + " allowed; " : "";
    return "CUDA out of memory. Tried to allocate " + in_units(bytes) + ". GPU " + std::to_string(index) + " has a total capacity of " +
        in_units(total) + " of which " + in_units(free) + " is free. " + limit + "Of the allocated memory " + in_units(allocated) +
        " is allocated by PyTorch, and " + in_units(std::max<int64_t>(reserved - allocated, 0)) +
        " is reserved by PyTorch but unallocated.\nbinpool: " + report;
  }

  // As PyTorch writes sizes.
  static std::string in_units(size_t bytes) {
    const auto size = static_cast<double>(bytes);
    std::array<char, 64> text{};
    if (bytes <= 1024) {
      return std::to_string(bytes) + " bytes";
    } else if (bytes <= 1048576) {
      std::snprintf(text.data(), text.size(), "%.2f KiB", size / 1024.0);
    } else if (bytes <= 1073741824ULL) {
      std::snprintf(text.data(), text.size(), "%.2f MiB", size / 1048576.0);
    } else {
      std::snprintf(text.data(), text.size(), "%.2f GiB", size / 1073741824.0);
    }
    return text.data();
  }

  void report_to_profiler(void* pointer, int64_t bytes, DeviceIndex index) {
    if (C10_LIKELY(!c10::memoryProfilingEnabled())) {
      return;
    }
    const auto stats = getDeviceStats(index);
    const auto all = static_cast<size_t>(StatType::AGGREGATE);
    c10::reportMemoryUsageToProfiler(
        pointer,
        bytes,
        static_cast<size_t>(stats.allocated_bytes[all].current),
        static_cast<size_t>(stats.reserved_bytes[all].current),
        c10::Device(c10::DeviceType::CUDA, index));
  }

  // binpool has no pool of small blocks: all of its figures are among those of large ones.
  static void add(StatArray& stats, const Stat& own) {
    for (auto type : {StatType::AGGREGATE, StatType::LARGE_POOL}) {
      Stat& stat = stats[static_cast<size_t>(type)];
      stat.current += own.current;
      stat.peak += own.peak;
      stat.allocated += own.allocated;
      stat.freed += own.freed;
    }
  }

  // All bytes that were ever mapped.
  static uint64_t mapped(const Figures& figures) {
    return figures.managed + figures.unmapped;
  }

  static Stat with(Stat stat, uint64_t pending) {
    stat.current += static_cast<int64_t>(pending);
    stat.peak = std::max(stat.peak, stat.current);
    return stat;
  }

  const Functions functions_;
  // PyTorch's own allocator has been in use before.
  const bool is_late_ = native_->initialized();
  const bool is_uncached_ = c10::utils::check_env("PYTORCH_NO_CUDA_MEMORY_CACHING") == true;
  std::vector<std::unique_ptr<Device>> devices_;
  Blocks blocks_;
  std::shared_ptr<Segments> segments_;
  History history_;
  Sharing sharing_;

  // Private pools.
  std::shared_mutex mutex_;
  std::vector<AllocatedTo> allocated_to_;
  std::atomic<size_t> allocated_to_count_{0};
  std::set<PoolKey> pools_, last_resorts_;
};

// Lives as long as the program, whose tensors are freed until its end.
Binpool* Binpool::instance = nullptr;

} // namespace
} // namespace binpool

// Puts binpool in the place of PyTorch's allocator; the library is that of the package. Returns null, or why it does not.
extern "C" __attribute__((visibility("default"))) const char* binpool_torch_install(const char* library) {
  static std::string failure;
  static std::mutex mutex;
  // Threads may call `use()` at the same time.
  std::lock_guard<std::mutex> lock(mutex);
  try {
    using binpool::Binpool;
    auto* native = c10::cuda::CUDACachingAllocator::get();
    if (native == Binpool::instance) {
      return nullptr;
    }
    TORCH_CHECK(
        native->name() == "native",
        "the allocator in use is `",
        native->name(),
        "`, not PyTorch's own: choose no other before `binpool.torch.use()`, nor by `PYTORCH_CUDA_ALLOC_CONF=backend:...`");
    void* loaded = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    TORCH_CHECK(loaded, "the library of binpool is not loaded: ", library);
    Binpool::instance = new Binpool(native, loaded);
    if (native->initialized()) {
      Binpool::instance->init(c10::cuda::device_count());
    }
    c10::SetAllocator(c10::DeviceType::CUDA, Binpool::instance);
    c10::cuda::CUDACachingAllocator::allocator.store(Binpool::instance);
    return nullptr;
  } catch (const c10::Error& error) {
    failure = error.what_without_backtrace();
    return failure.c_str();
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
}

// Returns the bytes that a block takes; 0 for one of a private pool, and for one of PyTorch's own.
extern "C" __attribute__((visibility("default"))) uint64_t binpool_torch_granted(uint64_t address) {
  using binpool::Binpool;
  return Binpool::instance ? Binpool::instance->granted(address) : 0;
}

// Writes what the pool of a device has done since the program began.
extern "C" __attribute__((visibility("default"))) void binpool_torch_totals(int device, uint64_t* totals) {
  using binpool::Binpool;
  if (Binpool::instance) {
    const auto found = Binpool::instance->totals(static_cast<c10::DeviceIndex>(device));
    totals[0] = found.served;
    totals[1] = found.refused;
    totals[2] = found.reserved;
    totals[3] = found.live;
  }
}
