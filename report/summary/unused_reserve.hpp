// Reserved memory that is a multiple of what was ever allocated: the first thing to say of a
// recording, with the setting that reserves less where a replay shows one. Summary, inefficiencies
// and page say it in these words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/report.hpp"

namespace memlab::report {

/// What is told of a device is at least 1/100 of the largest peak on its GPU: allocated, reserved,
/// or of a kind of memory that is in neither.
std::uint64_t least_bytes(const model::Report& report, const model::Device& device);

struct UnusedReserve {
    std::uint64_t reserved_bytes = 0;      ///< at most
    std::uint64_t allocated_bytes = 0;     ///< at most
    bool replayed = false;                 ///< settings were tried
    std::string setting;                   ///< "MEMLAB_BACKEND=vmm"; empty: none that was tried
    std::uint64_t with_setting_bytes = 0;  ///< reserved at most, in a replay with it

    /// Whole sentences.
    std::string text() const;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"reserved_bytes", "the peak"}, self.reserved_bytes);
        visit.number({"allocated_bytes", "the peak"}, self.allocated_bytes);
        visit.text_or_null({"setting", "that reserves less; null where no replay shows one"},
                           self.setting);
        visit.number_or_null(
            {"with_setting_bytes", "reserved at most, in a replay with it"},
            self.setting.empty() ? std::nullopt : std::optional(self.with_setting_bytes));
        visit.text({"text", "whole sentences"}, self.text());
    }
};

/// None where less than half of it was unused, or less than least_bytes().
std::optional<UnusedReserve> find_possible_reserve(const model::Report& report,
                                                   const model::Device& device);

/// The same, of so much that it is told even where no replay reserves less.
std::optional<UnusedReserve> find_unused_reserve(const model::Report& report,
                                                 const model::Device& device);

}  // namespace memlab::report
