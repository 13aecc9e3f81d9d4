// A program that ends a thread (pthread_cancel) which waits in a blocking read.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static cl_context context;
static cl_command_queue queue;
static cl_event gate;
static int waits;

static void *reads(void *unused) {
  char read[64];
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof read, NULL, NULL);
  clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof read, read, 0, NULL, NULL);
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
  __atomic_store_n(&waits, 1, __ATOMIC_SEQ_CST);
  clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof read, read, 1, &gate, NULL);
  return unused;
}

int main(void) {
  cl_platform_id platform;
  cl_device_id device;
  pthread_t thread;
  void *result = NULL;
  clGetPlatformIDs(1, &platform, NULL);
  clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
  context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
  queue = clCreateCommandQueue(context, device, 0, NULL);
  gate = clCreateUserEvent(context, NULL);
  pthread_create(&thread, NULL, reads, NULL);
  while (!__atomic_load_n(&waits, __ATOMIC_SEQ_CST)) usleep(1000);
  usleep(100000);
  pthread_cancel(thread);
  pthread_join(thread, &result);
  printf("cancelled: %d\n", result == PTHREAD_CANCELED);
  fflush(stdout);
  _exit(0);  // The driver may wait for what the thread has left.
}
