// A program with PyTorch's exceptions, which catches what is thrown where memory is lacking, and has nothing left of it: catches_torch LIBRARY.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "c10.h"

typedef void* (*Allocate)(ssize_t bytes, int device, void* stream);

static long live = 0;

void* operator new(std::size_t bytes) {
    ++live;
    return std::malloc(bytes);
}
void operator delete(void* place) noexcept {
    live -= place != nullptr;
    std::free(place);
}
void operator delete(void* place, std::size_t) noexcept { operator delete(place); }

static bool fails_as_torch_does(Allocate allocate) {
    try {
        allocate(ssize_t(1) << 40, 0, nullptr);
    } catch (const c10::OutOfMemoryError& error) {
        std::puts(error.what());
        return std::strstr(error.what(), "could not allocate 1.0 TiB") != nullptr;
    }
    return false;
}

static bool fails_as_others_do(Allocate allocate) {
    try {
        allocate(512, -1, nullptr);
    } catch (const std::runtime_error& error) {
        return true;
    }
    return false;
}

int main(int, char** arguments) {
    // As Python loads it.
    void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        std::puts(dlerror());
        return 2;
    }
    Allocate allocate = reinterpret_cast<Allocate>(dlsym(library, "binpool_torch_allocate"));
    if (!fails_as_torch_does(allocate)) return 3;
    if (!fails_as_others_do(allocate)) return 4;
    long before = live;
    if (!fails_as_torch_does(allocate)) return 5;
    return live == before ? 0 : 6;
}
