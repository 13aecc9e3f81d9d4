// How processes end.
#include "opencl.h"
#include <signal.h>
#include <sys/resource.h>

static void *is_busy(void *place) {
  struct rig rig = *(struct rig *)place;
  for (size_t i = 0;; i++) use_rig(rig, 1000 + i % 50 * 64);
  return NULL;
}
// The device of the process, and threads that use it until the end.
static struct rig last;
static void begin_busy(int threads) {
  last = up_alone();
  must(!use_rig(last, 5000));
  for (int i = 0; i < threads; i++) start(is_busy, &last, 0);
  nap(20000);
  struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  say("begun\n");
  fflush(stdout);
}

static void *exits(void *none) { exit(7); }
static void *exits_at_once(void *none) { _exit(8); }
static void *aborts(void *none) { abort(); }
// The driver's threads would keep the process.
static void *first_use_and_exit(void *none) {
  struct rig rig = up_alone();
  say("on the thread: %d\n", use_rig(rig, 4096));
  down_alone(rig);
  exit(5);
}

CASE(return_beside_busy_threads, ALONE, "main returns while threads use a device") {
  begin_busy(3);
}
CASE(exit_on_a_thread, ALONE, "a thread calls exit while others use a device") {
  begin_busy(2);
  on_thread(exits, NULL, 0);
}
CASE(exit_at_once_on_a_thread, ALONE, "a thread calls _exit while others use a device") {
  begin_busy(2);
  on_thread(exits_at_once, NULL, 0);
}
CASE(abort_on_a_thread, ALONE, "a thread calls abort while others use a device") {
  begin_busy(2);
  on_thread(aborts, NULL, 0);
}
static void at_end(void) { say("at the end: %d\n", use_rig(last, 2000)); }
CASE(quick_exit_with_a_function, ALONE, "quick_exit, whose function uses a device") {
  begin_busy(1);
  at_quick_exit(at_end);
  quick_exit(6);
}
CASE(segmentation_fault, ALONE, "a signal ends the process while threads use a device") {
  begin_busy(2);
  // The driver may have a handler.
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
}
static void on_fault(int number) {
  static const char text[] = "the handler\n";
  if (write(1, text, sizeof text - 1) < 0) _exit(1);
  _exit(3);
}
CASE(a_handler_of_faults, ALONE, "the program's own handler ends the process after a fault") {
  begin_busy(1);
  signal(SIGSEGV, on_fault);
  signal(SIGBUS, on_fault);
  *(volatile int *)8 = 1;
}
CASE(killed, ALONE, "SIGKILL while threads use a device") {
  begin_busy(3);
  kill(getpid(), SIGKILL);
  for (;;) pause();
}
CASE(terminated, ALONE, "SIGTERM while threads use a device") {
  begin_busy(2);
  kill(getpid(), SIGTERM);
  for (;;) pause();
}
CASE(at_exit, ALONE, "a function of atexit from after the first use of a device uses one") {
  begin_busy(0);
  atexit(at_end);
  exit(2);
}
CASE(at_exit_from_before, FIRST, "a function of atexit from before the first use of a device uses one") {
  atexit(at_end);
  begin_busy(0);
  exit(2);
}
static bool uses_at_the_very_end;
__attribute__((destructor)) static void very_end(void) {
  if (uses_at_the_very_end) at_end();
  fflush(stdout);
}
CASE(a_destructor, ALONE, "a destructor of the program uses a device") {
  begin_busy(0);
  uses_at_the_very_end = true;
}
CASE(exit_in_a_function_of_exit, ALONE, "a function of atexit uses a device and calls _exit") {
  begin_busy(1);
  atexit((void (*)(void))exits_at_once);
  atexit(at_end);
  exit(1);
}
CASE(main_ends_first, ALONE, "main ends by pthread_exit, and a thread goes on") {
  begin_busy(0);
  start(first_use_and_exit, NULL, 0);
  fflush(stdout);
  pthread_exit(NULL);
}
static void *late_first_use(void *none) {
  nap(50000);
  return first_use_and_exit(none);
}
CASE(main_ends_before_the_first_use, FIRST, "main ends by pthread_exit before a thread uses a device for the first time") {
  start(late_first_use, NULL, 0);
  pthread_exit(NULL);
}
struct crowd {
  struct rig rig;
  atomic_int ended;
};
static void *leaves(void *place) {
  struct crowd *crowd = place;
  must(!use_rig(crowd->rig, 3000));
  pthread_detach(pthread_self());
  crowd->ended++;
  pthread_exit(NULL);
}
CASE(detached_threads, TOGETHER, "detached threads end by themselves while the program goes on") {
  struct crowd *crowd = calloc(1, sizeof *crowd);
  crowd->rig = up();
  for (int i = 0; i < 20; i++) start(leaves, crowd, 0);
  for (int i = 0; i < 20; i++) must(!use_rig(crowd->rig, 3000));
  while (crowd->ended < 20) nap(1000);
  say("done\n");
  down(crowd->rig);
}
CASE(everything_stays, ALONE, "the process returns with queues, buffers, shared memory, and commands that have not ended") {
  struct rig rig = up_alone();
  for (int i = 0; i < 20; i++) new_buffer(rig.context, 0, 1000 << (i % 8));
  must(clSVMAlloc(rig.context, 0, 4096, 0));
  cl_mem memory = new_buffer(rig.context, 0, 1 << 20);
  release(memory);
  memory = new_buffer(rig.context, 0, 1 << 20);
  for (int i = 0; i < 5; i++) fill(rig.queue, memory, i, 1 << 20);
  clFlush(rig.queue);
  say("done\n");
}
CASE(nothing_at_all, FIRST, "the program asks which devices there are, makes one buffer, and releases nothing") {
  say("%d\n", new_buffer(new_context(), 0, 64) != NULL);
}
CASE(environment_is_gone, ALONE, "the program removes all variables, changes its folder, and goes on") {
  begin_busy(0);
  clearenv();
  must(!chdir("/"));
  say("%d\n", use_rig(last, 3333));
  struct rig rig = up_alone();
  say("%d\n", use_rig(rig, 3333));
  down_alone(rig);
}
