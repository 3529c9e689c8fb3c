#include "interpose/driver/nested_frees.hpp"

namespace memlab::interpose {

constinit NestedFrees nested_frees;

NestedFrees::Result NestedFrees::note(Api api, CUdeviceptr address) {
    if (has(address)) {
        return Result::duplicate;
    }
    const std::uint64_t noted = static_cast<std::uint64_t>(api) << address_bits | address;
    for (std::atomic<std::uint64_t>& slot : slots_) {
        std::uint64_t empty = 0;
        if (slot.compare_exchange_strong(empty, noted, std::memory_order_acq_rel)) {
            count_.fetch_add(1, std::memory_order_relaxed);
            return Result::noted;
        }
    }
    lost_.fetch_add(1, std::memory_order_relaxed);
    return Result::full;
}

}  // namespace memlab::interpose
