// Threads with unusual stacks, and signals.
#include "opencl.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

struct work {
  struct rig rig;
  atomic_int done;
};

static void *creates_one(void *place) {
  struct work *work = place;
  for (int i = 0; i < 20; i++) {
    cl_int status;
    cl_mem memory = clCreateBuffer(work->rig.context, 0, 4096, NULL, &status);
    if (!status && !clRetainMemObject(memory) && !clReleaseMemObject(memory) && !clReleaseMemObject(memory)) work->done++;
  }
  return NULL;
}

static size_t smallest_stack(void) {
  long smallest = sysconf(_SC_THREAD_STACK_MIN);
  // What a layer without optimization needs besides.
  const char *more = getenv("CASES_MORE_STACK");
  return (smallest > 16384 ? smallest : 16384) + (more ? atol(more) : 0);
}

static void with_stack(void *(*body)(void *), size_t bytes) {
  struct work work = {.rig = up()};
  on_thread(body, &work, bytes);
  say("done: %d\n", work.done);
  down(work.rig);
}

CASE(smallest_stack_creates, ALONE, "a thread with the smallest stack there is creates the first buffers") { with_stack(creates_one, smallest_stack()); }
CASE(small_stack_creates, TOGETHER, "a thread with a stack of 20 KiB creates buffers") { with_stack(creates_one, smallest_stack() + 4096); }

static void *creates_other_kinds(void *place) {
  struct work *work = place;
  cl_mem whole = new_buffer(work->rig.context, 0, 8192);
  cl_buffer_region region = {4096, 4096};
  cl_int status;
  cl_mem part = clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
  must(!status);
  size_t bytes;
  must(!clGetMemObjectInfo(part, CL_MEM_SIZE, sizeof bytes, &bytes, NULL) && bytes == 4096);
  release(whole);
  release(part);
  void *address = clSVMAlloc(work->rig.context, 0, 4096, 0);
  must(address);
  clSVMFree(work->rig.context, address);
  work->done = 1;
  return NULL;
}
CASE(small_stack_other_kinds, TOGETHER, "a thread with a stack of 24 KiB creates parts and shared memory") {
  with_stack(creates_other_kinds, smallest_stack() + 8192);
}

static void *commands(void *place) {
  struct work *work = place;
  for (int i = 0; i < 10; i++) work->done += !use_rig(work->rig, 4096);
  return NULL;
}
CASE(small_stack_commands, TOGETHER, "a thread with a stack of 64 KiB fills and reads") { with_stack(commands, 65536); }

static __attribute__((noinline)) int deep(struct rig rig, int depth) {
  volatile char frame[64];
  frame[0] = (char)depth;
  return (depth ? deep(rig, depth - 1) : use_rig(rig, 512)) + frame[0] * 0;
}

CASE(deep_recursion, TOGETHER, "buffers are created 20000 frames deep") {
  struct rig rig = up();
  for (int depth = 0; depth <= 20000; depth += 4000) say("%d ", deep(rig, depth));
  say("\n");
  down(rig);
}

// Coroutines.

enum { ROUTINES = 8, STACK = 256 << 10 };
// Not data of the thread, which would take from the smallest stack.
struct routines {
  struct rig rig;
  ucontext_t scheduler, each[ROUTINES];
  int failures;
};
static _Thread_local struct routines *own_routines;

static void routine(int number) {
  struct routines *routines = own_routines;
  for (int i = 0; i < 10; i++) {
    cl_mem memory = new_buffer(routines->rig.context, 0, 2000 + 8 * number);
    fill(routines->rig.queue, memory, number, 2000);
    swapcontext(&routines->each[number], &routines->scheduler);
    routines->failures += !reads(routines->rig.queue, memory, number, 2000);
    release(memory);
  }
}

CASE(coroutines, TOGETHER, "coroutines hold buffers while others run on the same thread, and their stacks go") {
  struct routines *routines = own_routines = calloc(1, sizeof *routines);
  routines->rig = up();
  void *stacks[ROUTINES];
  for (int i = 0; i < ROUTINES; i++) {
    ucontext_t *own = &routines->each[i];
    stacks[i] = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    getcontext(own);
    own->uc_stack = (stack_t){.ss_sp = stacks[i], .ss_size = STACK};
    own->uc_link = &routines->scheduler;
    makecontext(own, (void (*)(void))routine, 1, i);
  }
  for (int turn = 0; turn < 11; turn++)
    for (int i = 0; i < ROUTINES; i++) swapcontext(&routines->scheduler, &routines->each[i]);
  for (int i = 0; i < ROUTINES; i++) munmap(stacks[i], STACK);
  say("wrong: %d, after them: %d\n", routines->failures, use_rig(routines->rig, 2000));
  down(routines->rig);
  free(routines);
}

// A coroutine that begins on one thread, and goes on on another.
struct moving {
  struct rig rig;
  ucontext_t own, *caller;
  cl_mem memory;
  bool is_right;
};
static struct moving *moving_now;
static void moving_routine(void) {
  struct moving *moving = moving_now;
  moving->memory = new_buffer(moving->rig.context, 0, 5000);
  fill(moving->rig.queue, moving->memory, 9, 5000);
  swapcontext(&moving->own, moving->caller);
  moving->is_right = reads(moving->rig.queue, moving->memory, 9, 5000);
  release(moving->memory);
  swapcontext(&moving->own, moving->caller);
}
static void *enter(void *place) {
  struct moving *moving = place;
  ucontext_t here;
  moving->caller = &here;
  swapcontext(&here, &moving->own);
  return NULL;
}
CASE(a_coroutine_moves, ALONE, "a coroutine begins on one thread, which ends, and goes on on another") {
  struct moving moving = {.rig = up()};
  moving_now = &moving;
  char *stack = malloc(STACK);
  getcontext(&moving.own);
  moving.own.uc_stack = (stack_t){.ss_sp = stack, .ss_size = STACK};
  makecontext(&moving.own, moving_routine, 0);
  on_thread(enter, &moving, 0);
  on_thread(enter, &moving, 0);
  say("right: %d\n", moving.is_right);
  free(stack);
  down(moving.rig);
}

// Signals.

static _Thread_local struct rig *rig_of_handler;
static _Thread_local volatile int answer;
static void handle(int number) {
  (void)number;
  answer = use_rig(*rig_of_handler, 1500);
}

static void *raises(void *none_given) {
  struct rig rig = up();
  rig_of_handler = &rig;
  answer = 77;
  stack_t stack = {.ss_sp = malloc(256 << 10), .ss_size = 256 << 10}, no_stack = {.ss_flags = SS_DISABLE};
  must(!sigaltstack(&stack, NULL));
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_ONSTACK};
  must(!sigaction(SIGUSR1, &action, NULL));
  pthread_kill(pthread_self(), SIGUSR1);
  say("the handler: %d\n", answer);
  must(!sigaltstack(&no_stack, NULL));
  free(stack.ss_sp);
  down(rig);
  return NULL;
}
CASE(handler_on_another_stack, TOGETHER, "a handler on an alternate signal stack uses a device, between calls") { on_thread(raises, NULL, 0); }

static atomic_int ticks;
static void count(int number) { ticks += number != 0; }

CASE(signals_at_any_time, ALONE, "a timer's signal, whose handler calls nothing, interrupts calls 5000 times a second") {
  struct sigaction action = {.sa_handler = count};
  must(!sigaction(SIGPROF, &action, NULL) && !sigaction(SIGUSR2, &action, NULL));
  struct itimerval often = {{0, 200}, {0, 200}}, never = {0};
  must(!setitimer(ITIMER_PROF, &often, NULL));
  struct rig rig = up();
  int wrong = 0;
  for (int i = 0; i < 300; i++) wrong += use_rig(rig, 4096 + i) != 0;
  down(rig);
  must(!setitimer(ITIMER_PROF, &never, NULL));
  say("wrong: %d\n", wrong);
}

static void *without_signals(void *place) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  return commands(place);
}
CASE(all_signals_blocked, TOGETHER, "a thread that has all signals blocked uses a device") { with_stack(without_signals, 0); }

// Data of a thread, whose destructors use a device.

static pthread_key_t key;
static pthread_once_t made = PTHREAD_ONCE_INIT;
struct last_words {
  struct rig rig;
  int rounds, failures;
};
static void at_thread_end(void *place) {
  struct last_words *words = place;
  words->failures += use_rig(words->rig, 3000) != 0;
  // Set again, it is called again.
  if (++words->rounds < 3) pthread_setspecific(key, words);
}
static void make_key(void) { pthread_key_create(&key, at_thread_end); }
static void *sets_key(void *place) {
  pthread_setspecific(key, place);
  struct last_words *words = place;
  words->failures += use_rig(words->rig, 3000) != 0;
  return NULL;
}
CASE(destructors_of_a_thread, TOGETHER, "destructors of a thread's data use a device, in three rounds") {
  pthread_once(&made, make_key);
  struct rig rig = up();
  for (int i = 0; i < 10; i++) {
    struct last_words words = {.rig = rig};
    on_thread(sets_key, &words, 0);
    say("%d rounds, %d wrong\n", words.rounds, words.failures);
  }
  down(rig);
}
static void *first_in_destructor(void *place) {
  pthread_setspecific(key, place);
  return NULL;
}
CASE(first_call_in_a_destructor, TOGETHER, "a thread calls a device only in the destructors of its data") {
  pthread_once(&made, make_key);
  struct last_words words = {.rig = up()};
  on_thread(first_in_destructor, &words, 0);
  say("%d rounds, %d wrong\n", words.rounds, words.failures);
  down(words.rig);
}
