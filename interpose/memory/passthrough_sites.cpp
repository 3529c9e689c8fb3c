#include "interpose/memory/passthrough_sites.hpp"

#include <cstddef>
#include <memory>

#include "interpose/memory/object_classes.hpp"
#include "profiler/stack_capture.hpp"

namespace memlab::interpose {
namespace {

constinit ObjectClasses plain_classes;

}  // namespace

bool passes_through(const Passthrough& rules, std::uint64_t bytes) {
    if (rules.takes_size(bytes)) {
        return true;
    }
    if (!rules.asks_for_site()) {
        return false;
    }
    constexpr std::uint8_t plain = 1;
    constexpr std::uint8_t pooled = 2;
    const auto stack = std::make_unique<profiler::CapturedStack>();  // the thread's may be small
    profiler::capture_stack(*stack, profiler::CapturedStack::max_depth);
    for (std::size_t i = 0; i < stack->depth; ++i) {
        const std::uint8_t kind = plain_classes.of(
            stack->addresses[i],
            [&rules](std::string_view path) { return rules.takes_object(path) ? plain : pooled; });
        if (kind == plain) {
            return true;
        }
    }
    return false;
}

}  // namespace memlab::interpose
