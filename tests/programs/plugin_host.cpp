// Loads a library that uses CUDA, lets it work, unloads it, and does so again. The host is not
// linked with CUDA at all. With the argument "deepbind" the library is loaded with RTLD_DEEPBIND;
// with "warm" another one is loaded first, and with "warmed" last, whose constructor waits for a
// thread that makes an allocation of 7000 bytes and its free. Between the rounds the address space
// that was left is taken: what is loaded again lies elsewhere.
//
// Recorded: 4 device allocations, 3 frees, 1 live of 60,000 bytes, with sites in the library that
// is not loaded any more. With "deepbind" the library's calls go past every preloaded library:
// nothing of them can be seen, the program must run as always.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

int main(int argc, char** argv) {
    const bool deepbind = argc == 2 && std::strcmp(argv[1], "deepbind") == 0;
    char self[4096];
    const ssize_t length = ::readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0) {
        return 4;
    }
    std::string path(self, static_cast<std::size_t>(length));
    path.resize(path.rfind('/') + 1);
    const std::string folder = path;
    path += "plugin.so";
    const auto load_warm = [&](const char* when) {
        if (argc == 2 && std::strcmp(argv[1], when) == 0) {
            std::printf("warm: %d\n",
                        ::dlopen((folder + "warm_plugin.so").c_str(), RTLD_NOW) != nullptr);
        }
    };
    load_warm("warm");

    for (int round = 0; round < 2; ++round) {
        void* library = ::dlopen(path.c_str(), RTLD_NOW | (deepbind ? RTLD_DEEPBIND : 0));
        if (library == nullptr) {
            std::printf("dlopen failed: %s\n", ::dlerror());
            return 4;
        }
        using Work = int (*)(int);
        const auto work = reinterpret_cast<Work>(::dlsym(library, "plugin_work"));
        if (work == nullptr) {
            return 4;
        }
        std::printf("round %d: %d live\n", round, work(round));
        std::printf("dlclose: %d\n", ::dlclose(library));
        for (int gap = 0; gap < 1024; ++gap) {
            ::mmap(nullptr, 64 << 10, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        }
    }
    load_warm("warmed");
    return 0;
}
