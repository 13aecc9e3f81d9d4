// Runs a program, ends as it does, and writes what it used: measure FILE PROGRAM ARGUMENT...
// The file gets the most memory that was resident, in KiB, and the time of the processor, in microseconds.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  int file = argc > 2 ? open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
  pid_t child = file < 0 ? -1 : fork();
  if (child < 0) return 97;
  if (!child) {
    execv(argv[2], argv + 2);
    _exit(96);
  }
  int status;
  struct rusage used;
  wait4(child, &status, 0, &used);
  long time = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
  dprintf(file, "%ld %ld\n", used.ru_maxrss, time);
  if (WIFSIGNALED(status)) {
    signal(WTERMSIG(status), SIG_DFL);
    kill(getpid(), WTERMSIG(status));
  }
  return WEXITSTATUS(status);
}
