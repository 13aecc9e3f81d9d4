/* The C interface of binpool, a memory pool for GPUs. Made by scripts/header from bindings/capi/src: change it there.
 *
 * Handles are freed once, by the function that their documentation names. Every function that can fail returns a
 * binpool_status, and binpool_last_error_message says why. No exception and no panic comes out of a function.
 *
 * All functions may be called from any thread, and at the same time, also with the same handle. Only what frees a
 * handle is called when no other thread uses it. */

#ifndef BINPOOL_H
#define BINPOOL_H

#include <stddef.h>
#include <stdint.h>

// The version of this header. `binpool_version` returns that of the library.
#define BINPOOL_VERSION "0.1.0"
#define BINPOOL_VERSION_MAJOR 0
#define BINPOOL_VERSION_MINOR 1
#define BINPOOL_VERSION_PATCH 0

// The result of a call. After a failure, `binpool_last_error_message` has the message.
//
// Later versions may add values: treat unknown ones as `BINPOOL_STATUS_BACKEND`.
typedef enum {
  // The call succeeded.
  BINPOOL_STATUS_OK = 0,
  // No memory is left, even after the pool has tried everything. The message is a report with advice.
  BINPOOL_STATUS_OUT_OF_MEMORY = 1,
  // An argument is wrong: a null pointer, a queue of another context, a value outside its enum.
  BINPOOL_STATUS_INVALID_ARGUMENT = 2,
  // The device, the driver or the pool does not support the request; the message says what to do instead.
  BINPOOL_STATUS_UNSUPPORTED = 3,
  // A call of the driver failed.
  BINPOOL_STATUS_BACKEND = 4,
  // The device is lost: nothing that lives on it can be used again.
  BINPOOL_STATUS_DEVICE_LOST = 5,
  // The pool is being recorded already.
  BINPOOL_STATUS_BUSY = 6,
  // A file could not be written.
  BINPOOL_STATUS_IO = 7,
  // A bug in binpool. The call did its work in part or not at all.
  BINPOOL_STATUS_PANIC = 8,
} binpool_status;

// Where a pool's memory lies: the values of `memory` in `binpool_options`.
typedef enum {
  // The default: `BINPOOL_MEMORY_DEVICE`.
  BINPOOL_MEMORY_DEFAULT = 0,
  // Memory of the device, which the host reaches by copies and maps.
  BINPOOL_MEMORY_DEVICE = 1,
  // Memory that host and device use at the same address (`binpool_block_host_ptr`): fine-grained shared virtual memory of OpenCL, managed
  // memory of CUDA. Without such memory on the device, making a pool fails with `UNSUPPORTED`.
  BINPOOL_MEMORY_SHARED = 2,
} binpool_memory;

// How free blocks are reused on other queues: the values of `reuse` in `binpool_options`.
typedef enum {
  // The default: `BINPOOL_REUSE_OPPORTUNISTIC`.
  BINPOOL_REUSE_DEFAULT = 0,
  // Each queue reuses only what it has used itself.
  BINPOOL_REUSE_SAME_QUEUE = 1,
  // A block goes to another queue once the commands of its former user have ended.
  BINPOOL_REUSE_OPPORTUNISTIC = 2,
  // Likewise, but at once if the commands have not ended, with a wait on the device.
  BINPOOL_REUSE_INSERT_WAIT = 3,
  // Likewise, but after a wait on the host if the commands have not ended.
  BINPOOL_REUSE_WAIT_ON_HOST = 4,
} binpool_reuse;

// Segments, or a buffer of its own for each block: the values of `segments` in `binpool_options`.
typedef enum {
  // The default: `BINPOOL_SEGMENTS_ON`.
  BINPOOL_SEGMENTS_DEFAULT = 0,
  // Blocks are parts of large pieces of device memory, in which free neighbours merge.
  BINPOOL_SEGMENTS_ON = 1,
  // Each block is a buffer of its own. Not for the device memory of CUDA, whose pools map pages.
  BINPOOL_SEGMENTS_OFF = 2,
} binpool_segments;

// A block of device memory, which returns to its pool when it is freed. Any thread may use it, and several at once.
typedef struct binpool_block binpool_block;

// A pool of device memory. Any thread may use it, and several at once.
typedef struct binpool_pool binpool_pool;

// A recording of a pool, which goes on until it is finished.
typedef struct binpool_recording binpool_recording;

// The settings of a pool. A field of 0 means the default, so this is enough:
//
// ```c
// binpool_options options = {.struct_size = sizeof options, .limit_bytes = 1 << 30};
// ```
typedef struct {
  // The size of this struct as the program knows it. Later versions may add fields after the others.
  size_t struct_size;
  // The most bytes that the pool may take from the device. 0 means no limit, as for `binpool_pool_set_limit` and `binpool_pool_limit`; a
  // limit of 0 bytes cannot be set.
  uint64_t limit_bytes;
  // A value of `binpool_segments`.
  uint32_t segments;
  // A value of `binpool_reuse`.
  uint32_t reuse;
  // A value of `binpool_memory`.
  uint32_t memory;
  // Padding, which is 0, so that every byte of the struct has a name.
  uint32_t reserved;
} binpool_options;

// The counters of a pool, all taken at the same moment. Sizes in bytes.
//
// Active: in use by the program. Held: free, in the pool. Managed: both together, in whole blocks. Pending: held, but commands of a
// former user may still run.
typedef struct {
  // Active blocks.
  uint64_t active_blocks;
  // Active bytes, as they were requested.
  uint64_t active_bytes;
  // The highest value of `active_bytes`.
  uint64_t peak_active_bytes;
  // Free blocks in the pool. Free parts of segments do not count as blocks.
  uint64_t held_blocks;
  // The sizes of the held blocks, and of the free parts of segments.
  uint64_t held_bytes;
  // Held blocks that commands on several queues, or on an out-of-order queue, may still use.
  uint64_t pending_blocks;
  // The sizes of the pending blocks, and of the free parts of segments that are pending in the same way.
  uint64_t pending_bytes;
  // All bytes that the pool has from the device.
  uint64_t managed_bytes;
  // The highest value of `managed_bytes`.
  uint64_t peak_managed_bytes;
  // Allocations that a held block served.
  uint64_t hits;
  // Hits by blocks that were carved from a segment that the pool had already.
  uint64_t carved_hits;
  // Hits by blocks of another queue whose commands had ended.
  uint64_t ended_hits;
  // Hits for which a queue waits on the device.
  uint64_t device_wait_hits;
  // Hits for which the host waited.
  uint64_t host_wait_hits;
  // Allocations that asked the device for memory.
  uint64_t misses;
  // Allocations of 0 bytes.
  uint64_t empty_allocations;
  // Allocations that failed for lack of memory.
  uint64_t out_of_memory;
  // Free blocks or segments that went back to the device.
  uint64_t released_blocks;
  // Calls that mapped pages, in a CUDA pool.
  uint64_t maps;
  // Calls that unmapped pages.
  uint64_t unmaps;
  // The time that pages took to move to other addresses, in nanoseconds.
  uint64_t move_nanoseconds;
  // Active blocks that were released while views of them are in use.
  uint64_t viewed_blocks;
  // The sizes of the viewed blocks, in whole blocks.
  uint64_t viewed_bytes;
  // The blocks of a period, if the program repeats its work and the pool has a plan for it; 0 without one.
  uint64_t planned_blocks;
  // The bytes of the segments with planned places.
  uint64_t planned_bytes;
  // The most of the planned bytes that are in use at once.
  uint64_t planned_peak_bytes;
} binpool_statistics;

// The counts of a recording.
typedef struct {
  // Blocks that were handed out.
  uint64_t allocations;
  // Blocks that were freed.
  uint64_t frees;
  // Requests that failed for lack of memory.
  uint64_t shortages;
} binpool_recording_summary;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Frees a block: its memory returns to the pool, after the commands enqueued on the block's queues so far. Enqueue first,
// then free: the pool does not know of commands enqueued later. The handle is gone, whatever the call returns. The pool may be
// gone, too.
//
// Called once for each block, by any thread, when no other thread uses the handle.
//
// The caller promises: `block` is null, or a block that was not freed yet and that no thread uses during or after the call. Its `cl_mem` and its address are not used
// by commands that are enqueued later.
binpool_status binpool_block_free(binpool_block *block);

// Returns the size of a block as it was requested, in bytes; 0 for a null pointer.
//
// Any thread may call it.
//
// The caller promises: `block` is null or a live block.
size_t binpool_block_size(const binpool_block *block);

// Returns the device memory that a block takes, in bytes: at least its size; 0 for a null pointer.
//
// Any thread may call it.
//
// The caller promises: `block` is null or a live block.
size_t binpool_block_class_size(const binpool_block *block);

// Returns the `cl_mem` of the buffer that contains a block, and the block's offset in it, in bytes: for copies, fills and
// maps, and for kernels that take both. Other bytes of the buffer are other blocks.
//
// The `cl_mem` is borrowed: do not release it; it is valid until the block is freed. Commands enqueued before that keep it. For
// a queue other than the block's own, first call `binpool_block_order_before` or `binpool_block_record_use`.
//
// Any thread may call it. Errors: `INVALID_ARGUMENT` for a block of 0 bytes, `UNSUPPORTED` for a block of a CUDA pool or of shared memory.
//
// The caller promises: `block` is null or a live block. `memory` and `offset` are null, or places for the results.
binpool_status binpool_block_cl_mem(const binpool_block *block,
                                    void **memory,
                                    size_t *offset);

// Returns a `cl_mem` that begins where the block does, only for arguments of kernels. It is the buffer or a sub-buffer of
// it; on NVIDIA's driver a sub-buffer of a single byte, after which a kernel finds the others.
//
// Otherwise as `binpool_block_cl_mem`. It belongs to the block: later calls return the same one.
//
// The caller promises: `block` is null or a live block. `memory` is null, or a place for the result.
binpool_status binpool_block_cl_kernel_argument(const binpool_block *block,
                                                void **memory);

// Returns the address of a block of a CUDA pool, a `CUdeviceptr`. It is valid for commands enqueued before the block is freed. For
// a stream other than the block's own, first call `binpool_block_order_before` or `binpool_block_record_use`.
//
// Any thread may call it. Errors: `INVALID_ARGUMENT` for a block of 0 bytes, `UNSUPPORTED` for a block of an OpenCL pool.
//
// The caller promises: `block` is null or a live block. `address` is null, or a place for the result.
binpool_status binpool_block_device_ptr(const binpool_block *block,
                                        uint64_t *address);

// Returns the address of a block of shared memory (`BINPOOL_MEMORY_SHARED`), for the host and for kernels: `clSetKernelArgSVMPointer`, or
// an argument of CUDA's.
//
// Commands of the block's former user may still run when it is allocated: use it on the host only after `binpool_block_wait`, and before it
// is freed. The address is valid until then.
//
// Any thread may call it. Errors: `INVALID_ARGUMENT` for a block of 0 bytes, `UNSUPPORTED` for a block of device memory.
//
// The caller promises: `block` is null or a live block. `address` is null, or a place for the result.
binpool_status binpool_block_host_ptr(const binpool_block *block,
                                      void **address);

// Waits on the host until everything enqueued on the block's queue so far has ended. The host may then use shared memory.
//
// Any thread may call it. Errors: `BACKEND`.
//
// The caller promises: `block` is null or a live block.
binpool_status binpool_block_wait(const binpool_block *block);

// Tells the pool that commands on `queue`, a queue other than the block's own, use the block: it is not reused before everything
// enqueued there until the block is freed has ended. The program orders these commands after those of the block's own queue.
//
// Any thread may call it. Errors: `INVALID_ARGUMENT` for a queue of another context or device.
//
// The caller promises: `block` is null or a live block. `queue` is as in `binpool_allocate_on`.
binpool_status binpool_block_record_use(const binpool_block *block,
                                        void *queue);

// Makes everything enqueued on `queue` from now on wait for everything enqueued on the block's queues so far, by a wait on the
// device, and records the use of `queue`. The host does not wait.
//
// Any thread may call it. Errors: as `binpool_block_record_use`, and `BACKEND`.
//
// The caller promises: `block` is null or a live block. `queue` is as in `binpool_allocate_on`.
binpool_status binpool_block_order_before(const binpool_block *block,
                                          void *queue);

// Frees a text that binpool has returned. A null pointer is ignored.
//
// Any thread may call it.
//
// The caller promises: `string` is null, or a text that binpool has returned to be freed by this call, and that was not freed yet.
void binpool_string_free(char *string);

// The message of the last call that failed on the calling thread; an empty text if none has. It is in UTF-8, and may have several
// lines: an out-of-memory error is a whole report.
//
// It is valid until another call fails on this thread, or the thread ends. Calls that succeed do not change it. Do not free it.
//
// Any thread may call it.
const char *binpool_last_error_message(void);

// Makes a pool over OpenCL, whose blocks are for `queue` unless their allocation names another.
//
// The pool retains the context, the device and the queue, so the program may release its own references at
// any time. `options` may be null. The pool is freed by `binpool_pool_free`.
//
// Errors: `INVALID_ARGUMENT` for a device that is not the context's or a queue of another context or device; `UNSUPPORTED` if there
// is no OpenCL library, the device has OpenCL 1.1 or older, or lacks the shared memory that the options request; `BACKEND`.
//
// The caller promises: `context` and `queue` are null, or a live `cl_context` and `cl_command_queue` of the OpenCL library that binpool loads, the
// system's one. `options` is null, or points to as many bytes as its `struct_size` says. `pool` is null, or a place for the result.
binpool_status binpool_pool_new_opencl(void *context,
                                       void *device,
                                       void *queue,
                                       const binpool_options *options,
                                       binpool_pool **pool);

// Makes a pool over the primary context of a CUDA device, whose blocks are for `stream` unless their allocation names another.
//
// `device` is the device's number, counted from 0. `stream` is a `CUstream` or `cudaStream_t`; null is the legacy default stream.
// `options` may be null. The pool is freed by `binpool_pool_free`.
//
// Errors: `UNSUPPORTED` if there is no CUDA driver, and for options without segments unless the memory is shared; `BACKEND`.
//
// The caller promises: `stream` is null, or a stream of the device's primary context that lives until the pool and all of its blocks are freed. `options`
// is null, or points to as many bytes as its `struct_size` says. `pool` is null, or a place for the result.
binpool_status binpool_pool_new_cuda(uint32_t device,
                                     void *stream,
                                     const binpool_options *options,
                                     binpool_pool **pool);

// Frees a pool, and releases its free memory to the device. Blocks that the program still has stay valid; their memory is released when
// they are freed.
//
// Called once for each pool, when no other thread uses the handle.
//
// The caller promises: `pool` is null, or a pool that was not freed yet and that no thread uses during or after the call.
binpool_status binpool_pool_free(binpool_pool *pool);

// Allocates a block of `bytes` bytes for the pool's queue. Commands there come after everything that its former users enqueued. A block
// of 0 bytes has no memory.
//
// The block is freed by `binpool_block_free`. Any thread may call it.
//
// Errors: `OUT_OF_MEMORY`, with a report as its message, which also says if a block of this size can never fit; `BACKEND`.
//
// The caller promises: `pool` is null or a live pool. `block` is null, or a place for the result.
binpool_status binpool_allocate(const binpool_pool *pool,
                                size_t bytes,
                                binpool_block **block);

// Allocates a block of `bytes` bytes for `queue`: a `cl_command_queue` of the pool's context and device, or a `CUstream`, where null is the
// legacy default stream, and `CU_STREAM_PER_THREAD` that of the calling thread, which may end before the block is freed.
//
// Otherwise as `binpool_allocate`. Errors: also `INVALID_ARGUMENT` for a queue of another context or device.
//
// The caller promises: `pool` is null or a live pool. `queue` is null, or a live `cl_command_queue`, or a stream of the device's primary context that lives
// until the pool and all of its blocks are freed. `block` is null, or a place for the result.
binpool_status binpool_allocate_on(const binpool_pool *pool,
                                   void *queue,
                                   size_t bytes,
                                   binpool_block **block);

// Tells the pool that the program is done with a queue: other queues may reuse its free memory once its commands have ended.
//
// Any thread may call it. Errors: as `binpool_allocate_on`.
//
// The caller promises: `pool` is null or a live pool. `queue` is as in `binpool_allocate_on`.
binpool_status binpool_pool_retire_queue(const binpool_pool *pool,
                                         void *queue);

// Writes the pool's counters to `statistics`, which has `size` bytes: `sizeof(binpool_statistics)`. If the program knows fewer fields than
// this version, it gets those; if it knows more, the others are 0.
//
// Any thread may call it.
//
// The caller promises: `pool` is null or a live pool. `statistics` is null, or points to `size` bytes.
binpool_status binpool_pool_statistics(const binpool_pool *pool,
                                       binpool_statistics *statistics,
                                       size_t size);

// Returns a report for people: the counters and, if the pool is watched, what holds the blocks in use, by tag. The text is freed by
// `binpool_string_free`.
//
// Any thread may call it.
//
// The caller promises: `pool` is null or a live pool. `report` is null, or a place for the result.
binpool_status binpool_pool_report(const binpool_pool *pool,
                                   char **report);

// Returns what the pool has, block by block, as JSON, which `binpool view` shows. The text is freed by `binpool_string_free`.
//
// Any thread may call it.
//
// The caller promises: `pool` is null or a live pool. `json` is null, or a place for the result.
binpool_status binpool_pool_snapshot_json(const binpool_pool *pool,
                                          char **json);

// Returns the most bytes that the pool may take from the device, as `binpool_pool_set_limit` takes it: 0 if there is no limit.
//
// Any thread may call it.
//
// The caller promises: `pool` is null or a live pool. `bytes` is null, or a place for the result.
binpool_status binpool_pool_limit(const binpool_pool *pool,
                                  uint64_t *bytes);

// Sets the most bytes that the pool may take from the device; 0 means no limit, as in `binpool_options`. Memory above the limit stays until it is freed:
// `binpool_pool_trim` releases what is free already.
//
// Any thread may call it.
//
// The caller promises: `pool` is null or a live pool.
binpool_status binpool_pool_set_limit(const binpool_pool *pool,
                                      uint64_t bytes);

// Releases free memory until the pool has at most `bytes` bytes of the device. Blocks in use stay. `released`, which may be null, gets the
// number of released bytes.
//
// Any thread may call it.
//
// The caller promises: `pool` is null or a live pool. `released` is null, or a place for the result.
binpool_status binpool_pool_trim(const binpool_pool *pool,
                                 uint64_t bytes,
                                 uint64_t *released);

// Begins to track the tag and the age of each block, for reports, snapshots and out-of-memory messages. If `call_stacks` is
// not 0, also the call stack of the request, which takes a few microseconds for each block.
//
// Any thread may call it.
//
// The caller promises: `pool` is null or a live pool.
binpool_status binpool_pool_watch(const binpool_pool *pool,
                                  int call_stacks);

// Ends what `binpool_pool_watch` began.
//
// Any thread may call it.
//
// The caller promises: `pool` is null or a live pool.
binpool_status binpool_pool_stop_watching(const binpool_pool *pool);

// Begins to record every request of the pool in a new file at `path`, for `binpool replay`, `binpool tune` and `binpool view`. A file
// that exists is overwritten. `binpool_recording_finish` ends and frees the recording.
//
// Any thread may call it. Errors: `BUSY` if the pool is being recorded already, and that file stays as it is; `IO`.
//
// The caller promises: `pool` is null or a live pool. `path` is null, or a text that ends with a zero. `recording` is null, or a place for the result.
binpool_status binpool_pool_record(const binpool_pool *pool,
                                   const char *path,
                                   binpool_recording **recording);

// Ends a recording, writes the rest of its file, and frees the handle, whatever it returns. `summary`, which may be null, gets the
// counts. The pool may be gone.
//
// Called once for each recording, by any thread. Errors: `IO`, if the file could not be written.
//
// The caller promises: `recording` is null, or a recording that was not finished yet and that no thread uses during or after the call. `summary` is null,
// or a place for the result.
binpool_status binpool_recording_finish(binpool_recording *recording,
                                        binpool_recording_summary *summary);

// Gives the blocks that the calling thread allocates from now on a tag, such as `"weights"`, until `binpool_tag_leave`. Tags may be
// nested: the innermost one counts. Reports, snapshots and recordings show them.
//
// Any thread may call it; the tag is of that thread. Use a few tags, not one for each block: binpool keeps each name forever.
//
// The caller promises: `name` is null, or a text that ends with a zero.
binpool_status binpool_tag_enter(const char *name);

// Ends the tag that the calling thread entered last.
//
// Errors: `INVALID_ARGUMENT` if the thread has no tag.
binpool_status binpool_tag_leave(void);

// Returns the pool of a device, and creates it if needed, for the other functions of the interface: its counters, its limit, its
// recording. It is freed by `binpool_pool_free`, which leaves PyTorch's tensors as they are.
//
// Any thread may call it. Errors: `UNSUPPORTED` if there is no CUDA driver; `INVALID_ARGUMENT`, `BACKEND`.
//
// The caller promises: `pool` is null, or a place for the result.
binpool_status binpool_torch_pool(int device,
                                  binpool_pool **pool);

// Returns the version of the library, such as `"0.1.0"`: that of the header is `BINPOOL_VERSION`. Do not free it.
//
// Any thread may call it.
const char *binpool_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BINPOOL_H */
