#include "allocator/size_policy.hpp"

#include <bit>
#include <limits>

namespace memlab::allocator {

namespace {

constexpr std::uint64_t segment_unit = 2ULL << 20;  // DeviceBackend::segment_alloc's contract

/// The next multiple of `unit`; none when that is more than 2^64 - 1.
std::optional<std::uint64_t> round_up(std::uint64_t value, std::uint64_t unit) {
    const std::uint64_t beyond = value % unit;
    if (beyond == 0) {
        return value;
    }
    if (value > std::numeric_limits<std::uint64_t>::max() - (unit - beyond)) {
        return std::nullopt;
    }
    return value + (unit - beyond);
}

bool is_segment_size(std::uint64_t size) {
    return size != 0 && size % segment_unit == 0;
}

}  // namespace

std::string problem_with(const PoolOptions& options) {
    if (!std::has_single_bit(options.rounding) || options.rounding < 512 ||
        options.rounding > segment_unit) {
        return "rounding must be a power of two from 512 bytes to 2 MiB";
    }
    if (!std::has_single_bit(options.coarse_alignment) ||
        options.coarse_alignment < options.rounding || options.coarse_alignment > segment_unit) {
        return "coarse_alignment must be a power of two from rounding to 2 MiB";
    }
    if (options.coarse_alignment > options.rounding &&
        options.coarse_alignment > options.small_size) {
        return "coarse_alignment must not be greater than small_size";
    }
    if (!is_segment_size(options.small_segment) || options.small_segment < options.small_size) {
        return "small_segment must be a multiple of 2 MiB that holds a block of small_size";
    }
    if (!is_segment_size(options.medium_segment) || options.medium_segment < options.medium_size) {
        return "medium_segment must be a multiple of 2 MiB that holds a block of medium_size";
    }
    if (!is_segment_size(options.large_rounding)) {
        return "large_rounding must be a multiple of 2 MiB";
    }
    return {};
}

std::optional<SizePolicy::Plan> SizePolicy::plan(std::uint64_t requested) const {
    const auto size = round_up(requested == 0 ? 1 : requested, options_.rounding);
    if (!size) {
        return std::nullopt;
    }
    if (*size <= options_.small_size) {
        return Plan{*size, options_.small_segment, true};
    }
    if (*size < options_.medium_size) {
        return Plan{*size, options_.medium_segment, false};
    }
    const auto segment = round_up(*size, options_.large_rounding);
    if (!segment) {
        return std::nullopt;
    }
    return Plan{*size, *segment, false};
}

std::uint64_t SizePolicy::aligned_capacity(std::uint64_t offset, std::uint64_t size) const {
    const std::uint64_t beyond = offset % options_.coarse_alignment;
    const std::uint64_t lead = beyond == 0 ? 0 : options_.coarse_alignment - beyond;
    return size > lead ? size - lead : 0;
}

bool SizePolicy::cuts_tail(std::uint64_t tail, bool small, bool reaches_segment_end) const {
    if (small) {
        return tail >= options_.rounding;
    }
    if (tail > options_.small_size) {
        return true;
    }
    return tail != 0 && tail < options_.coarse_alignment && !reaches_segment_end;
}

}  // namespace memlab::allocator
