#include "tests/simcuda/tool.hpp"

#include <atomic>

#include "tests/simcuda/call.hpp"

namespace {
std::atomic<const simcuda_tool*> tool{nullptr};
std::atomic<bool> free_async_broken{false};
}  // namespace

bool memlab::simcuda::is_free_async_broken() {
    return free_async_broken;
}

void simcuda_break_free_async() {
    free_async_broken = true;
}

const simcuda_tool* memlab::simcuda::attached_tool() {
    return is_forked_child() ? nullptr : tool.load(std::memory_order_acquire);
}

void simcuda_set_tool(const simcuda_tool* wanted) {
    tool.store(wanted, std::memory_order_release);
}

void simcuda_runtime_call(const char* name, int entering) {
    if (const simcuda_tool* attached = memlab::simcuda::attached_tool()) {
        attached->runtime_call(name, entering);
    }
}
