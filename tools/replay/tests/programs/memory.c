// Maps, parts, images, and commands on parts of memory.
#include "opencl.h"

static cl_uint maps(cl_mem memory) {
  cl_uint count = 99;
  must(!clGetMemObjectInfo(memory, CL_MEM_MAP_COUNT, sizeof count, &count, NULL));
  return count;
}

CASE(nested_maps, TOGETHER, "a buffer is mapped three times at once, in parts that overlap, and unmapped in another order, once too often") {
  struct rig rig = up();
  for (int round = 0; round < 3; round++) {
    cl_mem memory = new_buffer(rig.context, round ? CL_MEM_ALLOC_HOST_PTR : 0, 4096);
    fill(rig.queue, memory, 1 + round, 4096);
    unsigned char *mapped[3];
    cl_int status;
    for (int i = 0; i < 3; i++) {
      mapped[i] = clEnqueueMapBuffer(rig.queue, memory, CL_TRUE, i == 2 ? CL_MAP_WRITE : CL_MAP_READ, 512 * i, 2048, 0, NULL, NULL, &status);
      must(!status);
    }
    say("%d %d ", is_filled(mapped[0], 1 + round, 2048), mapped[1] - mapped[0] == 512);
    mapped[2][2047] = 200;
    const int order[] = {1, 2, 0};
    for (int i = 0; i < 3; i++) {
      must(!clEnqueueUnmapMemObject(rig.queue, memory, mapped[order[i]], 0, NULL, NULL));
      finish(rig.queue);
      say("%u", maps(memory));
    }
    unsigned char byte;
    must(!clEnqueueReadBuffer(rig.queue, memory, CL_TRUE, 1024 + 2047, 1, &byte, 0, NULL, NULL));
    say(" %d, once more: %d\n", byte, clEnqueueUnmapMemObject(rig.queue, memory, mapped[0], 0, NULL, NULL));
    release(memory);
  }
  down(rig);
}

CASE(released_while_mapped, TOGETHER, "buffers and parts are released while they are mapped, and the same sizes come again") {
  struct rig rig = up();
  for (int i = 0; i < 4; i++) {
    cl_mem memory = new_buffer(rig.context, 0, 4096);
    cl_int status;
    unsigned char *mapped = clEnqueueMapBuffer(rig.queue, memory, CL_TRUE, CL_MAP_WRITE, 0, 4096, 0, NULL, NULL, &status);
    memset(mapped, i, 4096);
    must(!status && !clRetainMemObject(memory));
    release(memory);
    cl_mem other = new_buffer(rig.context, 0, 4096);
    fill(rig.queue, other, 99, 4096);
    say("%d", is_filled(mapped, i, 4096));
    must(!clEnqueueUnmapMemObject(rig.queue, memory, mapped, 0, NULL, NULL));
    say("%d%d\n", reads(rig.queue, memory, i, 4096), reads(rig.queue, other, 99, 4096));
    release(memory);
    release(other);
  }
  down(rig);
}

CASE(maps_that_wait, TOGETHER, "a map that waits for an event, and one that invalidates, without blocking") {
  struct rig rig = up();
  cl_mem memory = new_buffer(rig.context, 0, 4096);
  fill(rig.queue, memory, 6, 4096);
  cl_event gate = new_user_event(rig.context), events[2];
  cl_int status;
  unsigned char *first = clEnqueueMapBuffer(rig.queue, memory, CL_FALSE, CL_MAP_READ, 0, 2048, 1, &gate, &events[0], &status);
  must(!status && !clEnqueueUnmapMemObject(rig.queue, memory, first, 1, &events[0], NULL));
  unsigned char *second = clEnqueueMapBuffer(rig.queue, memory, CL_FALSE, CL_MAP_WRITE_INVALIDATE_REGION, 2048, 2048, 0, NULL, &events[1], &status);
  must(!status && !clFlush(rig.queue));
  resolve(gate, CL_COMPLETE);
  must(!clWaitForEvents(2, events));
  memset(second, 7, 2048);
  must(!clEnqueueUnmapMemObject(rig.queue, memory, second, 0, NULL, NULL));
  unsigned char bytes[4096];
  must(!clEnqueueReadBuffer(rig.queue, memory, CL_TRUE, 0, 4096, bytes, 0, NULL, NULL));
  say("%d %d %u\n", is_filled(bytes, 6, 2048), is_filled(bytes + 2048, 7, 2048), maps(memory));
  must(!clReleaseEvent(gate) && !clReleaseEvent(events[0]) && !clReleaseEvent(events[1]));
  release(memory);
  down(rig);
}

CASE(patterns, TOGETHER, "fills with patterns of each size, at offsets") {
  struct rig rig = up();
  cl_mem memory = new_buffer(rig.context, 0, 4096);
  for (size_t size = 1; size <= 128; size *= 2) {
    unsigned char pattern[128], bytes[4096];
    for (size_t i = 0; i < size; i++) pattern[i] = i + size;
    fill(rig.queue, memory, 0, 4096);
    must(!clEnqueueFillBuffer(rig.queue, memory, pattern, size, 2 * size, 8 * size, 0, NULL, NULL));
    must(!clEnqueueReadBuffer(rig.queue, memory, CL_TRUE, 0, 4096, bytes, 0, NULL, NULL));
    bool is_right = is_filled(bytes, 0, 2 * size) && is_filled(bytes + 10 * size, 0, 4096 - 10 * size);
    for (size_t i = 0; i < 8 * size; i++) is_right &= bytes[2 * size + i] == pattern[i % size];
    say("%d", is_right);
  }
  say("\n");
  release(memory);
  down(rig);
}

CASE(rectangles, TOGETHER, "rectangles are written, copied within one buffer and to another, and read") {
  struct rig rig = up();
  cl_mem first = new_buffer(rig.context, 0, 4096), second = new_buffer(rig.context, 0, 4096);
  fill(rig.queue, first, 0, 4096);
  fill(rig.queue, second, 0, 4096);
  unsigned char host[256], back[256] = {0};
  for (int i = 0; i < 256; i++) host[i] = i;
  size_t at[3] = {4, 2, 1}, origin[3] = {0}, region[3] = {8, 4, 2}, other[3] = {32, 8, 3};
  must(!clEnqueueWriteBufferRect(rig.queue, first, CL_FALSE, at, origin, region, 64, 512, 8, 32, host, 0, NULL, NULL));
  must(!clEnqueueCopyBufferRect(rig.queue, first, first, at, other, region, 64, 512, 64, 512, 0, NULL, NULL));
  must(!clEnqueueCopyBufferRect(rig.queue, first, second, other, at, region, 64, 512, 32, 256, 0, NULL, NULL));
  must(!clEnqueueReadBufferRect(rig.queue, second, CL_TRUE, at, origin, region, 32, 256, 8, 32, back, 0, NULL, NULL));
  say("%d\n", !memcmp(host, back, 64));
  release(first);
  release(second);
  down(rig);
}

CASE(migrations, TOGETHER, "memory is migrated to the device and the host, in several kinds at once") {
  struct rig rig = up();
  cl_mem memories[3] = {new_buffer(rig.context, 0, 4096), new_buffer(rig.context, CL_MEM_ALLOC_HOST_PTR, 4096), new_buffer(rig.context, 0, 64)};
  for (int i = 0; i < 3; i++) fill(rig.queue, memories[i], i, 64);
  must(!clEnqueueMigrateMemObjects(rig.queue, 3, memories, 0, 0, NULL, NULL));
  must(!clEnqueueMigrateMemObjects(rig.queue, 2, memories, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL));
  must(!clEnqueueMigrateMemObjects(rig.queue, 1, memories, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, 0, NULL, NULL));
  say("%d%d\n", reads(rig.queue, memories[1], 1, 64), reads(rig.queue, memories[2], 2, 64));
  const void *address = clSVMAlloc(rig.context, 0, 4096, 0);
  const size_t bytes = 4096;
  say("%d\n", clEnqueueSVMMigrateMem(rig.queue, 1, &address, &bytes, 0, 0, NULL, NULL));
  finish(rig.queue);
  clSVMFree(rig.context, (void *)address);
  for (int i = 0; i < 3; i++) release(memories[i]);
  down(rig);
}

CASE(parts_of_released_buffers, TOGETHER, "parts of buffers that are released: their sizes, offsets, flags and bytes, also on memory of the host") {
  struct rig rig = up();
  unsigned char *host = aligned_alloc(4096, 8192);
  const cl_mem_flags flags[] = {0, CL_MEM_USE_HOST_PTR, CL_MEM_COPY_HOST_PTR, CL_MEM_ALLOC_HOST_PTR};
  for (int i = 0; i < 4; i++) {
    memset(host, 40 + i, 8192);
    cl_int status;
    cl_mem whole = clCreateBuffer(rig.context, flags[i], 8192, i == 1 || i == 2 ? host : NULL, &status);
    must(!status);
    fill(rig.queue, whole, 40 + i, 8192);
    cl_buffer_region region = {4096, 1024};
    cl_mem part = clCreateSubBuffer(whole, CL_MEM_READ_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    must(!status);
    release(whole);
    size_t offset, size;
    cl_mem_flags told;
    void *pointer;
    must(!clGetMemObjectInfo(part, CL_MEM_OFFSET, sizeof offset, &offset, NULL) && !clGetMemObjectInfo(part, CL_MEM_SIZE, sizeof size, &size, NULL));
    must(!clGetMemObjectInfo(part, CL_MEM_FLAGS, sizeof told, &told, NULL) && !clGetMemObjectInfo(part, CL_MEM_HOST_PTR, sizeof pointer, &pointer, NULL));
    say("%zu %zu %llx %td %d\n", offset, size, (unsigned long long)told, pointer ? (unsigned char *)pointer - host : -1, reads(rig.queue, part, 40 + i, 1024));
    release(part);
  }
  free(host);
  down(rig);
}

static cl_mem new_image(struct rig rig, cl_mem_flags flags, void *host, cl_int *status) {
  cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
  cl_image_desc description = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 16, .image_height = 16};
  return clCreateImage(rig.context, flags, &format, &description, host, status);
}
CASE(images, TOGETHER, "images are filled, written, mapped, sampled, and copied to buffers and back") {
  struct rig rig = up();
  cl_int status;
  cl_mem image = new_image(rig, 0, NULL, &status), other = new_image(rig, 0, NULL, &status), buffer = new_buffer(rig.context, 0, 1024);
  must(!status);
  const cl_uint colour[4] = {11, 11, 11, 11};
  size_t origin[3] = {0}, region[3] = {16, 16, 1}, pitch;
  must(!clEnqueueFillImage(rig.queue, image, colour, origin, region, 0, NULL, NULL));
  must(!clEnqueueCopyImage(rig.queue, image, other, origin, origin, region, 0, NULL, NULL));
  must(!clEnqueueCopyImageToBuffer(rig.queue, other, buffer, origin, region, 0, 0, NULL, NULL));
  say("%d", reads(rig.queue, buffer, 11, 1024));
  fill(rig.queue, buffer, 12, 1024);
  must(!clEnqueueCopyBufferToImage(rig.queue, buffer, image, 0, origin, region, 0, NULL, NULL));
  unsigned char *mapped = clEnqueueMapImage(rig.queue, image, CL_TRUE, CL_MAP_READ, origin, region, &pitch, NULL, 0, NULL, NULL, &status);
  must(!status);
  say("%d", is_filled(mapped, 12, 64));
  must(!clEnqueueUnmapMemObject(rig.queue, image, mapped, 0, NULL, NULL));
  unsigned char bytes[1024];
  memset(bytes, 13, 1024);
  must(!clEnqueueWriteImage(rig.queue, image, CL_TRUE, origin, region, 0, 0, bytes, 0, NULL, NULL));
  cl_sampler sampler = clCreateSampler(rig.context, CL_FALSE, CL_ADDRESS_NONE, CL_FILTER_NEAREST, &status);
  cl_kernel kernel = new_kernel(rig.context, "sample");
  must(!status && !clSetKernelArg(kernel, 0, sizeof buffer, &buffer) && !clSetKernelArg(kernel, 1, sizeof image, &image));
  must(!clSetKernelArg(kernel, 2, sizeof sampler, &sampler));
  launch(rig.queue, kernel, 1024);
  must(!clReleaseSampler(sampler) && !clReleaseKernel(kernel));
  release(image);
  say("%d", reads(rig.queue, buffer, 13, 1024));
  must(!clEnqueueReadImage(rig.queue, other, CL_TRUE, origin, region, 0, 0, bytes, 0, NULL, NULL));
  say("%d\n", is_filled(bytes, 11, 1024));
  release(other);
  release(buffer);
  down(rig);
}

CASE(images_on_buffers, TOGETHER, "images on buffers and on memory of the host, beside buffers of the same size, released in both orders") {
  struct rig rig = up();
  unsigned char *host = aligned_alloc(4096, 4096);
  for (int i = 0; i < 4; i++) {
    cl_image_format format = {CL_RGBA, CL_UNSIGNED_INT8};
    cl_mem buffer = new_buffer(rig.context, 0, 1024);
    cl_image_desc description = {.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER, .image_width = 256, .buffer = buffer};
    cl_int status, host_status;
    cl_mem image = clCreateImage(rig.context, 0, &format, &description, NULL, &status), on_host = new_image(rig, CL_MEM_USE_HOST_PTR, host, &host_status);
    say("%d %d ", status, host_status);
    if (image) {
      size_t origin[3] = {0}, region[3] = {256, 1, 1};
      unsigned char bytes[1024];
      fill(rig.queue, buffer, 30 + i, 1024);
      cl_int read = clEnqueueReadImage(rig.queue, image, CL_TRUE, origin, region, 0, 0, bytes, 0, NULL, NULL);
      say("%d %d ", read, read || is_filled(bytes, 30 + i, 1024));
      if (i % 2) release(image);
      say("%u ", references_of_memory(buffer));
    }
    say("%d\n", reads(rig.queue, buffer, 30 + i, 1024));
    release(buffer);
    if (image && i % 2 == 0) release(image);
    if (on_host) release(on_host);
  }
  free(host);
  down(rig);
}

CASE(nothing_to_do, TOGETHER, "commands of no bytes, and of the last byte") {
  struct rig rig = up();
  cl_mem memory = new_buffer(rig.context, 0, 1), other = new_buffer(rig.context, 0, 4095);
  unsigned char byte = 5, back = 0;
  say("%d", clEnqueueReadBuffer(rig.queue, memory, CL_TRUE, 0, 0, &back, 0, NULL, NULL));
  say(" %d", clEnqueueCopyBuffer(rig.queue, memory, other, 0, 0, 0, 0, NULL, NULL));
  must(!clEnqueueWriteBuffer(rig.queue, memory, CL_FALSE, 0, 1, &byte, 0, NULL, NULL));
  must(!clEnqueueCopyBuffer(rig.queue, memory, other, 0, 4094, 1, 0, NULL, NULL));
  must(!clEnqueueReadBuffer(rig.queue, other, CL_TRUE, 4094, 1, &back, 0, NULL, NULL));
  say(" %d %d\n", back, clEnqueueReadBuffer(rig.queue, other, CL_TRUE, 4095, 1, &back, 0, NULL, NULL));
  release(memory);
  release(other);
  down(rig);
}

CASE(buffers_with_properties, TOGETHER, "buffers and images with an empty list of properties, which the driver returns") {
  struct rig rig = up();
  const cl_mem_properties none[] = {0};
  for (int i = 0; i < 3; i++) {
    cl_int status, second;
    cl_mem first = clCreateBufferWithProperties(rig.context, i ? none : NULL, 0, 4096, NULL, &status), other = clCreateBufferWithProperties(rig.context, none, CL_MEM_READ_ONLY, 64, NULL, &second);
    size_t size = 99;
    cl_int asked = first ? clGetMemObjectInfo(first, CL_MEM_PROPERTIES, 0, NULL, &size) : 0;
    say("%d %d %d %zu\n", status, second, asked, size);
    if (first) release(first);
    if (other) release(other);
  }
  down(rig);
}

CASE(pipes_and_local_memory, TOGETHER, "a pipe, and a kernel with local memory as its argument") {
  struct rig rig = up();
  cl_int status;
  cl_mem pipe = clCreatePipe(rig.context, CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS, 4, 16, NULL, &status);
  say("%d %d\n", pipe != NULL, status);
  if (pipe) release(pipe);
  cl_mem memory = new_buffer(rig.context, 0, 64);
  cl_kernel kernel = new_kernel(rig.context, "local_sum");
  size_t items = 64, group = 16;
  must(!clSetKernelArg(kernel, 0, sizeof memory, &memory) && !clSetKernelArg(kernel, 1, 16, NULL));
  must(!clEnqueueNDRangeKernel(rig.queue, kernel, 1, NULL, &items, &group, 0, NULL, NULL));
  say("%d\n", reads(rig.queue, memory, 3, 64));
  must(!clReleaseKernel(kernel));
  release(memory);
  down(rig);
}
