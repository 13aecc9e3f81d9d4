// Threads that are cancelled.
#include "opencl.h"
#include <errno.h>
#include <time.h>

// A thread that is cancelled while it may not be, and goes on until it asks.
struct cancelled {
  struct rig rig;
  atomic_bool is_ready, is_cancelled;
  int times;
};

static void wait_until_cancelled(struct cancelled *shared) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  shared->is_ready = true;
  while (!shared->is_cancelled) nap(100);
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
}

static void cancel(void *(*body)(void *), struct cancelled *shared) {
  pthread_t thread = start(body, shared, 0);
  while (!shared->is_ready) nap(100);
  must(!pthread_cancel(thread));
  shared->is_cancelled = true;
  say("cancelled: %d\n", join(thread) == PTHREAD_CANCELED);
}

static void *creates_buffers(void *place) {
  struct cancelled *shared = place;
  wait_until_cancelled(shared);
  // None of these calls is a point where a thread ends that was cancelled.
  for (int i = 0; i < shared->times; i++) release(new_buffer(shared->rig.context, 0, 4096 + i % 7));
  pthread_testcancel();
  return NULL;
}

CASE(first_buffer_while_cancelled, ALONE, "a thread that was cancelled before creates the first buffer of the process") {
  struct cancelled shared = {.rig = up(), .times = 1};
  cancel(creates_buffers, &shared);
  say("%d\n", use_rig(shared.rig, 4096));
  down(shared.rig);
}

CASE(many_buffers_while_cancelled, TOGETHER, "a thread that was cancelled before creates 5000 buffers") {
  struct cancelled shared = {.rig = up(), .times = 5000};
  cancel(creates_buffers, &shared);
  say("%d\n", use_rig(shared.rig, 4096));
  down(shared.rig);
}

static void *uses_all(void *place) {
  struct cancelled *shared = place;
  cl_context context = shared->rig.context;
  wait_until_cancelled(shared);
  cl_mem whole = new_buffer(context, CL_MEM_ALLOC_HOST_PTR, 8192);
  cl_buffer_region region = {4096, 4096};
  cl_int status;
  cl_mem part = clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
  must(!status && !clRetainMemObject(whole));
  release(part);
  release(whole);
  release(whole);
  void *address = clSVMAlloc(context, 0, 4096, 0);
  clSVMFree(context, address);
  cl_event event = new_user_event(context);
  resolve(event, CL_COMPLETE);
  must(!clReleaseEvent(event));
  pthread_testcancel();
  return NULL;
}

CASE(all_kinds_of_memory_while_cancelled, TOGETHER, "a thread that was cancelled before creates parts, shared memory and events") {
  struct cancelled shared = {.rig = up()};
  cancel(uses_all, &shared);
  say("%d\n", use_rig(shared.rig, 8192));
  down(shared.rig);
}

static void release_own(void *memory) { say("the handler releases: %d\n", clReleaseMemObject(*(cl_mem *)memory)); }

static void *has_a_handler(void *place) {
  struct cancelled *shared = place;
  cl_mem memory = new_buffer(shared->rig.context, 0, 3000);
  pthread_cleanup_push(release_own, &memory);
  wait_until_cancelled(shared);
  pthread_testcancel();
  pthread_cleanup_pop(0);
  return NULL;
}

CASE(a_handler_releases, TOGETHER, "the cleanup handler of a cancelled thread releases its buffer") {
  struct cancelled shared = {.rig = up()};
  cancel(has_a_handler, &shared);
  say("%d\n", use_rig(shared.rig, 3000));
  down(shared.rig);
}

static void *asks_for_its_state(void *place) {
  struct cancelled *shared = place;
  const int states[] = {PTHREAD_CANCEL_DISABLE, PTHREAD_CANCEL_ENABLE}, types[] = {PTHREAD_CANCEL_ASYNCHRONOUS, PTHREAD_CANCEL_DEFERRED};
  shared->is_ready = true;
  for (int i = 0; i < 4; i++) {
    int state = -1, type = -1;
    pthread_setcancelstate(states[i / 2], NULL);
    pthread_setcanceltype(types[i % 2], NULL);
    cl_int status = use_rig(shared->rig, 1000 + i);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    say("%d: state kept %d, type kept %d\n", status, state == states[i / 2], type == types[i % 2]);
  }
  return NULL;
}

CASE(cancellation_state_is_kept, TOGETHER, "a thread asks after calls whether it may be cancelled, and how") {
  struct cancelled shared = {.rig = up()};
  on_thread(asks_for_its_state, &shared, 0);
  down(shared.rig);
}

static void *spins_at_last(void *place) {
  struct cancelled *shared = place;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  shared->is_ready = true;
  while (!shared->is_cancelled) must(!use_rig(shared->rig, 2000));
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
  for (;;) {}
}

CASE(cancelled_anywhere, TOGETHER, "a thread of the asynchronous type is cancelled between its calls") {
  struct cancelled shared = {.rig = up()};
  cancel(spins_at_last, &shared);
  say("%d\n", use_rig(shared.rig, 2000));
  down(shared.rig);
}

// Calls that wait for what does not come before the thread has ended.

struct waiting {
  struct rig rig;
  cl_event event;
  cl_mem memory;
  unsigned char bytes[64];
};

static void *waits_in_a_read(void *place) {
  struct waiting *shared = place;
  clEnqueueReadBuffer(shared->rig.queue, shared->memory, CL_TRUE, 0, 64, shared->bytes, 1, &shared->event, NULL);
  return NULL;
}

static void *waits_in_a_map(void *place) {
  struct waiting *shared = place;
  clEnqueueMapBuffer(shared->rig.queue, shared->memory, CL_TRUE, CL_MAP_READ, 0, 64, 1, &shared->event, NULL, NULL);
  return NULL;
}

static void *waits_in_a_finish(void *place) {
  struct waiting *shared = place;
  clEnqueueMarkerWithWaitList(shared->rig.queue, 1, &shared->event, NULL);
  clFinish(shared->rig.queue);
  return NULL;
}

static void *waits_for_an_event(void *place) {
  struct waiting *shared = place;
  clWaitForEvents(1, &shared->event);
  return NULL;
}

static void cancel_in(void *(*body)(void *)) {
  // What a cancelled thread had of the driver's locks it keeps, so that nothing is released.
  struct waiting *shared = calloc(1, sizeof *shared);
  shared->rig = up_alone();
  shared->memory = new_buffer(shared->rig.context, 0, 64);
  shared->event = new_user_event(shared->rig.context);
  pthread_t thread = start(body, shared, 0);
  nap(30000);
  must(!pthread_cancel(thread));
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 5;
  void *result = NULL;
  int error = pthread_timedjoin_np(thread, &result, &until);
  say("ends: %d, cancelled: %d\n", !error, result == PTHREAD_CANCELED);
  struct rig other = up_alone();
  say("another context: %d\n", use_rig(other, 4096));
  fflush(stdout);
}

CASE(cancelled_in_a_read, ALONE, "a thread is cancelled in a blocking read") { cancel_in(waits_in_a_read); }
CASE(cancelled_in_a_map, ALONE, "a thread is cancelled in a blocking map") { cancel_in(waits_in_a_map); }
CASE(cancelled_in_a_finish, ALONE, "a thread is cancelled in clFinish") { cancel_in(waits_in_a_finish); }
CASE(cancelled_while_it_waits, ALONE, "a thread is cancelled in clWaitForEvents") { cancel_in(waits_for_an_event); }
