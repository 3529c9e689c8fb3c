#include "trace/aggregate/library_memory.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace memlab::trace {
namespace {

std::string_view file_name(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

template <std::size_t N>
bool begins_with_one_of(std::string_view name, const std::array<std::string_view, N>& of) {
    return std::any_of(of.begin(), of.end(),
                       [name](std::string_view each) { return name.starts_with(each); });
}

constexpr std::array<std::string_view, 3> keep_handles = {"libcublas", "libcudnn", "libnccl"};
/// What asks for memory is behind them.
constexpr std::array<std::string_view, 2> pass_on = {"libc10", "libcuda"};

}  // namespace

bool is_taken_by_library(const Aggregator& from, const Site& site) {
    for (const std::uint32_t index : from.stacks()[site.stack].frames) {
        const Frame& frame = from.frames()[index];
        if (frame.python != 0) {
            continue;
        }
        const std::string_view name = file_name(from.modules()[frame.module].path);
        if (begins_with_one_of(name, pass_on)) {
            continue;
        }
        return begins_with_one_of(name, keep_handles) ||
               (name.starts_with("libtorch_cuda") &&
                (site.kind == MemoryKind::suballocation || site.kind == MemoryKind::pinned));
    }
    return false;
}

}  // namespace memlab::trace
