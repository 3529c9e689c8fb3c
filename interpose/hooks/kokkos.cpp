// Kokkos' tool interface, the tool side: Kokkos loads the library that KOKKOS_TOOLS_LIBS names and
// calls these functions. The label of a View becomes the name of its allocation, regions become
// scopes, events marks.
//
// Source: core/src/impl/Kokkos_Profiling_C_Interface.h of Kokkos, interface version 20240906; these
// functions are the same since Kokkos 3.2.
#include <atomic>
#include <cstdint>
#include <cstring>

#include "interpose/hooks/hook.hpp"
#include "interpose/process/annotations.hpp"

namespace mi = memlab::interpose;
using memlab::profiler::AnnotationNames;

namespace {

// By Kokkos' definition.
struct SpaceHandle {  ///< passed by value
    char name[64];
};
struct ToolSettings {
    bool requires_global_fencing;
    bool padding[255];
};

std::atomic<bool> attached{false};

}  // namespace

/// Called first.
MEMLAB_EXPORT void kokkosp_init_library(int /*load_sequence*/, std::uint64_t /*interface_version*/,
                                        std::uint32_t /*device_count*/, void* /*devices*/) {
    attached.store(mi::is_preloaded());
}

/// Kokkos waits for the device around each kernel unless its tool needs none of that.
MEMLAB_EXPORT void kokkosp_request_tool_settings(std::uint32_t count, ToolSettings* settings) {
    if (count != 0 && settings != nullptr) {
        settings->requires_global_fencing = false;
    }
}

/// `space`: "Cuda", "CudaUVM", "CudaHostPinned", "Host" and others. `pointer` begins an allocation.
MEMLAB_EXPORT void kokkosp_allocate_data(SpaceHandle space, const char* label, const void* pointer,
                                         std::uint64_t /*bytes*/) {
    if (attached.load() && std::strncmp(space.name, "Cuda", 4) == 0 && label != nullptr &&
        *label != '\0' && pointer != nullptr) {
        mi::label_memory(reinterpret_cast<std::uintptr_t>(pointer), true, mi::label_name(label));
    }
}

MEMLAB_EXPORT void kokkosp_push_profile_region(const char* name) {
    if (attached.load()) {
        mi::begin_scope(AnnotationNames::own_domain, mi::own_annotation_name(name));
    }
}

MEMLAB_EXPORT void kokkosp_pop_profile_region() {
    if (attached.load()) {
        mi::end_scope(AnnotationNames::own_domain);
    }
}

MEMLAB_EXPORT void kokkosp_profile_event(const char* name) {
    if (attached.load()) {
        mi::add_mark(mi::own_annotation_name(name));
    }
}
