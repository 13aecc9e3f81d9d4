// binpool for C++17 and later, over the C interface of binpool.h: pools, blocks, recordings and tags as values that free themselves, errors
// as exceptions, and memory resources for std::pmr and for CUDA's libraries.
//
// Handles are borrowed by `handle()`, so that everything here mixes with calls of the C interface. All member functions may be called from
// any thread at the same time, but for those that change the value itself: moves, `free`, `finish`, destructors.

#ifndef BINPOOL_HPP
#define BINPOOL_HPP

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#if __has_include(<memory_resource>)
#include <memory_resource>
#endif

#include "binpool.h"

namespace binpool {

// A call that failed. `what()` is the whole message, which may have several lines.
class error : public std::runtime_error {
 public:
  error(binpool_status status, const std::string &message) : std::runtime_error(message), status_(status) {}

  binpool_status status() const noexcept { return status_; }

 private:
  binpool_status status_;
};

// No memory is left, after everything that the pool could try. `what()` is a report: who has the memory, and what to do.
class out_of_memory : public error {
 public:
  explicit out_of_memory(const std::string &report) : error(BINPOOL_STATUS_OUT_OF_MEMORY, report) {}
};

// What a memory resource throws instead of `out_of_memory`, since its callers catch `std::bad_alloc`.
class bad_alloc : public std::bad_alloc {
 public:
  explicit bad_alloc(const std::runtime_error &report) : report_(report) {}

  const char *what() const noexcept override { return report_.what(); }

 private:
  std::runtime_error report_;
};

// Throws the error of a call of the C interface that this thread has just made, unless it went well.
inline void check(binpool_status status) {
  if (status == BINPOOL_STATUS_OK) return;
  if (status == BINPOOL_STATUS_OUT_OF_MEMORY) throw out_of_memory(binpool_last_error_message());
  throw error(status, binpool_last_error_message());
}

namespace detail {

struct free_handle {
  void operator()(binpool_pool *pool) const noexcept { binpool_pool_free(pool); }
  void operator()(binpool_block *block) const noexcept { binpool_block_free(block); }
  void operator()(binpool_recording *recording) const noexcept { binpool_recording_finish(recording, nullptr); }
  void operator()(char *text) const noexcept { binpool_string_free(text); }
};

template <class T>
using owned = std::unique_ptr<T, free_handle>;

}  // namespace detail

// The settings of a pool: `binpool_options` with its size filled in. A field that is 0 leaves the choice to binpool.
struct options : binpool_options {
  options() noexcept : binpool_options() { struct_size = sizeof(binpool_options); }
};

// The buffer that a block is all or a part of, and where the block begins in it, in bytes.
struct cl_place {
  void *memory;
  std::size_t offset;
};

// A block of device memory. It goes back to its pool when it is destroyed, and its next user comes after the commands that were enqueued by
// then: enqueue first, then destroy. It may outlive its pool. A default-constructed or moved-from block is empty.
class block {
 public:
  block() noexcept = default;

  // Takes over a handle, which is freed with this value.
  explicit block(binpool_block *handle) noexcept : handle_(handle) {}

  explicit operator bool() const noexcept { return handle_ != nullptr; }

  binpool_block *handle() const noexcept { return handle_.get(); }

  // Returns the handle, which the caller frees from now on.
  binpool_block *release() noexcept { return handle_.release(); }

  // Frees the block now, as the destructor does, but says what goes wrong.
  void free() { check(binpool_block_free(handle_.release())); }

  // The size as it was requested, in bytes.
  std::size_t size() const noexcept { return binpool_block_size(handle_.get()); }

  // What the block takes of the device, in bytes.
  std::size_t class_size() const noexcept { return binpool_block_class_size(handle_.get()); }

  // The buffer, for copies, fills and maps.
  cl_place cl_mem() const {
    cl_place place{};
    check(binpool_block_cl_mem(handle_.get(), &place.memory, &place.offset));
    return place;
  }

  // The `cl_mem` for the argument of a kernel.
  void *cl_kernel_argument() const {
    void *memory = nullptr;
    check(binpool_block_cl_kernel_argument(handle_.get(), &memory));
    return memory;
  }

  // The address on a CUDA device, a `CUdeviceptr`.
  std::uint64_t device_ptr() const {
    std::uint64_t address = 0;
    check(binpool_block_device_ptr(handle_.get(), &address));
    return address;
  }

  // The address of shared memory. Commands of a former user may still run when the block is new: call `wait` before the host uses it.
  void *host_ptr() const {
    void *address = nullptr;
    check(binpool_block_host_ptr(handle_.get(), &address));
    return address;
  }

  // Waits until everything has ended that was enqueued on the block's queue so far.
  void wait() const { check(binpool_block_wait(handle_.get())); }

  // Tells the pool that commands on another queue use the block. The program puts them after those of the block's own queue.
  void record_use(void *queue) const { check(binpool_block_record_use(handle_.get(), queue)); }

  // Makes another queue wait, on the device, for what was enqueued on the block's queues so far, and records that it uses the block.
  void order_before(void *queue) const { check(binpool_block_order_before(handle_.get(), queue)); }

 private:
  detail::owned<binpool_block> handle_;
};

// A recording of a pool, which ends when it is destroyed. Call `finish` to learn whether the file was written.
class recording {
 public:
  // Takes over a handle, which is finished with this value.
  explicit recording(binpool_recording *handle) noexcept : handle_(handle) {}

  // Ends the recording, and returns what it has.
  binpool_recording_summary finish() {
    binpool_recording_summary summary{};
    check(binpool_recording_finish(handle_.release(), &summary));
    return summary;
  }

 private:
  detail::owned<binpool_recording> handle_;
};

// A pool of device memory. Queues are the program's own: a `cl_command_queue` or a `CUstream`.
class pool {
 public:
  // Takes over a handle, which is freed with this value.
  explicit pool(binpool_pool *handle) noexcept : handle_(handle) {}

  // Makes a pool over OpenCL, whose blocks are for `queue` unless their allocation names another.
  static pool opencl(void *context, void *device, void *queue, const options &settings = options()) {
    binpool_pool *made = nullptr;
    check(binpool_pool_new_opencl(context, device, queue, &settings, &made));
    return pool(made);
  }

  // Makes a pool over the primary context of a CUDA device, whose blocks are for `stream` unless their allocation names another.
  static pool cuda(std::uint32_t device, void *stream, const options &settings = options()) {
    binpool_pool *made = nullptr;
    check(binpool_pool_new_cuda(device, stream, &settings, &made));
    return pool(made);
  }

  binpool_pool *handle() const noexcept { return handle_.get(); }

  // Allocates for the pool's queue.
  block allocate(std::size_t bytes) {
    binpool_status status = BINPOOL_STATUS_OK;
    block made = allocate(bytes, status);
    check(status);
    return made;
  }

  // The same without exceptions: where `status` is not `BINPOOL_STATUS_OK`, the block is empty, and `binpool_last_error_message` says why.
  block allocate(std::size_t bytes, binpool_status &status) noexcept {
    binpool_block *made = nullptr;
    status = binpool_allocate(handle_.get(), bytes, &made);
    return block(made);
  }

  // Allocates for another queue than the pool's.
  block allocate_on(void *queue, std::size_t bytes) {
    binpool_status status = BINPOOL_STATUS_OK;
    block made = allocate_on(queue, bytes, status);
    check(status);
    return made;
  }

  // The same without exceptions, as `allocate` has it.
  block allocate_on(void *queue, std::size_t bytes, binpool_status &status) noexcept {
    binpool_block *made = nullptr;
    status = binpool_allocate_on(handle_.get(), queue, bytes, &made);
    return block(made);
  }

  // Tells the pool that the program is done with a queue.
  void retire_queue(void *queue) { check(binpool_pool_retire_queue(handle_.get(), queue)); }

  // The counters, all taken at the same moment.
  binpool_statistics statistics() const {
    binpool_statistics now{};
    check(binpool_pool_statistics(handle_.get(), &now, sizeof now));
    return now;
  }

  // A report for people: the counters, and who has the blocks in use.
  std::string report() const { return text_of(binpool_pool_report); }

  // What the pool has, block by block, for `binpool view`.
  std::string snapshot_json() const { return text_of(binpool_pool_snapshot_json); }

  // The most bytes that the pool may take from the device; 0 means no limit.
  std::uint64_t limit() const {
    std::uint64_t bytes = 0;
    check(binpool_pool_limit(handle_.get(), &bytes));
    return bytes;
  }

  void set_limit(std::uint64_t bytes) { check(binpool_pool_set_limit(handle_.get(), bytes)); }

  // Releases free memory until the pool has at most `bytes` bytes of the device, and returns how many bytes went back.
  std::uint64_t trim(std::uint64_t bytes = 0) {
    std::uint64_t released = 0;
    check(binpool_pool_trim(handle_.get(), bytes, &released));
    return released;
  }

  // Begins to note the tag and the age of each block, and with `call_stacks` the functions that asked for it.
  void watch(bool call_stacks = false) { check(binpool_pool_watch(handle_.get(), call_stacks ? 1 : 0)); }

  void stop_watching() { check(binpool_pool_stop_watching(handle_.get())); }

  // Begins to write down every request in a new file at `path`.
  recording record(const std::string &path) {
    binpool_recording *made = nullptr;
    check(binpool_pool_record(handle_.get(), path.c_str(), &made));
    return recording(made);
  }

 private:
  std::string text_of(binpool_status (*ask)(const binpool_pool *, char **)) const {
    char *text = nullptr;
    check(ask(handle_.get(), &text));
    return detail::owned<char>(text).get();
  }

  detail::owned<binpool_pool> handle_;
};

// A tag for the blocks that this thread allocates until the end of the scope. The thread that makes it destroys it.
class [[nodiscard]] tag {
 public:
  explicit tag(const char *name) { check(binpool_tag_enter(name)); }
  explicit tag(const std::string &name) : tag(name.c_str()) {}
  ~tag() { binpool_tag_leave(); }
  tag(const tag &) = delete;
  tag &operator=(const tag &) = delete;
};

namespace detail {

// Blocks by their addresses, for interfaces that free an address.
class blocks_by_address {
 public:
  // Keeps a block of at least `bytes` bytes at a multiple of `alignment`, and returns its address. `allocate` makes a block of the
  // size that it is given, and `address` returns where the block is.
  template <class Allocate, class Address>
  void *add(std::size_t bytes, std::size_t alignment, Allocate allocate, Address address) {
    try {
      if (bytes == 0) bytes = 1;
      block made = allocate(bytes);
      std::uintptr_t at = address(made);
      if (at % alignment != 0) {
        if (bytes > std::numeric_limits<std::size_t>::max() - alignment) throw std::bad_alloc();
        made = block();
        made = allocate(bytes + alignment - 1);
        at = (address(made) + alignment - 1) / alignment * alignment;
      }
      const std::lock_guard<std::mutex> guard(lock_);
      blocks_.emplace(at, std::move(made));
      return reinterpret_cast<void *>(at);
    } catch (const out_of_memory &shortage) {
      throw bad_alloc(shortage);
    }
  }

  // Returns the block at an address that `add` has returned; an empty one for any other.
  block take(void *address) noexcept {
    const std::lock_guard<std::mutex> guard(lock_);
    auto node = blocks_.extract(reinterpret_cast<std::uintptr_t>(address));
    return node.empty() ? block() : std::move(node.mapped());
  }

 private:
  std::mutex lock_;
  std::unordered_map<std::uintptr_t, block> blocks_;
};

}  // namespace detail

#if defined(__cpp_lib_memory_resource)

// A memory resource for containers whose elements host and device use, over a pool of its own with `BINPOOL_MEMORY_SHARED`.
//
// A container frees its memory on the host, so the program first waits for the commands that use it. Memory is then reused without another wait,
// which is why the pool belongs to the resource alone. The resource outlives its containers. Throws `bad_alloc` where no memory is left.
class host_resource final : public std::pmr::memory_resource {
 public:
  explicit host_resource(binpool::pool shared) noexcept : pool_(std::move(shared)) {}

  // For counters, reports and limits.
  binpool::pool &pool() noexcept { return pool_; }

 private:
  void *do_allocate(std::size_t bytes, std::size_t alignment) override {
    return blocks_.add(
        bytes, alignment, [this](std::size_t padded) { return pool_.allocate(padded); },
        [](const block &made) { return reinterpret_cast<std::uintptr_t>(made.host_ptr()); });
  }

  void do_deallocate(void *address, std::size_t, std::size_t) override { blocks_.take(address); }

  bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

  binpool::pool pool_;
  detail::blocks_by_address blocks_;
};

#endif  // __cpp_lib_memory_resource

// A pool over CUDA as a memory resource of CCCL (`cuda::mr::resource`, from 3.1 on) and RMM (from 25.12 on), without their headers: the properties of
// the memory are named by the program.
//
//     binpool::device_resource<cuda::mr::device_accessible> resource(binpool::pool::cuda(0, nullptr));
//     rmm::device_async_resource_ref ref = resource;
//
// A copy is the same resource. Throws `bad_alloc` where no memory is left.
template <class... Properties>
class device_resource {
 public:
  explicit device_resource(binpool::pool upstream) : state_(std::make_shared<state>(std::move(upstream))) {}

  // For counters, reports and limits.
  binpool::pool &pool() const noexcept { return state_->pool; }

  // Allocates for a stream: a `cudaStream_t`, a `cuda::stream_ref` or an `rmm::cuda_stream_view`.
  template <class Stream>
  void *allocate(Stream stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    void *queue = handle_of(stream);
    return state_->blocks.add(
        bytes, alignment, [this, queue](std::size_t padded) { return pool().allocate_on(queue, padded); }, address_of);
  }

  // Frees memory after what was enqueued on `stream`, which may be another than that of the allocation.
  template <class Stream>
  void deallocate(Stream stream, void *address, std::size_t, std::size_t = default_alignment) noexcept {
    block memory = state_->blocks.take(address);
    if (memory && binpool_block_record_use(memory.handle(), handle_of(stream)) != BINPOOL_STATUS_OK) {
      // The stream is not one of this device, so it is unknown when it is done with the memory, which is kept forever.
      static_cast<void>(memory.release());
    }
  }

  // Allocates memory that every stream may use at once.
  void *allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment) {
    return state_->blocks.add(
        bytes, alignment,
        [this](std::size_t padded) {
          block made = pool().allocate(padded);
          made.wait();
          return made;
        },
        address_of);
  }

  // Frees memory that no command uses any more.
  void deallocate_sync(void *address, std::size_t, std::size_t = default_alignment) noexcept {
    state_->blocks.take(address);
  }

  friend bool operator==(const device_resource &one, const device_resource &other) noexcept {
    return one.state_ == other.state_;
  }
  friend bool operator!=(const device_resource &one, const device_resource &other) noexcept { return !(one == other); }

  template <class Property, std::enable_if_t<std::disjunction_v<std::is_same<Property, Properties>...>, int> = 0>
  friend constexpr void get_property(const device_resource &, Property) noexcept {}

 private:
  // That of `cudaMalloc`.
  static constexpr std::size_t default_alignment = 256;

  struct state {
    explicit state(binpool::pool upstream) noexcept : pool(std::move(upstream)) {}

    binpool::pool pool;
    detail::blocks_by_address blocks;
  };

  template <class Stream>
  static void *handle_of(const Stream &stream) noexcept {
    if constexpr (std::is_convertible_v<const Stream &, void *>) {
      return stream;
    } else {
      return stream.get();
    }
  }

  static std::uintptr_t address_of(const block &made) { return static_cast<std::uintptr_t>(made.device_ptr()); }

  std::shared_ptr<state> state_;
};

}  // namespace binpool

#endif  // BINPOOL_HPP
