// Handles of memory that processes share.

#pragma once

#include "forwarding.h"
#include "functions.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>

namespace binpool {

// A handle begins like this where PyTorch's own format does not do, since the pages have several sizes. PyTorch's allocator says of it that it
// comes from a later version.
constexpr char kManyPages[] = "\xb1" "binpool";

// As handles of PyTorch's expandable segments begin, which every process with PyTorch reads.
constexpr char kVersion = 2;
constexpr char kExpandableSegment = 'e';
struct PagesOfOneSize {
  pid_t pid;
  size_t page_bytes;
  size_t count;
};

// Memory of this process for others, and of others for this one.
class Sharing {
 public:
  explicit Sharing(const Functions& functions) : functions_(functions) {}

  static bool is_ours(const std::string& handle) {
    return handle.rfind(kManyPages, 0) == 0;
  }

  // Returns the handle of a block of the pool.
  ShareableHandle share(void* pointer, DeviceIndex device, cudaStream_t stream) const {
    using Pages = std::vector<std::pair<int, size_t>>;
    Pages pages;
    size_t offset = 0;
    auto note = [](void* context, int descriptor, size_t bytes) {
      static_cast<Pages*>(context)->emplace_back(descriptor, bytes);
    };
    functions_.check(functions_.share(pointer, device, stream, note, &pages, &offset));
    std::ostringstream out;
    const size_t page_bytes = pages.empty() ? 0 : pages.front().second;
    if (std::all_of(pages.begin(), pages.end(), [&](const auto& page) { return page.second == page_bytes; })) {
      out.put(kVersion);
      out.put(kExpandableSegment);
      put(out, PagesOfOneSize{getpid(), page_bytes, pages.size()});
      for (const auto& page : pages) {
        put(out, page.first);
      }
    } else {
      out << kManyPages;
      put(out, getpid());
      put(out, pages.size());
      for (const auto& [descriptor, bytes] : pages) {
        put(out, descriptor);
        put(out, bytes);
      }
    }
    return {static_cast<ptrdiff_t>(offset), out.str()};
  }

  // Returns the memory of a handle of ours, which is mapped once.
  std::shared_ptr<void> receive(const std::string& handle) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto found = received_.find(handle); found != received_.end()) {
      if (auto known = found->second.lock()) {
        return known;
      }
    }
    for (auto at = received_.begin(); at != received_.end();) {
      at = at->second.expired() ? received_.erase(at) : std::next(at);
    }
    auto memory = map(handle);
    received_[handle] = memory;
    return memory;
  }

 private:
  template <typename T>
  static void put(std::ostream& out, const T& value) {
    out.write(reinterpret_cast<const char*>(&value), sizeof(T));
  }

  template <typename T>
  static T got(std::istream& in) {
    T value{};
    in.read(reinterpret_cast<char*>(&value), sizeof(T));
    return value;
  }

  std::shared_ptr<void> map(const std::string& handle) const {
    std::istringstream in(handle.substr(sizeof(kManyPages) - 1));
    const auto pid = got<pid_t>(in);
    const auto count = got<size_t>(in);
    const auto bytes_of_page = sizeof(int) + sizeof(size_t);
    const size_t header = sizeof(kManyPages) - 1 + sizeof(pid_t) + sizeof(size_t);
    TORCH_CHECK(
        in && count > 0 && (handle.size() - header) / bytes_of_page == count && (handle.size() - header) % bytes_of_page == 0,
        "a handle of shared memory that is not as binpool writes it: it has ",
        handle.size(),
        " bytes");
    const auto process = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    TORCH_CHECK(process >= 0, "pidfd_open: ", std::strerror(errno));
    std::vector<int> descriptors;
    std::vector<size_t> bytes;
    int error = 0;
    for (size_t page = 0; page < count && error == 0; ++page) {
      const auto theirs = got<int>(in);
      const auto own = static_cast<int>(syscall(SYS_pidfd_getfd, process, theirs, 0));
      error = own < 0 ? errno : 0;
      descriptors.push_back(own);
      bytes.push_back(got<size_t>(in));
    }
    close(process);
    void* address = nullptr;
    void* received = nullptr;
    int status = 0;
    if (error == 0) {
      DeviceIndex device = 0;
      C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
      status = functions_.receive(device, descriptors.data(), bytes.data(), descriptors.size(), &address, &received);
    }
    for (int descriptor : descriptors) {
      if (descriptor >= 0) {
        close(descriptor);
      }
    }
    TORCH_CHECK(error == 0, "pidfd_getfd: ", std::strerror(error));
    functions_.check(status);
    return {address, [this, received](void*) { functions_.drop_received(received); }};
  }

  const Functions& functions_;
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<void>> received_;
};

} // namespace binpool
