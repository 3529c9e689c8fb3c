#include "allocator/size_policy.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>

#include "allocator/backend.hpp"

namespace memlab::allocator {

namespace {

constexpr std::uint64_t segment_unit = page_bytes;

/// The next multiple of `unit`; none on overflow.
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

/// The same for a power of two, without a division: that would take as long as the rest of plan().
std::optional<std::uint64_t> round_up_to_power(std::uint64_t value, std::uint64_t unit) {
    if (value > std::numeric_limits<std::uint64_t>::max() - (unit - 1)) {
        return (value & (unit - 1)) == 0 ? std::optional(value) : std::nullopt;
    }
    return (value + (unit - 1)) & ~(unit - 1);
}

/// The divisions for the power-of-two range that contains `size`.
std::uint32_t divisions_for(std::uint64_t size, const RoundupDivisions& divisions) {
    const auto megabytes = size >> 20;
    const auto range = megabytes == 0 ? 0 : static_cast<std::size_t>(std::bit_width(megabytes)) - 1;
    return divisions.at(std::min(range, divisions.size() - 1));
}

/// Removes a decimal number from the front of `text`; none when there is none, or on overflow.
std::optional<std::uint32_t> take_number(std::string_view& text) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{}) {
        return std::nullopt;
    }
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
}

bool take(std::string_view& text, char expected) {
    if (text.empty() || text.front() != expected) {
        return false;
    }
    text.remove_prefix(1);
    return true;
}

bool is_division(std::uint32_t value) {
    return value == 0 || std::has_single_bit(value);
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
    if (options.fragmented_rounding % segment_unit != 0) {
        return "fragmented_rounding must be 0 or a multiple of 2 MiB";
    }
    if (!std::all_of(options.roundup_power2_divisions.begin(),
                     options.roundup_power2_divisions.end(), is_division)) {
        return "roundup_power2_divisions must be 0 or powers of two";
    }
    if (options.max_split_size < options.medium_segment) {
        return "max_split_size must not be less than medium_segment";
    }
    if (options.max_non_split_rounding < options.medium_segment) {
        return "max_non_split_rounding must not be less than medium_segment";
    }
    if (options.expandable && options.max_split_size != PoolOptions::no_limit) {
        return "max_split_size must not be set where expandable is: ranges can be split anywhere";
    }
    if (options.expandable_range != 0 && !is_segment_size(options.expandable_range)) {
        return "expandable_range must be 0 or a multiple of 2 MiB";
    }
    if (!(options.packed_share >= 0 && options.packed_share <= 1)) {
        return "packed_share must be at least 0 and at most 1";
    }
    if (options.unmaps_per_hold == 0 || options.segments_per_hold == 0) {
        return "unmaps_per_hold and segments_per_hold must not be 0";
    }
    if (!(options.garbage_collection_threshold >= 0 && options.garbage_collection_threshold < 1)) {
        return "garbage_collection_threshold must be at least 0 and less than 1";
    }
    return {};
}

std::string parse_roundup_divisions(std::string_view text, RoundupDivisions* divisions) {
    constexpr const char* not_a_division =
        "the divisions of roundup_power2_divisions must be 0 or a power of two";
    RoundupDivisions read{};
    if (!take(text, '[')) {
        const auto value = take_number(text);
        if (!value || !text.empty()) {
            return "roundup_power2_divisions must be a number or [MiB:divisions,...]";
        }
        if (!is_division(*value)) {
            return not_a_division;
        }
        read.fill(*value);
        *divisions = read;
        return {};
    }
    std::size_t last = 0;
    for (bool first = true;; first = false) {
        const bool rest = take(text, '>');
        const auto from = rest ? std::optional<std::uint32_t>{1} : take_number(text);
        const auto value = take(text, ':') ? take_number(text) : std::nullopt;
        if (!from || !value) {
            return "roundup_power2_divisions must be a number or [MiB:divisions,...]";
        }
        if (!is_division(*value)) {
            return not_a_division;
        }
        if (!std::has_single_bit(*from)) {
            return "the sizes of roundup_power2_divisions must be powers of two in MiB";
        }
        if (rest) {
            std::fill(read.begin() + static_cast<std::ptrdiff_t>(last), read.end(), *value);
        } else {
            last = std::min(static_cast<std::size_t>(std::bit_width(*from)) - 1, read.size() - 1);
            if (first) {
                std::fill(read.begin(), read.begin() + static_cast<std::ptrdiff_t>(last), *value);
            }
            read.at(last) = *value;
        }
        if (!take(text, ',')) {
            break;
        }
    }
    if (!take(text, ']') || !text.empty()) {
        return "roundup_power2_divisions must end with its ]";
    }
    *divisions = read;
    return {};
}

[[gnu::hot]] std::optional<std::uint64_t> SizePolicy::rounded(std::uint64_t requested) const {
    const std::uint64_t wanted = requested == 0 ? 1 : requested;
    const std::uint64_t divisions = divisions_for(wanted, options_.roundup_power2_divisions);
    if (divisions <= 1 || wanted <= options_.rounding * divisions) {
        return round_up_to_power(wanted, options_.rounding);
    }
    // Above rounding * divisions a step is never smaller than `rounding`.
    return round_up_to_power(wanted, std::bit_floor(wanted) / divisions);
}

[[gnu::hot]] std::optional<SizePolicy::Plan> SizePolicy::plan(std::uint64_t requested) const {
    const auto size = rounded(requested);
    if (!size) {
        return std::nullopt;
    }
    if (*size <= options_.small_size) {
        return Plan{*size, options_.small_segment, *size, true};
    }
    const auto unshared = *size < page_bytes ? size : round_up_to_power(*size, page_bytes);
    if (*size < options_.medium_size) {
        return Plan{*size, options_.medium_segment, *unshared, false};
    }
    const auto segment = round_up(*size, options_.large_rounding);
    if (!segment || !unshared) {
        return std::nullopt;
    }
    return Plan{*size, *segment, *unshared, false};
}

std::uint64_t SizePolicy::segment_for(const Plan& plan, std::uint64_t reserved,
                                      std::uint64_t unused) const {
    if (plan.size < options_.medium_size || unused < plan.size || unused < reserved / 8) {
        return plan.segment;
    }
    const std::uint64_t unit =
        std::min(options_.fragmented_rounding, std::bit_floor(plan.size / 2));
    const auto segment = unit <= options_.large_rounding ? std::nullopt : round_up(plan.size, unit);
    // Oversize blocks are not split.
    return !segment || *segment < plan.segment || oversize(*segment) ? plan.segment : *segment;
}

[[gnu::hot]] std::uint64_t SizePolicy::aligned_capacity(std::uint64_t offset,
                                                        std::uint64_t size) const {
    const std::uint64_t beyond = offset & (options_.coarse_alignment - 1);
    const std::uint64_t lead = beyond == 0 ? 0 : options_.coarse_alignment - beyond;
    return size > lead ? size - lead : 0;
}

[[gnu::hot]] bool SizePolicy::may_use(std::uint64_t size, std::uint64_t block) const {
    if (!oversize(block)) {
        return true;
    }
    return oversize(size) && block - size < options_.max_non_split_rounding;
}

[[gnu::hot]] bool SizePolicy::splits_tail(std::uint64_t size, std::uint64_t tail, bool small,
                                          bool reaches_segment_end) const {
    if (small || options_.expandable) {
        return tail >= options_.rounding;
    }
    if (tail > options_.small_size) {
        return !oversize(size);
    }
    return tail != 0 && tail < options_.coarse_alignment && !reaches_segment_end;
}

std::uint64_t SizePolicy::range_bytes(std::uint64_t size, std::uint64_t total_memory) const {
    constexpr std::uint64_t fallback = 256ULL << 30;
    const std::uint64_t total = options_.total_memory != 0 ? options_.total_memory : total_memory;
    const std::uint64_t usual = options_.expandable_range != 0 ? options_.expandable_range
                                : total == 0 || total > PoolOptions::no_limit / 4
                                    ? fallback
                                    : round_up(2 * total, page_bytes).value_or(fallback);
    return std::max(usual, round_up(size, page_bytes).value_or(size / page_bytes * page_bytes));
}

}  // namespace memlab::allocator
