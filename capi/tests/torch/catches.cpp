// A program in C++ that asks for more memory than there is, and catches what is thrown: catches LIBRARY.

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

typedef void* (*Allocate)(ssize_t bytes, int device, void* stream);
typedef void (*Free)(void* pointer, ssize_t bytes, int device, void* stream);

static bool fails(Allocate allocate, ssize_t bytes, int device, const char* text) {
    try {
        allocate(bytes, device, nullptr);
    } catch (const std::runtime_error& error) {
        std::puts(error.what());
        return std::strstr(error.what(), text) != nullptr;
    }
    return false;
}

int main(int, char** arguments) {
    void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        std::puts(dlerror());
        return 2;
    }
    Allocate allocate = reinterpret_cast<Allocate>(dlsym(library, "binpool_torch_allocate"));
    Free free = reinterpret_cast<Free>(dlsym(library, "binpool_torch_free"));
    // More than once, so that nothing is left locked.
    for (int round = 0; round < 3; ++round) {
        if (!fails(allocate, ssize_t(1) << 40, 0, "out of memory: 1.0 TiB")) return 3;
        if (!fails(allocate, -1, 0, "-1 bytes")) return 4;
        if (!fails(allocate, 512, -1, "device -1")) return 5;
    }
    void* block = allocate(1 << 20, 0, nullptr);
    if (block == nullptr) return 6;
    free(block, 1 << 20, 0, nullptr);
    return 0;
}
