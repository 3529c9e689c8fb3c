#include "interpose/process/ipc_users.hpp"

#include <string_view>

#include "interpose/driver/loaded_objects.hpp"

namespace memlab::interpose {
namespace {

// Not NCCL and NVSHMEM: both come with every PyTorch, are loaded even if unused, and share buffers
// of their own. Memory that a program registers with them is exported like any other.
constexpr std::string_view prefixes[] = {
    "libucp.so",    "libuct.so",                                // UCX
    "libmpi.so",    "libmpich.so", "libmpi_", "libmpifort.so",  // Open MPI, MPICH, Intel, Cray
    "liboshmem.so",
};

}  // namespace

bool is_ipc_user(const char* file_name) {
    const std::string_view name(file_name);
    for (const std::string_view prefix : prefixes) {
        if (name.starts_with(prefix)) {
            return true;
        }
    }
    return false;
}

bool IpcUsers::look(Name* name) {
    unsigned long long loads = seen_.load(std::memory_order_relaxed);
    const bool found = find_loaded_object(&loads, [name](const char* file) {
        if (!is_ipc_user(file)) {
            return false;
        }
        const std::size_t length = std::string_view(file).copy(name->data(), name->size() - 1);
        (*name)[length] = '\0';
        return true;
    });
    seen_.store(loads, std::memory_order_relaxed);
    return found;
}

}  // namespace memlab::interpose
