// What a program of cases is made of. A case is a function that does one unusual thing, and says what it sees.
#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum how {
  TOGETHER, // with any others in one process, and on several threads at a time
  ALONE,    // in a process of its own, or after the others: it ends the process, or changes it
  FIRST,    // alone, and the process must not have used a device before
};

struct program {
  const char *kind;
  int line;
  const char *name, *what;
  enum how how;
  void (*run)(void);
};

// Defines a case, and adds it to the list of the program.
#define CASE(NAME, HOW, WHAT)                                                                                                    \
  static void NAME(void);                                                                                                        \
  static const struct program program_##NAME = {__FILE__, __LINE__, #NAME, WHAT, HOW, NAME};                                               \
  __attribute__((section("programs"), used)) static const struct program *const entry_##NAME = &program_##NAME;                  \
  static void NAME(void)

// Where the cases of this thread write.
extern _Thread_local FILE *transcript;
// Set if the cases of this thread use one context and queue.
extern _Thread_local bool is_shared;
// The path of this program.
extern const char *own_path;

// Writes down what the program sees.
#define say(...) ((void)fprintf(transcript, __VA_ARGS__))
// Ends the program if something that has to work does not.
#define must(TRUTH) ((TRUTH) ? (void)0 : failed(#TRUTH, __FILE__, __LINE__))
_Noreturn void failed(const char *what, const char *file, int line);

// Runs a function on a thread of its own with a stack of this size (0: the usual one), and returns its result.
void *on_thread(void *(*body)(void *), void *argument, size_t stack);
// Starts a thread that writes where this one does.
pthread_t start(void *(*body)(void *), void *argument, size_t stack);
void *join(pthread_t thread);
// Waits for a child, and says how it has ended.
void say_end(const char *what, pid_t child);
// Uses a device until the end of the process, where cases run beside each other: drivers that begin on two threads at a time may fail.
void hold_device(void);
// A number that a seed decides, less than `below`.
uint64_t pick(uint64_t *seed, uint64_t below);
void nap(long microseconds);
