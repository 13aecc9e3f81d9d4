// Processes that make others.
#include "opencl.h"
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

extern char **environ;

// Threads that use a device until they are told to stop.
struct busy {
  struct rig rig;
  atomic_bool is_over;
  pthread_t threads[3];
};
static void *is_busy(void *place) {
  struct busy *busy = place;
  for (size_t i = 0; !busy->is_over; i++) must(!use_rig(busy->rig, 1000 + i % 50 * 64));
  return NULL;
}
static struct busy *begin_busy(void) {
  struct busy *busy = calloc(1, sizeof *busy);
  busy->rig = up();
  for (int i = 0; i < 3; i++) busy->threads[i] = start(is_busy, busy, 0);
  return busy;
}
static void end_busy(struct busy *busy) {
  busy->is_over = true;
  for (int i = 0; i < 3; i++) join(busy->threads[i]);
  down(busy->rig);
  free(busy);
}

CASE(plain, TOGETHER, "buffers come and go (what programs that others start do)") {
  struct rig rig = up();
  for (int i = 0; i < 100; i++) must(!use_rig(rig, 4096 + i));
  say("done\n");
  down(rig);
}

static pid_t fork_with(void (*body)(void)) {
  fflush(transcript);
  pid_t child = fork();
  must(child >= 0);
  if (!child) {
    alarm(20);
    if (body) body();
    fflush(transcript);
    _exit(4);
  }
  return child;
}

static void uses_first(void) {
  struct rig rig = up_alone();
  for (int i = 0; i < 20; i++) must(!use_rig(rig, 1000 + i));
  say("the child has used a device\n");
  down_alone(rig);
}
CASE(fork_before_the_first_use, FIRST, "parent and child use a device for the first time, the child first") {
  say_end("child", fork_with(uses_first));
  uses_first();
}
CASE(fork_and_both_use, FIRST, "a child and its parent use a device for the first time at the same time") {
  pid_t child = fork_with(uses_first);
  struct rig rig = up_alone();
  for (int i = 0; i < 50; i++) must(!use_rig(rig, 2000 + i));
  say_end("child", child);
  down_alone(rig);
}
static void forks_again(void) {
  say_end("grandchild", fork_with(uses_first));
  uses_first();
}
CASE(grandchildren, FIRST, "a child forks before its first use, and both use a device") {
  say_end("child", fork_with(forks_again));
  uses_first();
}
CASE(a_daemon, FIRST, "the process that uses a device has forked twice, has a session of its own, and outlives its parent") {
  int ends[2];
  must(!pipe(ends));
  fflush(stdout);
  pid_t child = fork();
  if (!child) {
    setsid();
    if (fork()) _exit(3);
    struct rig rig = up_alone();
    int wrong = 0;
    for (int i = 0; i < 20; i++) wrong += use_rig(rig, 3000 + i) != 0;
    dprintf(ends[1], "the daemon: %d wrong\n", wrong);
    down_alone(rig);
    exit(0);
  }
  say_end("child", child);
  close(ends[1]);
  char line[100];
  FILE *in = fdopen(ends[0], "r");
  while (fgets(line, sizeof line, in)) say("%s", line);
  fclose(in);
  uses_first();
}

static void nothing(void) {}
CASE(fork_beside_busy_threads, TOGETHER, "a process forks while its threads use a device; the children do nothing") {
  struct busy *busy = begin_busy();
  for (int i = 0; i < 20; i++) say_end("child", fork_with(nothing));
  end_busy(busy);
}
CASE(children_that_exit, ALONE, "children leave by exit, which runs the functions for the end of the process") {
  struct rig rig = up();
  cl_mem kept = new_buffer(rig.context, 0, 1 << 20);
  for (int i = 0; i < 5; i++) {
    must(!use_rig(rig, 1000));
    fflush(stdout);
    pid_t child = fork();
    if (!child) exit(i);
    say_end("child", child);
  }
  say("%d %d\n", clReleaseMemObject(kept), use_rig(rig, 4096));
  down(rig);
}
static struct rig of_parent;
static cl_mem of_parents;
static void releases_of_parent(void) { say("the child releases: %d\n", clReleaseMemObject(of_parents)); }
static void creates_in_child(void) {
  cl_int status;
  cl_mem memory = clCreateBuffer(of_parent.context, 0, 4096, NULL, &status);
  say("the child creates: %d, and releases: %d\n", status, clReleaseMemObject(memory));
}
CASE(a_child_releases, ALONE, "a child releases a buffer of its parent, which the parent releases too") {
  of_parent = up();
  of_parents = new_buffer(of_parent.context, 0, 1 << 20);
  finish(of_parent.queue);
  say_end("child", fork_with(releases_of_parent));
  release(of_parents);
  say("%d\n", use_rig(of_parent, 1 << 20));
  down(of_parent);
}
CASE(a_child_creates, ALONE, "a child creates and releases a buffer in its parent's context") {
  of_parent = up();
  must(!use_rig(of_parent, 4096));
  say_end("child", fork_with(creates_in_child));
  say("%d\n", use_rig(of_parent, 4096));
  down(of_parent);
}
CASE(a_child_of_the_system_call, ALONE, "a child that the C library does not know of creates a buffer") {
  of_parent = up();
  must(!use_rig(of_parent, 4096));
  fflush(stdout);
  pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (!child) {
    alarm(20);
    creates_in_child();
    fflush(stdout);
    _exit(4);
  }
  say_end("child", child);
  say("%d\n", use_rig(of_parent, 4096));
  down(of_parent);
}
static void CL_CALLBACK forks(cl_event event, cl_int status, void *child) {
  pid_t made = fork();
  if (!made) _exit(6);
  *(_Atomic pid_t *)child = made;
}
CASE(fork_in_a_callback, ALONE, "the function of an event forks, on a thread of the driver") {
  struct rig rig = up();
  cl_mem memory = new_buffer(rig.context, 0, 4096);
  cl_event event;
  char value = 1;
  _Atomic pid_t child = 0;
  must(!clEnqueueFillBuffer(rig.queue, memory, &value, 1, 0, 4096, 0, NULL, &event));
  must(!clSetEventCallback(event, CL_COMPLETE, forks, &child));
  finish(rig.queue);
  while (!child) nap(100);
  say_end("child", child);
  clReleaseEvent(event);
  release(memory);
  down(rig);
}

// Functions of the program before and after forks.

static const char *used_in;
static void use_at_fork(const char *where) {
  if (!of_parent.context || strcmp(where, used_in)) return;
  say("%s: %d\n", where, use_rig(of_parent, 4096));
  fflush(transcript);
}
static void at_prepare(void) { use_at_fork("prepare"); }
static void at_parent(void) { use_at_fork("parent"); }
static void at_child(void) {
  if (of_parent.context && !strcmp("child", used_in)) creates_in_child();
}
static void fork_with_functions(const char *where, bool is_first) {
  used_in = where;
  if (is_first) pthread_atfork(at_prepare, at_parent, at_child);
  struct rig rig = up_alone();
  must(!use_rig(rig, 4096));
  if (!is_first) pthread_atfork(at_prepare, at_parent, at_child);
  of_parent = rig;
  for (int i = 0; i < 3; i++) say_end("child", fork_with(NULL));
  say("%d\n", use_rig(rig, 4096));
  of_parent.context = NULL;
  down_alone(rig);
}
CASE(atfork_prepare, FIRST, "a function of pthread_atfork from before the first use of a device uses one before the fork") { fork_with_functions("prepare", true); }
CASE(atfork_parent, FIRST, "the same after the fork, in the parent") { fork_with_functions("parent", true); }
CASE(atfork_child, FIRST, "the same after the fork, in the child") { fork_with_functions("child", true); }
CASE(atfork_prepare_later, ALONE, "a function of pthread_atfork from after the first use of a device uses one before the fork") { fork_with_functions("prepare", false); }
CASE(atfork_parent_later, ALONE, "the same after the fork, in the parent") { fork_with_functions("parent", false); }
CASE(atfork_child_later, ALONE, "the same after the fork, in the child") { fork_with_functions("child", false); }

// Other programs.

CASE(exec_in_a_child, TOGETHER, "children become this program again, which uses a device") {
  struct rig rig = up();
  for (int i = 0; i < 2; i++) {
    must(!use_rig(rig, 1000));
    int ends[2];
    must(!pipe(ends));
    fflush(transcript);
    pid_t child = fork();
    if (!child) {
      dup2(ends[1], 1);
      execl(own_path, own_path, "plain", (char *)NULL);
      _exit(9);
    }
    close(ends[1]);
    char line[100];
    FILE *in = fdopen(ends[0], "r");
    while (fgets(line, sizeof line, in)) say("%s", line);
    fclose(in);
    say_end("child", child);
  }
  down(rig);
}
CASE(vfork_and_exec, TOGETHER, "vfork and exec beside busy threads") {
  struct busy *busy = begin_busy();
  for (int i = 0; i < 10; i++) {
    pid_t child = vfork();
    if (!child) {
      execl("/bin/false", "false", (char *)NULL);
      _exit(9);
    }
    say_end("child", child);
  }
  end_busy(busy);
}
CASE(spawn, TOGETHER, "posix_spawn, system and popen beside busy threads") {
  struct busy *busy = begin_busy();
  for (int i = 0; i < 5; i++) {
    char *arguments[] = {"false", NULL};
    pid_t child;
    must(!posix_spawn(&child, "/bin/false", NULL, NULL, arguments, environ));
    say_end("child", child);
  }
  int status = system("exit 3");
  say("system: %d\n", WEXITSTATUS(status));
  FILE *in = popen("echo from a shell", "r");
  char line[100] = "";
  must(fgets(line, sizeof line, in));
  say("%s", line);
  say("closed: %d\n", pclose(in));
  end_busy(busy);
}
CASE(exec, ALONE, "the process becomes this program again") {
  struct rig rig = up();
  must(!use_rig(rig, 1000));
  fflush(stdout);
  execl(own_path, own_path, "plain", (char *)NULL);
}
CASE(exec_beside_busy_threads, ALONE, "the process becomes this program again while its threads use a device") {
  begin_busy();
  nap(20000);
  fflush(stdout);
  execl(own_path, own_path, "plain", (char *)NULL);
}
static void *execs(void *none) {
  execl(own_path, own_path, "plain", (char *)NULL);
  return NULL;
}
CASE(exec_on_a_thread, ALONE, "a thread other than the first makes the process this program again") {
  struct rig rig = up();
  must(!use_rig(rig, 1000));
  fflush(stdout);
  on_thread(execs, NULL, 0);
}
