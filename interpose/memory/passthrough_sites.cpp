#include "interpose/memory/passthrough_sites.hpp"

#include <cstddef>
#include <memory>

#include "profiler/object_classes.hpp"
#include "profiler/stack_capture.hpp"

namespace memlab::interpose {
namespace {

constinit profiler::ObjectClasses site_classes;

}  // namespace

bool passes_through(const Passthrough& rules, std::uint64_t bytes) {
    if (rules.matches_size(bytes)) {
        return true;
    }
    if (!rules.needs_call_stack()) {
        return false;
    }
    constexpr std::uint8_t plain = 1;
    constexpr std::uint8_t pooled = 2;
    const auto stack =
        std::make_unique<profiler::unwind::CapturedStack>();  // the thread's stack may be small
    profiler::capture_stack(*stack, profiler::unwind::CapturedStack::max_depth);
    for (std::size_t i = 0; i < stack->depth; ++i) {
        const std::uint8_t kind =
            site_classes.find_or_classify(stack->addresses[i], [&rules](std::string_view path) {
                return rules.matches_object(path) ? plain : pooled;
            });
        if (kind == plain) {
            return true;
        }
    }
    return false;
}

}  // namespace memlab::interpose
