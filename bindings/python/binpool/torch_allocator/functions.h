// The functions of the package's library, as bindings/capi/src/torch/class.rs has them.

#pragma once

#include <c10/util/Exception.h>

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace binpool {

struct Granted {
  void* address;
  size_t bytes;
};

struct Figures {
  uint64_t managed, peak_managed, held, pending_blocks, pending, maps, unmaps, unmapped;
};

constexpr int kOutOfMemory = 1;

struct Functions {
  int (*request)(size_t bytes, int device, cudaStream_t stream, Granted* granted);
  void (*free)(void* pointer, ptrdiff_t bytes, int device, cudaStream_t stream);
  void (*record_stream)(void* pointer, cudaStream_t stream);
  void (*empty_cache)();
  void* (*allocate_segment)(ptrdiff_t bytes, int device, cudaStream_t stream);
  void (*free_segment)(void* pointer, ptrdiff_t bytes, int device, cudaStream_t stream);
  Figures (*figures)(int device);
  void (*reset_peaks)(int device);
  int (*set_limit)(int device, uint64_t bytes);
  void (*watch_pages)(void (*watcher)(int device, uint64_t address, size_t bytes, int is_mapped));
  void (*pages)(int device, void (*visit)(void* context, uint64_t address, size_t bytes), void* context);
  int (*share)(
      void* pointer,
      int device,
      cudaStream_t stream,
      void (*visit)(void* context, int descriptor, size_t bytes),
      void* context,
      size_t* offset);
  void (*take_back)(void* pointer);
  int (*receive)(
      int device,
      const int* descriptors,
      const size_t* bytes,
      size_t count,
      void** address,
      void** received);
  void (*drop_received)(void* received);
  int (*enable_peer_access)(int device, int other);
  const char* (*last_error)();

  explicit Functions(void* library) {
    auto find = [library](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      TORCH_CHECK(function, "the library of binpool has no function ", name);
    };
    find(request, "binpool_torch_request");
    find(free, "binpool_torch_free");
    find(record_stream, "binpool_torch_record_stream");
    find(empty_cache, "binpool_torch_empty_cache");
    find(allocate_segment, "binpool_torch_allocate_segment");
    find(free_segment, "binpool_torch_free_segment");
    find(figures, "binpool_torch_figures");
    find(reset_peaks, "binpool_torch_reset_peaks");
    find(set_limit, "binpool_torch_set_limit");
    find(watch_pages, "binpool_torch_watch_pages");
    find(pages, "binpool_torch_pages");
    find(share, "binpool_torch_share");
    find(take_back, "binpool_torch_take_back");
    find(receive, "binpool_torch_receive");
    find(drop_received, "binpool_torch_drop_received");
    find(enable_peer_access, "binpool_torch_enable_peer_access");
    find(last_error, "binpool_last_error_message");
  }

  void check(int status) const {
    TORCH_CHECK(status == 0, "binpool: ", last_error());
  }
};

} // namespace binpool
