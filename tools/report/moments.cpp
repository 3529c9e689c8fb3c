#include "tools/report/moments.hpp"

#include <algorithm>

#include "report/lacks.hpp"
#include "report/text/units.hpp"
#include "report/timeline/moments.hpp"

namespace memlab::tools {

std::optional<std::uint64_t> find_moment(const char* option, const std::string& text,
                                         const model::Report& report,
                                         std::optional<std::uint64_t> device,
                                         std::string* problem) {
    const auto time = report::parse_moment(text, report, device, problem);
    if (!time) {
        *problem = std::string(option) + " " + *problem;
    }
    return time;
}

std::string find_interval(const MomentOptions& options, const model::Report& report,
                          std::optional<std::uint64_t> device, Interval* interval) {
    std::string problem;
    const auto moment = [&](const char* option, const std::string& text) {
        return find_moment(option, text, report, device, &problem).value_or(0);
    };
    const std::uint64_t end_ns = report::known_until(report).value_or(report.process.duration_ns);
    interval->to_ns = end_ns;
    if (!options.from.empty()) {
        interval->from_ns = moment("--from", options.from);
    }
    if (!options.until.empty()) {
        interval->to_ns = moment("--until", options.until);
    }
    if (!options.at.empty()) {
        interval->at_ns = moment("--at", options.at);
    }
    if (!problem.empty()) {
        return problem;
    }
    if (interval->at_ns.value_or(0) > end_ns) {
        return "--at " + options.at + " is after " +
               (report::recording_stopped(report) ? "the recording stopped, "
                                                  : "the end of the recording, ") +
               report::format_duration(end_ns);
    }
    interval->to_ns = std::min(interval->to_ns, end_ns);
    if (interval->from_ns >= interval->to_ns && end_ns != 0) {
        return "--from must be before --until and before the end of the recording, " +
               report::format_duration(end_ns);
    }
    return "";
}

}  // namespace memlab::tools
