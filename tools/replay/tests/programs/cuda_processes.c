// CUDA in processes and threads that do what few do.
#include "cuda.h"
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

static struct rig last;
static void at_end(void) {
  must(!cuCtxSetCurrent(last.context));
  say("at the end: %d\n", use(last.stream, 4096, 1));
  fflush(stdout);
}
static void *exits(void *none) { exit(7); }
static void *is_busy(void *none) {
  must(!cuCtxSetCurrent(last.context));
  CUstream stream = new_stream();
  for (int i = 0;; i++) use(stream, 1000 + i % 50 * 64, i);
  return NULL;
}
static void begin_busy(int threads) {
  last = up();
  must(!use(last.stream, 5000, 1) && !use_plain(last.stream, 5000, 1));
  for (int i = 0; i < threads; i++) start(is_busy, NULL, 0);
  nap(20000);
  say("begun\n");
  fflush(stdout);
}

CASE(exit_on_a_thread, ALONE, "a thread calls exit while others use a device") {
  begin_busy(2);
  on_thread(exits, NULL, 0);
}
CASE(return_beside_busy_threads, ALONE, "main returns while threads use a device") { begin_busy(2); }
CASE(killed, ALONE, "SIGKILL while threads use a device") {
  begin_busy(2);
  kill(getpid(), SIGKILL);
  for (;;) pause();
}
CASE(aborted, ALONE, "abort while threads use a device") {
  begin_busy(2);
  abort();
}
CASE(at_exit, ALONE, "a function of atexit uses a device") {
  begin_busy(0);
  atexit(at_end);
  exit(2);
}
static void *late(void *none) {
  nap(20000);
  last = up();
  say("on the thread: %d\n", use(last.stream, 4096, 1));
  exit(5);
}
CASE(main_ends_first, FIRST, "main ends by pthread_exit before a thread uses a device for the first time") {
  start(late, NULL, 0);
  pthread_exit(NULL);
}

static void child_of_a_fork(int number) {
  fflush(transcript);
  pid_t child = fork();
  if (!child) _exit(number);
  say_end("child", child);
}
CASE(forks, ALONE, "a process forks while its threads use a device; the children do nothing") {
  begin_busy(2);
  for (int i = 0; i < 10; i++) child_of_a_fork(i);
  say("%d\n", use(last.stream, 4096, 1));
  _exit(0);
}
CASE(fork_before_the_first_use, FIRST, "parent and child use a device for the first time") {
  fflush(stdout);
  pid_t child = fork();
  struct rig rig = up();
  for (int i = 0; i < 20; i++) must(!use(rig.stream, 1000 + i, i) && !use_plain(rig.stream, 1000 + i, i));
  down(rig);
  if (!child) _exit(4);
  say_end("child", child);
}
CASE(plain, TOGETHER, "memory comes and goes (what a program that another starts does)") {
  struct rig rig = up();
  for (int i = 0; i < 20; i++) must(!use(rig.stream, 4096 + i, i) && !use_plain(rig.stream, 4096, i));
  say("done\n");
  down(rig);
}
CASE(exec, ALONE, "the process becomes this program again while threads use a device") {
  begin_busy(2);
  execl(own_path, own_path, "plain", (char *)NULL);
}
static void at_prepare(void) {
  if (last.context) say("prepare: %d\n", use(last.stream, 4096, 1));
  fflush(stdout);
}
static void at_parent(void) {
  if (last.context) say("parent: %d\n", use_plain(last.stream, 4096, 1));
  fflush(stdout);
}
CASE(functions_of_a_fork, FIRST, "functions of pthread_atfork from before the first use of a device use one before and after the fork") {
  pthread_atfork(at_prepare, at_parent, NULL);
  begin_busy(0);
  for (int i = 0; i < 3; i++) child_of_a_fork(i);
  say("%d\n", use(last.stream, 4096, 1));
  last.context = NULL;
}

// Threads.

struct shared {
  struct rig rig;
  atomic_bool is_ready, is_cancelled;
  atomic_int done;
};
static void *is_cancelled_before(void *place) {
  struct shared *shared = place;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  must(!cuCtxSetCurrent(shared->rig.context));
  shared->is_ready = true;
  while (!shared->is_cancelled) nap(100);
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
  for (int i = 0; i < 100; i++) {
    CUdeviceptr address = allocate(4096), other = allocate_on(shared->rig.stream, 4096);
    must(!cuMemFreeAsync(other, shared->rig.stream));
    must(!cuMemFreeAsync(address, shared->rig.stream));
  }
  pthread_testcancel();
  return NULL;
}
static void cancel(void) {
  struct shared shared = {.rig = up()};
  pthread_t thread = start(is_cancelled_before, &shared, 0);
  while (!shared.is_ready) nap(100);
  must(!pthread_cancel(thread));
  shared.is_cancelled = true;
  say("cancelled: %d\n", join(thread) == PTHREAD_CANCELED);
  say("%d\n", use(shared.rig.stream, 4096, 1));
  down(shared.rig);
}
CASE(first_memory_while_cancelled, ALONE, "a thread that was cancelled before allocates the first memory of the process") { cancel(); }
CASE(memory_while_cancelled, TOGETHER, "a thread that was cancelled before allocates and frees 200 times") { cancel(); }

static void *has_a_small_stack(void *place) {
  struct shared *shared = place;
  must(!cuCtxSetCurrent(shared->rig.context));
  for (int i = 0; i < 20; i++) {
    CUdeviceptr address = allocate(4096);
    must(!cuMemFree_v2(address));
    shared->done++;
  }
  return NULL;
}
CASE(small_stack, TOGETHER, "a thread with a stack of 64 KiB allocates and frees") {
  struct shared shared = {.rig = up()};
  on_thread(has_a_small_stack, &shared, 65536);
  say("%d\n", shared.done);
  down(shared.rig);
}
CASE(first_memory_on_a_small_stack, ALONE, "a thread with a stack of 64 KiB allocates the first memory of the process") {
  struct shared shared = {.rig = up()};
  on_thread(has_a_small_stack, &shared, 65536);
  say("%d\n", shared.done);
  down(shared.rig);
}

static pthread_key_t key;
static pthread_once_t made = PTHREAD_ONCE_INIT;
static void at_thread_end(void *place) {
  struct shared *shared = place;
  must(!cuCtxSetCurrent(shared->rig.context) && !use(shared->rig.stream, 4096, 1));
  if (++shared->done < 3) pthread_setspecific(key, shared);
}
static void make_key(void) { pthread_key_create(&key, at_thread_end); }
static void *sets_key(void *place) {
  pthread_setspecific(key, place);
  return NULL;
}
CASE(destructors_of_a_thread, TOGETHER, "destructors of a thread's data use a device") {
  pthread_once(&made, make_key);
  struct shared shared = {.rig = up()};
  for (int i = 0; i < 5; i++) {
    shared.done = 0;
    on_thread(sets_key, &shared, 0);
    say("%d", shared.done);
  }
  say("\n");
  down(shared.rig);
}

static _Thread_local volatile int answer;
static _Thread_local CUstream stream_of_handler;
static void handle(int number) { answer = use(stream_of_handler, 2000, 1); }
static void *raises(void *place) {
  struct shared *shared = place;
  must(!cuCtxSetCurrent(shared->rig.context));
  stream_of_handler = shared->rig.stream;
  answer = 77;
  stack_t stack = {.ss_sp = malloc(256 << 10), .ss_size = 256 << 10}, no_stack = {.ss_flags = SS_DISABLE};
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
  must(!sigaltstack(&stack, NULL) && !sigaction(SIGUSR1, &action, NULL));
  pthread_kill(pthread_self(), SIGUSR1);
  must(!sigaltstack(&no_stack, NULL));
  free(stack.ss_sp);
  shared->done = answer;
  return NULL;
}
CASE(handler_on_another_stack, TOGETHER, "a handler on an alternate signal stack uses a device, between calls") {
  struct shared shared = {.rig = up()};
  on_thread(raises, &shared, 0);
  say("%d\n", shared.done);
  down(shared.rig);
}
static void *uses(void *place) {
  struct shared *shared = place;
  must(!cuCtxSetCurrent(shared->rig.context));
  CUstream stream = new_stream();
  for (int i = 0; i < 20; i++) {
    must(!use(stream, 4096 * (1 + i % 4), i));
    shared->done++;
  }
  synchronize(stream);
  must(!cuStreamDestroy_v2(stream));
  return NULL;
}
CASE(many_threads, TOGETHER, "eight threads, each with a stream of its own, that come and go") {
  struct shared shared = {.rig = up()};
  for (int round = 0; round < 3; round++) {
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) threads[i] = start(uses, &shared, 0);
    for (int i = 0; i < 8; i++) join(threads[i]);
  }
  say("%d\n", shared.done);
  down(shared.rig);
}
