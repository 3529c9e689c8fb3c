// A program and a plugin that bypasses every preload (deep_plugin.cpp): it is opened with
// RTLD_DEEPBIND, so that its own libraries win, and works on the program's memory.
//
// What it prints is plain CUDA's behaviour: the plugin may free memory that it is given, and
// cuMemFree waits for the plugin's work as for any other. With the argument "harmless" the plugin
// lies under the name of a library that is known to use no CUDA.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstring>
#include <string>

#include "simulated.hpp"

using namespace program;

namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 20;

CUstream held_back = nullptr;
std::atomic<bool> let_go{false};

void* let_go_later(void* open) {
    ::usleep(200'000);
    let_go = true;
    reinterpret_cast<decltype(&simcuda_open_stream)>(open)(held_back);
    return nullptr;
}

using Fill = int (*)(CUdeviceptr, std::size_t, CUstream);

void free_beside_the_plugins_work(const char* what, CUdeviceptr block, Fill fill) {
    static auto* const close = control<decltype(simcuda_close_stream)>("simcuda_close_stream");
    static auto* const open = control<decltype(simcuda_open_stream)>("simcuda_open_stream");
    let_go = false;
    close(held_back);
    const int filled = fill(block, block_bytes, held_back);
    pthread_t thread = 0;
    pthread_create(&thread, nullptr, let_go_later, reinterpret_cast<void*>(open));
    CHECK(cuMemFree(block));
    SAY("%s: filled %d, the free waited: %s\n", what, filled, let_go ? "yes" : "no");
    pthread_join(thread, nullptr);
}

}  // namespace

int main(int count, char** words) {
    const bool harmless = count > 1 && std::strcmp(words[1], "harmless") == 0;
    std::string path(4096, '\0');
    path.resize(static_cast<std::size_t>(::readlink("/proc/self/exe", path.data(), path.size())));
    path.resize(path.rfind('/') + 1);
    use_device();
    CHECK(cuStreamCreate(&held_back, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr old = allocate(block_bytes);
    release(allocate(block_bytes));
    CHECK(cuCtxSynchronize());

    path += harmless ? "libtbbplugin.so" : "deep_plugin.so";
    void* const plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_DEEPBIND);
    if (plugin == nullptr) {
        SAY("%s\n", ::dlerror());
        return 4;
    }
    if (harmless) {
        release(allocate(block_bytes));
        release(old);
        return 0;
    }
    const auto fill = reinterpret_cast<Fill>(::dlsym(plugin, "deep_fill"));
    const auto free = reinterpret_cast<int (*)(CUdeviceptr)>(::dlsym(plugin, "deep_free"));
    free_beside_the_plugins_work("older memory", old, fill);
    for (int i = 0; i < 3; ++i) {
        const CUdeviceptr given = allocate(block_bytes);
        const int filled = fill(given, block_bytes, held_back);
        CHECK(cuStreamSynchronize(held_back));
        SAY("given to the plugin: filled %d, freed %d\n", filled, free(given));
    }
    const CUdeviceptr newer = allocate(block_bytes);
    release(allocate(block_bytes));
    CHECK(cuCtxSynchronize());
    free_beside_the_plugins_work("newer memory", newer, fill);
    return 0;
}
