// Where the memory of a device lies, as PyTorch's snapshots show it.

#pragma once

#include "blocks.h"
#include "segments.h"

#include <map>
#include <utility>
#include <vector>

namespace binpool {

// One range of addresses where pages are mapped, block by block.
class Range {
 public:
  Range(DeviceIndex device, uint64_t begin) {
    segment_.device = device;
    segment_.address = begin;
    segment_.is_large = true;
    segment_.is_expandable = true;
  }

  // Adds a block that ends there; free memory where it is null.
  void add(uint64_t end, const Block* block) {
    const uint64_t begin = segment_.address + segment_.total_size;
    if (end <= begin) {
      return;
    }
    BlockInfo info;
    info.size = end - begin;
    if (block) {
      info.requested_size = block->asked;
      info.allocated = info.active = true;
      info.context_when_allocated = block->context;
      segment_.allocated_size += info.size;
      segment_.active_size += info.size;
      segment_.requested_size += info.requested_size;
    }
    segment_.total_size += info.size;
    segment_.blocks.push_back(std::move(info));
  }

  void end(std::vector<SegmentInfo>& segments) {
    if (segment_.total_size > 0) {
      segments.push_back(std::move(segment_));
    }
  }

 private:
  SegmentInfo segment_;
};

// Adds a segment for each range of addresses where pages are mapped. The segments of PyTorch's own allocator are left out, which it has in
// its own snapshot.
inline void add_segments(
    DeviceIndex device,
    const Functions& functions,
    const std::map<uint64_t, Block>& blocks,
    const std::map<uint64_t, Segment>& lent,
    std::vector<SegmentInfo>& segments) {
  // Where each block or segment ends, and the block.
  std::map<uint64_t, std::pair<uint64_t, const Block*>> taken;
  for (const auto& [address, block] : blocks) {
    taken.emplace(address, std::make_pair(address + block.bytes, &block));
  }
  for (const auto& [address, segment] : lent) {
    if (segment.device == device) {
      taken.emplace(address, std::make_pair(address + segment.bytes, nullptr));
    }
  }
  using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;
  Ranges ranges;
  auto note = [](void* context, uint64_t address, size_t bytes) {
    auto& ranges = *static_cast<Ranges*>(context);
    if (!ranges.empty() && ranges.back().second == address) {
      ranges.back().second += bytes;
    } else {
      ranges.emplace_back(address, address + bytes);
    }
  };
  functions.pages(device, note, &ranges);
  for (const auto& [begin, end] : ranges) {
    Range range(device, begin);
    for (auto at = taken.lower_bound(begin); at != taken.end() && at->first < end; ++at) {
      const auto& [until, block] = at->second;
      range.add(at->first, nullptr);
      if (block) {
        range.add(until, block);
      } else {
        range.end(segments);
        range = Range(device, until);
      }
    }
    range.add(end, nullptr);
    range.end(segments);
  }
}

} // namespace binpool
