#include "trace/aggregate/library_memory.hpp"

#include <string_view>

namespace memlab::trace {
namespace {

std::string_view file_name(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

bool keeps_handles(std::string_view path) {
    const std::string_view name = file_name(path);
    return name.starts_with("libcublas") || name.starts_with("libcudnn") ||
           name.starts_with("libnccl");
}

}  // namespace

bool passes_on_requests(std::string_view path) {
    const std::string_view name = file_name(path);
    return name.starts_with("libc10") || name.starts_with("libcuda");
}

bool is_pytorchs_cuda(std::string_view path) {
    return file_name(path).starts_with("libtorch_cuda");
}

bool is_taken_by_library(const Aggregator& from, const Site& site) {
    for (const std::uint32_t index : from.stacks()[site.stack].frames) {
        const Frame& frame = from.frames()[index];
        if (frame.python != 0) {
            continue;
        }
        const std::string_view path = from.modules()[frame.module].path;
        if (passes_on_requests(path)) {
            continue;
        }
        return keeps_handles(path) ||
               (is_pytorchs_cuda(path) &&
                (site.kind == MemoryKind::suballocation || site.kind == MemoryKind::pinned));
    }
    return false;
}

}  // namespace memlab::trace
