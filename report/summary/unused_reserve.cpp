#include "report/summary/unused_reserve.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "report/text/units.hpp"

namespace memlab::report {

namespace {

constexpr std::uint64_t told_part = 100;
/// Less is what a pool takes from the driver at a time.
constexpr std::uint64_t least_unused = std::uint64_t{64} << 20;

/// Rounded down: "2.6", "12".
std::string times_text(double times) {
    constexpr double tenths = 10;
    if (times >= tenths) {
        return format_count(static_cast<std::uint64_t>(times));
    }
    char text[8];
    std::snprintf(text, sizeof text, "%.1f", std::floor(times * tenths) / tenths);
    return text;
}

}  // namespace

std::uint64_t least_bytes(const model::Report& report, const model::Device& device) {
    std::uint64_t peak = 0;
    for (const model::Device& each : report.devices) {
        if (each.gpu() != device.gpu()) {
            continue;
        }
        // Not of the whole GPU: contexts and other processes are in that.
        peak = std::max({peak, each.curve(model::Curve::allocated).peak_bytes,
                         each.curve(model::Curve::reserved).peak_bytes});
        for (const auto& [kind, totals] : each.kinds) {
            peak = std::max(peak, totals.peak_bytes);
        }
    }
    return std::max<std::uint64_t>(1, peak / told_part);
}

std::string UnusedReserve::text() const {
    const double times = static_cast<double>(reserved_bytes) /
                         static_cast<double>(std::max<std::uint64_t>(1, allocated_bytes));
    std::string text = "At most " + format_bytes(reserved_bytes) + " were reserved, " +
                       (times >= 2 ? times_text(times) + " times the " : "and at most ") +
                       format_bytes(allocated_bytes) +
                       (times >= 2 ? " that were allocated at most. " : " allocated. ");
    if (!setting.empty()) {
        return text + "With " + setting + " a replay reserves " + format_bytes(with_setting_bytes) +
               " at most.";
    }
    return text + (replayed ? "No setting that could be replayed reserves clearly less."
                            : "memlab-report inefficiencies replays the event log with other "
                              "settings.");
}

std::optional<UnusedReserve> find_possible_reserve(const model::Report& report,
                                                   const model::Device& device) {
    UnusedReserve found;
    found.reserved_bytes = device.curve(model::Curve::reserved).peak_bytes;
    found.allocated_bytes = device.curve(model::Curve::allocated).peak_bytes;
    const bool multiple =
        found.reserved_bytes / 2 >= found.allocated_bytes &&
        found.reserved_bytes - found.allocated_bytes >= least_bytes(report, device);
    return multiple ? std::optional(found) : std::nullopt;
}

std::optional<UnusedReserve> find_unused_reserve(const model::Report& report,
                                                 const model::Device& device) {
    std::optional<UnusedReserve> found = find_possible_reserve(report, device);
    if (found && found->reserved_bytes - found->allocated_bytes < least_unused) {
        found.reset();
    }
    return found;
}

}  // namespace memlab::report
