// What happens to memory, for snapshots and for those who watch.

#pragma once

#include "forwarding.h"
#include "functions.h"

#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <set>
#include <stack>

namespace binpool {

class History {
 public:
  explicit History(const Functions& functions) : functions_(functions) {}

  bool is_recording() const {
    return is_recording_;
  }

  bool is_observed() const {
    return C10_UNLIKELY(is_observed_.load(std::memory_order_relaxed));
  }

  // Returns who makes a call, where that is recorded. No lock of this file is held: it may ask Python.
  Context gather(RecordContext level) const {
    if (C10_LIKELY(when_.load(std::memory_order_relaxed) < level)) {
      return nullptr;
    }
    // Another thread may end the recording now.
    CreateContextFn recorder = recorder_.load();
    return recorder ? recorder() : nullptr;
  }

  void record_as(const Recording& how, void (*pages_watcher)(int, uint64_t, size_t, int)) {
    std::lock_guard<std::mutex> lock(mutex_);
    is_recording_ = how.enabled;
    most_entries_ = std::max<size_t>(how.most_entries, 1);
    skipped_.clear();
#if BINPOOL_TORCH >= 211
    for (const std::string& action : how.skip) {
      skipped_.insert(c10::CachingDeviceAllocator::parseTraceEntryAction(action));
    }
#endif
    if (!how.enabled || how.clear) {
      entries_.clear();
    }
    recorder_ = how.enabled ? how.recorder : nullptr;
    when_ = how.enabled ? how.when : RecordContext::NEVER;
    observe(pages_watcher);
  }

  void add(AllocatorTraceTracker tracker, void (*pages_watcher)(int, uint64_t, size_t, int)) {
    std::lock_guard<std::mutex> lock(mutex_);
    trackers_.push_back(std::move(tracker));
    observe(pages_watcher);
  }

  void add(OutOfMemoryObserver observer) {
    std::lock_guard<std::mutex> lock(mutex_);
    observers_.push_back(std::move(observer));
  }

  std::vector<OutOfMemoryObserver> observers() {
    std::lock_guard<std::mutex> lock(mutex_);
    return observers_;
  }

  // Kept here, since PyTorch's own allocator asks the device for it, which is gone when the last tensors are freed.
  void set_user_metadata(const std::string& metadata) {
    std::lock_guard<std::mutex> lock(mutex_);
    user_metadata_ = metadata;
  }

  void push_compile_context(const std::string& context) {
    if (is_recording_) {
      compile_contexts().push(context);
    }
  }

  void pop_compile_context() {
    if (is_recording_ && !compile_contexts().empty()) {
      compile_contexts().pop();
    }
  }

  void record(
      TraceEntry::Action action,
      size_t address,
      size_t bytes,
      cudaStream_t stream,
      DeviceIndex device,
      const Context& context,
      [[maybe_unused]] const std::string* metadata = nullptr) {
    if (!is_observed()) {
      return;
    }
    const std::string compiled = compile_contexts().empty() ? "N/A" : compile_contexts().top();
    std::lock_guard<std::mutex> lock(mutex_);
    TraceEntry entry(
        action,
        device,
        address,
        bytes,
        stream,
        {0, 0},
        c10::getApproximateTime(),
        when_ >= RecordContext::ALLOC ? context : nullptr,
        compiled
#if BINPOOL_TORCH >= 210
        ,
        metadata ? *metadata : user_metadata_
#endif
    );
    for (const auto& tracker : trackers_) {
      tracker(entry);
    }
    if (!is_recording_ || skipped_.count(action) > 0) {
      return;
    }
    auto& entries = entries_[device];
    entries.push_back(std::move(entry));
    if (entries.size() > most_entries_) {
      entries.pop_front();
    }
  }

  // Adds what was recorded to the traces of PyTorch's own allocator, by time.
  void add_to(std::vector<std::vector<TraceEntry>>& traces) {
    auto to_ns = clock_.makeConverter();
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [device, entries] : entries_) {
      traces.resize(std::max<size_t>(traces.size(), device + 1));
      auto& trace = traces[device];
      for (TraceEntry entry : entries) {
        entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
        trace.push_back(std::move(entry));
      }
      std::stable_sort(trace.begin(), trace.end(), [](const TraceEntry& one, const TraceEntry& other) {
        return one.time_.t_ < other.time_.t_;
      });
      if (trace.size() > most_entries_) {
        trace.erase(trace.begin(), trace.end() - static_cast<ptrdiff_t>(most_entries_));
      }
    }
  }

 private:
  static std::stack<std::string>& compile_contexts() {
    static thread_local std::stack<std::string> contexts;
    return contexts;
  }

  // The lock is held.
  void observe(void (*pages_watcher)(int, uint64_t, size_t, int)) {
    is_observed_ = is_recording_ || !trackers_.empty();
    functions_.watch_pages(is_observed_ ? pages_watcher : nullptr);
  }

  const Functions& functions_;
  std::atomic<bool> is_observed_{false}, is_recording_{false};
  std::atomic<CreateContextFn> recorder_{nullptr};
  std::atomic<RecordContext> when_{RecordContext::NEVER};
  std::mutex mutex_;
  size_t most_entries_ = 1;
  std::string user_metadata_;
  std::map<DeviceIndex, std::deque<TraceEntry>> entries_;
  std::set<TraceEntry::Action> skipped_;
  std::vector<OutOfMemoryObserver> observers_;
  std::vector<AllocatorTraceTracker> trackers_;
  c10::ApproximateClockToUnixTimeConverter clock_;
};

} // namespace binpool
