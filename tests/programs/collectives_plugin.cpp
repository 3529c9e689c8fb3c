// Opens, for itself alone, a plugin whose library is linked with NCCL, as Python opens PyTorch:
// nobody opened that library, or NCCL. Built twice: the program, and the plugin between the two.
// Needs the simulated NCCL.
//
//   collectives_plugin ARGUMENTS    as collectives ARGUMENTS
#ifdef PLUGIN

extern "C" {
int collectives_main(int argc, char** argv);
int ncclGroupStart();
int ncclGroupEnd();

__attribute__((visibility("default"))) int plugin_main(int argc, char** argv) {
    return collectives_main(argc, argv);
}

// Jumps to NCCL: the return address is the program's, which sees no NCCL.
__attribute__((visibility("default"))) int plugin_begin() {
    return ncclGroupStart();
}

__attribute__((visibility("default"))) int plugin_end() {
    return ncclGroupEnd();
}
}

#else

#include <dlfcn.h>

#include <string>

#include "tests/programs/program.hpp"

using namespace program;

namespace {

template <class Function>
Function* find(void* library, const char* name) {
    return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

int main(int argc, char** argv) {
    std::string path(4096, '\0');
    const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
    path.resize(static_cast<std::size_t>(length));
    void* const plugin = dlopen((path + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (plugin == nullptr) {
        SAY("no plugin: %s\n", dlerror());
        return 2;
    }
    const int begun = find<int()>(plugin, "plugin_begin")();
    const int ended = find<int()>(plugin, "plugin_end")();
    SAY("a group: %d %d\n", begun, ended);
    return find<int(int, char**)>(plugin, "plugin_main")(argc, argv);
}

#endif
