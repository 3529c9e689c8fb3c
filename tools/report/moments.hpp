// Moments and intervals of a recording, from the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/report.hpp"

namespace memlab::tools {

/// As given by --from, --until and --at: times, peak, end, names of marks (report::parse_moment());
/// empty: not given.
struct MomentOptions {
    std::string from;
    std::string until;
    std::string at;

    bool has_stretch() const { return !from.empty() || !until.empty(); }
};

/// The moments of a recording.
struct Interval {
    std::uint64_t from_ns = 0;  ///< before to_ns, unless the recording has no length
    std::uint64_t to_ns = 0;
    std::optional<std::uint64_t> at_ns;
};

/// The time that the value of an option means in this recording (report::parse_moment()); nullopt
/// with `problem` set to one line that begins with the option's name.
std::optional<std::uint64_t> find_moment(const char* option, const std::string& text,
                                         const model::Report& report,
                                         std::optional<std::uint64_t> device, std::string* problem);

/// Resolves all of them. Empty, or one line on what is wrong.
std::string find_interval(const MomentOptions& options, const model::Report& report,
                          std::optional<std::uint64_t> device, Interval* interval);

}  // namespace memlab::tools
