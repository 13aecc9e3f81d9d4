// Runs cases:
//   PROGRAM --list             prints each case: kind, name, how it goes with others, and what is unusual about it
//   PROGRAM CASE...            runs these, one after the other
//   PROGRAM --random SEED      runs some, which the seed decides, on several threads
#include "case.h"
#include <errno.h>
#include <time.h>

extern const struct program *const __start_programs[], *const __stop_programs[];

_Thread_local FILE *transcript;
_Thread_local bool is_shared;
const char *own_path;

enum { THREADS = 3, MOST = 5, MOST_PROGRAMS = 500 };

// The cases in the order of the files, whatever the linker makes of it: a seed decides the same everywhere.
static const struct program *programs[MOST_PROGRAMS];
static size_t count;

static int by_place(const void *left, const void *right) {
  const struct program *first = *(const struct program *const *)left, *second = *(const struct program *const *)right;
  int files = strcmp(first->kind, second->kind);
  return files ? files : first->line - second->line;
}

static void sort_programs(void) {
  count = __stop_programs - __start_programs;
  must(count <= MOST_PROGRAMS);
  memcpy(programs, __start_programs, count * sizeof *programs);
  qsort(programs, count, sizeof *programs, by_place);
}

void failed(const char *what, const char *file, int line) {
  say("failed: %s, %s:%d\n", what, file, line);
  fflush(transcript);
  fprintf(stderr, "failed: %s, %s:%d\n", what, file, line);
  _exit(99);
}

struct begun {
  void *(*body)(void *);
  void *argument;
  FILE *transcript;
};

static void *begin(void *place) {
  struct begun begun = *(struct begun *)place;
  free(place);
  transcript = begun.transcript;
  return begun.body(begun.argument);
}

pthread_t start(void *(*body)(void *), void *argument, size_t stack) {
  struct begun *begun = malloc(sizeof *begun);
  *begun = (struct begun){body, argument, transcript};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (stack) must(!pthread_attr_setstacksize(&attributes, stack));
  pthread_t thread;
  must(!pthread_create(&thread, &attributes, begin, begun));
  pthread_attr_destroy(&attributes);
  return thread;
}

void *join(pthread_t thread) {
  void *result;
  must(!pthread_join(thread, &result));
  return result;
}

void *on_thread(void *(*body)(void *), void *argument, size_t stack) { return join(start(body, argument, stack)); }

void say_end(const char *what, pid_t child) {
  int status = -1;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (WIFSIGNALED(status)) say("%s: signal %d\n", what, WTERMSIG(status));
  else say("%s: status %d\n", what, WEXITSTATUS(status));
}

uint64_t pick(uint64_t *seed, uint64_t below) {
  uint64_t mixed = *seed += 0x9E3779B97F4A7C15;
  mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
  return (mixed ^ mixed >> 31) % below;
}

void nap(long microseconds) {
  struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
  while (nanosleep(&left, &left) && errno == EINTR) {}
}

static void run(const struct program *program) {
  say("== %s\n", program->name);
  fflush(transcript);
  program->run();
  fflush(transcript);
}

static const struct program *find(const char *name) {
  for (size_t i = 0; i < count; i++)
    if (!strcmp(programs[i]->name, name)) return programs[i];
  fprintf(stderr, "there is no case %s\n", name);
  exit(98);
}

// The cases of a thread, what they wrote, and whether they have one context.
struct part {
  const struct program *programs[MOST];
  size_t count;
  bool is_shared;
  char *text;
  size_t length;
};

static void *run_part(void *place) {
  struct part *part = place;
  transcript = open_memstream(&part->text, &part->length);
  is_shared = part->is_shared;
  for (size_t i = 0; i < part->count; i++) run(part->programs[i]);
  fclose(transcript);
  return NULL;
}

// One that goes with others, or one that does not.
static const struct program *any(uint64_t *seed, enum how how) {
  const struct program *program;
  do program = programs[pick(seed, count)];
  while (program->how != how);
  return program;
}

static void run_random(uint64_t seed) {
  struct part parts[THREADS] = {0};
  size_t threads = 1 + pick(&seed, THREADS);
  for (size_t i = 0; i < threads; i++) {
    parts[i].count = 1 + pick(&seed, MOST);
    parts[i].is_shared = pick(&seed, 2);
    for (size_t k = 0; k < parts[i].count; k++) parts[i].programs[k] = any(&seed, TOGETHER);
  }
  const struct program *last = pick(&seed, 2) ? any(&seed, ALONE) : NULL;
  for (size_t i = 0; i < threads; i++) {
    fprintf(stderr, "thread %zu%s:", i, parts[i].is_shared ? " with one context" : "");
    for (size_t k = 0; k < parts[i].count; k++) fprintf(stderr, " %s", parts[i].programs[k]->name);
    fprintf(stderr, "\n");
  }
  if (last) fprintf(stderr, "last: %s\n", last->name);
  hold_device();
  pthread_t running[THREADS];
  for (size_t i = 0; i < threads; i++) running[i] = start(run_part, &parts[i], 0);
  for (size_t i = 0; i < threads; i++) join(running[i]);
  for (size_t i = 0; i < threads; i++) {
    fwrite(parts[i].text, 1, parts[i].length, transcript);
    free(parts[i].text);
  }
  if (last) run(last);
}

int main(int argc, char **argv) {
  static const char *const hows[] = {"together", "alone", "first"};
  transcript = stdout;
  setvbuf(stdout, NULL, _IOLBF, 0);
  // A case that hangs ends. So do the programs that it starts.
  alarm(30);
  own_path = realpath("/proc/self/exe", NULL);
  sort_programs();
  if (argc == 2 && !strcmp(argv[1], "--list")) {
    for (size_t i = 0; i < count; i++) {
      const struct program *program = programs[i];
      const char *kind = strrchr(program->kind, '/');
      printf("%s\t%s\t%s\t%s\n", kind ? kind + 1 : program->kind, program->name, hows[program->how], program->what);
    }
  } else if (argc == 3 && !strcmp(argv[1], "--random")) {
    run_random(strtoull(argv[2], NULL, 10));
  } else {
    for (int i = 1; i < argc; i++) run(find(argv[i]));
  }
  return 0;
}
