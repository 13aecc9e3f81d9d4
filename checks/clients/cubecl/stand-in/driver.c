/* What cubecl-cuda asks of a driver to start, beyond the stand-in for libcuda of backend-cuda, which this is linked with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

extern int cuMemHostAlloc(void **address, size_t bytes, unsigned flags);

int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}

int cuMemAllocHost_v2(void **address, size_t bytes) {
    return cuMemHostAlloc(address, bytes, 0);
}

/* A device of compute capability 8.0. */
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
    case 1: case 2: case 3: *value = 1024; return 0; /* Threads of a block, and their first two dimensions. */
    case 4: *value = 64; return 0;
    case 5: *value = 0x7fffffff; return 0; /* The dimensions of a grid. */
    case 6: case 7: *value = 65535; return 0;
    case 10: *value = 32; return 0; /* Threads of a warp. */
    case 16: *value = 4; return 0; /* Multiprocessors. */
    case 75: *value = 8; return 0;
    case 76: *value = 0; return 0;
    case 97: *value = 101376; return 0; /* Shared memory of a block. */
    }
    int (*next)(int *, int, int) = (int (*)(int *, int, int))dlsym(RTLD_NEXT, "cuDeviceGetAttribute");
    return next(value, attribute, device);
}

extern int cuCtxGetCurrent(void **context);
extern int cuCtxSetCurrent(void *context);
extern int cuDevicePrimaryCtxRetain(void **context, int device);

/* Clients wait on threads without a context, as the driver permits; the stand-in does not. */
int cuEventSynchronize(void *event) {
    void *current = NULL;
    cuCtxGetCurrent(&current);
    if (!current) {
        void *context;
        cuDevicePrimaryCtxRetain(&context, 0);
        cuCtxSetCurrent(context);
    }
    int (*next)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "cuEventSynchronize");
    int code = next(event);
    cuCtxSetCurrent(current);
    return code;
}
