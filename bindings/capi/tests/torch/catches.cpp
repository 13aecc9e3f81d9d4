// A program in C++ that asks for what it does not get, and catches what is thrown: catches LIBRARY.

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <utility>

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

// The function as PyTorch calls it: with a device, the name of a pool, and which streams are captured.
typedef std::pair<unsigned long long, unsigned long long> Name;
typedef void (*BeginPool)(int device, Name name, std::function<bool(void*)> captured);

static bool refuses(BeginPool begin) {
    bool destroyed = false;
    struct Destroyed {
        bool& is;
        ~Destroyed() { is = true; }
    };
    try {
        Destroyed meanwhile{destroyed};
        begin(0, Name(1, 0), [](void*) { return true; });
    } catch (const std::runtime_error& error) {
        std::puts(error.what());
        return destroyed && std::strstr(error.what(), "memory_pool()") != nullptr;
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
    BeginPool begin = reinterpret_cast<BeginPool>(dlsym(library, "binpool_torch_refuse_graph"));
    // More than once, so that nothing is left locked.
    for (int round = 0; round < 3; ++round) {
        if (!fails(allocate, ssize_t(1) << 40, 0, "out of memory: could not allocate 1.0 TiB")) return 3;
        if (!fails(allocate, -1, 0, "-1 bytes")) return 4;
        if (!fails(allocate, 512, -1, "device -1")) return 5;
        if (!refuses(begin)) return 7;
    }
    void* block = allocate(1 << 20, 0, nullptr);
    if (block == nullptr) return 6;
    free(block, 1 << 20, 0, nullptr);
    return 0;
}
