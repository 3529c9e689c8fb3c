// Small synthetic reports with known figures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/report.hpp"

namespace memlab::report {

inline constexpr std::uint64_t mib = 1 << 20;

/// Builds a report of one GPU with Python frames, which need no symbols.
class SyntheticReport {
  public:
    SyntheticReport() {
        report.devices.resize(1);
        report.devices[0].name = "GPU";
        report.devices[0].kinds["device"].count = 1;
        report.modules.resize(1);
        report.python_frames.resize(1);
        report.frames.resize(1);
        report.stacks.resize(1);
        report.process.executable = "/opt/train";
    }

    /// Adds a call site: functions, innermost first, each on a line of its own in /src/NAME.py;
    /// "[forward]" has none.
    model::Site& site(const std::vector<std::string>& functions, std::uint64_t at_peak_bytes,
                      const std::string& kind = "device") {
        model::Stack stack;
        for (const std::string& function : functions) {
            stack.frames.push_back(frame(function));
        }
        report.stacks.push_back(stack);
        model::Site& site = report.sites.emplace_back();
        site.stack = functions.empty() ? 0 : report.stacks.size() - 1;
        site.kind = kind;
        site.api = "cuMemAlloc_v2";
        site.count = 1;
        site.bytes = at_peak_bytes;
        site.at_peak_count = 1;
        site.at_peak_bytes = at_peak_bytes;
        report.devices[0].at_peak.bytes += at_peak_bytes;
        return site;
    }

    model::Report report;

  private:
    std::size_t frame(const std::string& function) {
        for (std::size_t i = 1; i < report.python_frames.size(); ++i) {
            if (report.python_frames[i].function == function) {
                return i;
            }
        }
        const bool marker = function == "[forward]";
        const auto line = static_cast<std::uint32_t>(report.python_frames.size());
        report.python_frames.push_back(
            {function, marker ? "" : "/src/" + function + ".py", marker ? 0 : line});
        report.frames.push_back({0, 0, report.python_frames.size() - 1});
        return report.frames.size() - 1;
    }
};

}  // namespace memlab::report
