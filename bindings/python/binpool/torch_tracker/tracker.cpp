// Tells the recording of `binpool run` what PyTorch's allocator for CUDA does.
//
// The package builds this against the installed PyTorch, and calls `binpool_tracker_attach` once CUDA is in use. It is called with PyTorch's locks
// held, so it calls neither Python nor the allocator's own functions.

#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>

namespace {

using c10::cuda::CUDACachingAllocator::TraceEntry;

// As tools/layer/src/framework.rs has it.
struct Event {
  uint32_t what;
  int32_t device;
  uint64_t address, bytes, granted, stream;
  const char* note;
  uint32_t own_frames;
};

enum What : uint32_t { ALLOCATED, WAITING, FREED, TAKEN, GIVEN_BACK, MAPPED, UNMAPPED, REFUSED };

using Tell = void (*)(const Event* event);

Tell tell = nullptr;

// Returns what a block takes, where binpool is PyTorch's allocator. Segments of PyTorch's own allocator lie in its pages then.
uint64_t (*granted)(uint64_t address) = nullptr;

// The last free of each device, until it is known whether commands of another stream still use the block. PyTorch locks each device.
std::array<Event, 128> freed;

// Returns what the program, or its compiler, says of the allocation, as a line for each: innermost first.
std::string note_of(const TraceEntry& entry) {
  std::string note;
#if BINPOOL_TORCH >= 210
  if (!entry.user_metadata_.empty()) {
    note += "note " + entry.user_metadata_ + "\n";
  }
#endif
  if (!entry.compile_context_.empty() && entry.compile_context_ != "N/A") {
    note += "compiled " + entry.compile_context_ + "\n";
  }
  return note;
}

// With binpool as the allocator, events of private pools come with a lock of PyTorch's own allocator, and others with one of binpool's.
std::mutex of_both;

void see(const TraceEntry& entry) {
  std::unique_lock<std::mutex> lock(of_both, std::defer_lock);
  if (granted) {
    lock.lock();
  }
  Event event{};
  std::string note;
  event.device = entry.device_;
  event.address = static_cast<uint64_t>(entry.addr_);
  event.bytes = entry.size_;
  event.stream = reinterpret_cast<uint64_t>(entry.stream_);
  Event& before = freed.at(static_cast<size_t>(entry.device_));
  const bool is_completed = entry.action_ == TraceEntry::FREE_COMPLETED && before.address == event.address;
  if (before.address != 0 && !is_completed) {
    tell(&before);
  }
  before.address = 0;
  switch (entry.action_) {
    case TraceEntry::ALLOC:
      event.what = ALLOCATED;
      event.granted = granted ? granted(event.address) : 0;
      note = note_of(entry);
      event.note = note.empty() ? nullptr : note.c_str();
      break;
    case TraceEntry::FREE_REQUESTED:
      event.what = WAITING;
      before = event;
      return;
    case TraceEntry::FREE_COMPLETED:
      event.what = FREED;
      break;
    case TraceEntry::SEGMENT_ALLOC:
    case TraceEntry::SEGMENT_FREE:
      if (granted) {
        return;
      }
      event.what = entry.action_ == TraceEntry::SEGMENT_ALLOC ? TAKEN : GIVEN_BACK;
      break;
    case TraceEntry::SEGMENT_MAP:
      event.what = MAPPED;
      break;
    case TraceEntry::SEGMENT_UNMAP:
      event.what = UNMAPPED;
      break;
    case TraceEntry::OOM:
      event.what = REFUSED;
      break;
    default:
      return;
  }
  tell(&event);
}

} // namespace

// Attaches the function of the layer; `of` says what a block takes, or is null. Returns null, or why it cannot.
extern "C" __attribute__((visibility("default"))) const char* binpool_tracker_attach(Tell to, uint64_t (*of)(uint64_t address)) {
  static std::string failure;
  if (tell) {
    return nullptr;
  }
  try {
    tell = to;
    granted = of;
    c10::cuda::CUDACachingAllocator::get()->attachAllocatorTraceTracker(&see);
    return nullptr;
  } catch (const c10::Error& error) {
    failure = error.what_without_backtrace();
    return failure.c_str();
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
}
