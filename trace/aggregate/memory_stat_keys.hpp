// The keys of torch.cuda.memory_stats, in PyTorch's order, which is alphabetical.
#pragma once

#include <cstdint>
#include <string_view>

#include "trace/aggregate/pool_layout.hpp"

namespace memlab::trace {

/// Calls visit(name, pool, figure, value) for each: "active_bytes", ".all", ".peak", 42. Plain
/// counters have neither pool nor figure ("num_ooms", "", "", 1), oversize ones no pool.
/// max_split_size is not visited, since it may be negative. `value` is a reference into `stats`.
/// `peak` is the member that the key ".peak" stands for.
template <typename Visit>
void visit_memory_stats(const MemoryStats& stats, Visit visit,
                        std::uint64_t Stat::*peak = &Stat::peak) {
    const auto one = [&](std::string_view name, std::string_view pool, const Stat& stat) {
        visit(name, pool, std::string_view(".allocated"), stat.allocated);
        visit(name, pool, std::string_view(".current"), stat.current);
        visit(name, pool, std::string_view(".freed"), stat.freed);
        visit(name, pool, std::string_view(".peak"), stat.*peak);
    };
    const auto all = [&](std::string_view name, const StatByPool& stat) {
        one(name, ".all", stat.all);
        one(name, ".large_pool", stat.large_pool);
        one(name, ".small_pool", stat.small_pool);
    };
    const auto plain = [&](std::string_view name, const std::uint64_t& value) {
        visit(name, std::string_view(), std::string_view(), value);
    };
    all("active", stats.active);
    all("active_bytes", stats.active_bytes);
    all("allocated_bytes", stats.allocated_bytes);
    all("allocation", stats.allocation);
    all("inactive_split", stats.inactive_split);
    all("inactive_split_bytes", stats.inactive_split_bytes);
    plain("num_alloc_retries", stats.num_alloc_retries);
    plain("num_device_alloc", stats.num_device_alloc);
    plain("num_device_free", stats.num_device_free);
    plain("num_ooms", stats.num_ooms);
    plain("num_sync_all_streams", stats.num_sync_all_streams);
    one("oversize_allocations", "", stats.oversize_allocations);
    one("oversize_segments", "", stats.oversize_segments);
    all("requested_bytes", stats.requested_bytes);
    all("reserved_bytes", stats.reserved_bytes);
    all("segment", stats.segment);
}

}  // namespace memlab::trace
