// What a program of Kokkos' does with Views in device memory, without Kokkos: loads the tool that
// KOKKOS_TOOLS_LIBS names, asks for its functions and calls them as Kokkos 4 does.
//
// Recorded where memlab is the tool: the scopes "assemble" (1 MiB escapes) and "assemble/inner",
// the mark "converged", the names "stiffness" (1 MiB) and "load vector" (256 KiB). Prints whether
// its tool wants a fence around each kernel, the default, which it does not.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "program.hpp"

using namespace program;

namespace {

struct SpaceHandle {
    char name[64];
};
struct ToolSettings {
    bool requires_global_fencing;
    bool padding[255];
};

void (*init)(int, std::uint64_t, std::uint32_t, void*) = nullptr;
void (*request_tool_settings)(std::uint32_t, ToolSettings*) = nullptr;
void (*push_region)(const char*) = nullptr;
void (*pop_region)() = nullptr;
void (*profile_event)(const char*) = nullptr;
void (*allocate_data)(SpaceHandle, const char*, const void*, std::uint64_t) = nullptr;
void (*deallocate_data)(SpaceHandle, const char*, const void*, std::uint64_t) = nullptr;

template <class Function>
void look_up(void* tool, const char* name, Function** function) {
    *function = tool == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(tool, name));
}

template <class Function, class... Arguments>
void call(Function* function, Arguments... arguments) {
    if (function != nullptr) {
        function(arguments...);
    }
}

SpaceHandle space(const char* name) {
    SpaceHandle handle{};
    std::strncpy(handle.name, name, sizeof handle.name - 1);
    return handle;
}

CUdeviceptr view(const char* label, std::size_t bytes) {
    const CUdeviceptr address = allocate(bytes);
    call(allocate_data, space("Cuda"), label, reinterpret_cast<const void*>(address),
         std::uint64_t{bytes});
    return address;
}

void end_view(const char* label, CUdeviceptr address, std::size_t bytes) {
    call(deallocate_data, space("Cuda"), label, reinterpret_cast<const void*>(address),
         std::uint64_t{bytes});
    release(address);
}

}  // namespace

int main() {
    use_device();
    const char* const name = std::getenv("KOKKOS_TOOLS_LIBS");
    void* const tool = name == nullptr ? nullptr : dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    look_up(tool, "kokkosp_init_library", &init);
    look_up(tool, "kokkosp_request_tool_settings", &request_tool_settings);
    look_up(tool, "kokkosp_push_profile_region", &push_region);
    look_up(tool, "kokkosp_pop_profile_region", &pop_region);
    look_up(tool, "kokkosp_profile_event", &profile_event);
    look_up(tool, "kokkosp_allocate_data", &allocate_data);
    look_up(tool, "kokkosp_deallocate_data", &deallocate_data);

    ToolSettings settings{tool != nullptr, {}};
    call(init, 0, std::uint64_t{20240906}, std::uint32_t{0}, static_cast<void*>(nullptr));
    call(request_tool_settings, std::uint32_t{1}, &settings);
    call(push_region, "assemble");
    const CUdeviceptr kept = view("stiffness", 1 << 20);
    call(push_region, "inner");
    const CUdeviceptr passing = view("scratch", 4096);
    end_view("scratch", passing, 4096);
    call(pop_region);
    call(pop_region);
    const CUdeviceptr load = view("load vector", 256 << 10);
    call(allocate_data, space("Host"), "of the host", static_cast<const void*>(&settings),
         std::uint64_t{8});
    call(profile_event, "converged");
    SAY("%s\n", settings.requires_global_fencing ? "fences" : "no fences");
    (void)kept;
    (void)load;
    return 0;
}
