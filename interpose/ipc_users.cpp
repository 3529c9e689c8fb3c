#include "interpose/ipc_users.hpp"

#include <link.h>

#include <cstring>
#include <string_view>

namespace memlab::interpose {
namespace {

// NCCL and NVSHMEM are not among them: both come with every PyTorch and are loaded though nobody
// communicates, and they share buffers of their own. What a program registers with them is exported
// like anything else.
constexpr std::string_view beginnings[] = {
    "libucp.so",    "libuct.so",                                // UCX
    "libmpi.so",    "libmpich.so", "libmpi_", "libmpifort.so",  // Open MPI, MPICH, Intel, Cray
    "liboshmem.so",
};

struct Search {
    unsigned long long seen;
    unsigned long long adds;
    IpcUsers::Name* name;
    bool found;
};

int visit(dl_phdr_info* info, std::size_t /*size*/, void* data) {
    auto& search = *static_cast<Search*>(data);
    search.adds = info->dlpi_adds;
    if (info->dlpi_adds == search.seen) {
        return 1;  // nothing was loaded since
    }
    const char* const slash = std::strrchr(info->dlpi_name, '/');
    const char* const file = slash == nullptr ? info->dlpi_name : slash + 1;
    if (!is_ipc_user(file)) {
        return 0;
    }
    search.found = true;
    const std::size_t length =
        std::string_view(file).copy(search.name->data(), search.name->size() - 1);
    (*search.name)[length] = '\0';
    return 1;
}

}  // namespace

bool is_ipc_user(const char* file_name) {
    const std::string_view name(file_name);
    for (const std::string_view beginning : beginnings) {
        if (name.starts_with(beginning)) {
            return true;
        }
    }
    return false;
}

bool IpcUsers::look(Name* name) {
    Search search{seen_.load(std::memory_order_relaxed), 0, name, false};
    dl_iterate_phdr(visit, &search);
    seen_.store(search.adds, std::memory_order_relaxed);
    return search.found;
}

}  // namespace memlab::interpose
