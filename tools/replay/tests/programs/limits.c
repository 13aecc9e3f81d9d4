// Processes that may have little, or lose what they had.
#include "opencl.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static void come_and_go(struct rig rig, int times) {
  for (int i = 0; i < times; i++) release(new_buffer(rig.context, 0, 4096 + i % 5));
  say("%d\n", use_rig(rig, 4096));
}
static void limit(__rlimit_resource_t which, rlim_t most) {
  struct rlimit limit = {most, most};
  must(!setrlimit(which, &limit));
}

CASE(little_address_space, ALONE, "buffers of 64 MiB until the address space, which is limited, has no room") {
  struct rig rig = up();
  limit(RLIMIT_AS, 3ull << 30);
  cl_int status = 0;
  int granted = 0;
  for (int i = 0; i < 100 && !status; i++) {
    cl_mem memory = clCreateBuffer(rig.context, CL_MEM_ALLOC_HOST_PTR, 64 << 20, NULL, &status);
    if (!memory) break;
    unsigned char value = 1;
    status = clEnqueueFillBuffer(rig.queue, memory, &value, 1, 0, 4096, 0, NULL, NULL);
    finish(rig.queue);
    granted++;
    if (i % 3 == 0) release(memory);
  }
  say("refused: %d, after some: %d\n", status, granted > 10);
}
CASE(few_files, ALONE, "the limit of open files is what is open already") {
  struct rig rig = up();
  must(!use_rig(rig, 100));
  int next = dup(0);
  limit(RLIMIT_NOFILE, next);
  come_and_go(rig, 8000);
  down(rig);
}
CASE(few_files_from_the_beginning, FIRST, "16 files may be opened, before a device is used for the first time") {
  limit(RLIMIT_NOFILE, 16);
  struct rig rig = up_alone();
  come_and_go(rig, 2000);
  down_alone(rig);
}
CASE(no_more_processes, ALONE, "the program may start no more threads or processes, and must not gain rights") {
  struct rig rig = up();
  must(!use_rig(rig, 100));
  limit(RLIMIT_NPROC, 1);
  must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  come_and_go(rig, 100);
  down(rig);
}
CASE(no_locked_memory, ALONE, "no memory may be locked, and the process is not dumpable") {
  limit(RLIMIT_MEMLOCK, 0);
  must(!prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
  struct rig rig = up();
  come_and_go(rig, 100);
  down(rig);
}

// Where only root may: without its rights the case does nothing but use a device.

CASE(another_root, ALONE, "the root of the file system becomes an empty folder (if the program may)") {
  struct rig rig = up();
  must(!use_rig(rig, 100));
  char folder[] = "/tmp/programs-XXXXXX";
  must(mkdtemp(folder));
  say("%d\n", chroot(folder) ? -1 : chdir("/"));
  come_and_go(rig, 8000);
  down(rig);
}
CASE(no_proc, FIRST, "/proc is gone before a device is used for the first time (if the program may)") {
  int gone = unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || umount2("/proc", MNT_DETACH);
  say("%d\n", gone);
  struct rig rig = up_alone();
  come_and_go(rig, 500);
  down_alone(rig);
}
CASE(another_user, ALONE, "the program gives up the rights of root (if it has them)") {
  struct rig rig = up();
  must(!use_rig(rig, 100));
  if (!getuid()) must(!setgid(65534) && !setuid(65534));
  come_and_go(rig, 8000);
  down(rig);
}
CASE(a_folder_that_is_gone, FIRST, "the program's folder is removed before a device is used for the first time") {
  char folder[] = "/tmp/programs-XXXXXX";
  must(mkdtemp(folder) && !chdir(folder) && !rmdir(folder));
  umask(0777);
  struct rig rig = up_alone();
  come_and_go(rig, 500);
  down_alone(rig);
}
CASE(files_closed, ALONE, "the program closes all files but standard output, and opens others in their places") {
  struct rig rig = up();
  must(!use_rig(rig, 100));
  for (int i = 2; i < 64; i++) close(i);
  int own[8];
  for (int i = 0; i < 8; i++) own[i] = memfd_create("own", 0);
  come_and_go(rig, 8000);
  struct stat about;
  for (int i = 0; i < 8; i++) say("%d ", !fstat(own[i], &about) && !about.st_size);
  say("\n");
  down(rig);
}
