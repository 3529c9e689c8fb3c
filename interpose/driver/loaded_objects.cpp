#include "interpose/driver/loaded_objects.hpp"

#include <link.h>

#include <cstring>

namespace memlab::interpose {
namespace {

struct ObjectSearch {
    unsigned long long last_loads;
    unsigned long long loads;
    FunctionRef<bool(const char*)> wanted;
    bool found;
};

int visit(dl_phdr_info* info, std::size_t /*size*/, void* data) {
    auto& search = *static_cast<ObjectSearch*>(data);
    search.loads = info->dlpi_adds;
    if (info->dlpi_adds == search.last_loads) {
        return 1;  // nothing loaded since
    }
    const char* const slash = std::strrchr(info->dlpi_name, '/');
    search.found = search.wanted(slash == nullptr ? info->dlpi_name : slash + 1);
    return search.found ? 1 : 0;
}

}  // namespace

bool find_loaded_object(unsigned long long* loads, FunctionRef<bool(const char*)> wanted) {
    ObjectSearch search{*loads, 0, wanted, false};
    dl_iterate_phdr(visit, &search);
    *loads = search.loads;
    return search.found;
}

}  // namespace memlab::interpose
