#include "report/runs/newest_recording.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>

namespace memlab::report {

namespace {

/// Of one process: its report and its log.
struct Recording {
    std::string report;
    std::string log;
    std::filesystem::file_time_type changed = std::filesystem::file_time_type::min();
};

/// The name without `ending`, or nothing if it ends otherwise.
bool take_off(std::string_view& name, std::string_view ending) {
    const bool there = name.ends_with(ending) && name.size() > ending.size();
    name.remove_suffix(there ? ending.size() : 0);
    return there;
}

}  // namespace

std::string newest_recording(const std::string& folder, Wanted wanted) {
    std::map<std::string, Recording, std::less<>> recordings;
    std::error_code error;
    std::filesystem::directory_iterator entries(folder, error);
    for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
        const std::string name = entries->path().filename();
        std::string_view stem = name;
        if (!take_off(stem, ".gz")) {
            take_off(stem, ".zst");
        }
        std::error_code unreadable;
        const bool is_log = take_off(stem, ".memlog");
        const bool is_json = !is_log && take_off(stem, ".json");
        if ((!is_log && !is_json) || !entries->is_regular_file(unreadable)) {
            continue;
        }
        if (is_json && stem.starts_with("memlab-run.")) {
            if (wanted == Wanted::any) {
                return ".";
            }
            continue;
        }
        if (is_json && (wanted == Wanted::log || !stem.starts_with("memlab."))) {
            continue;
        }
        Recording& recording = recordings[std::string(stem)];
        (is_log ? recording.log : recording.report) = name;
        if (const auto changed = entries->last_write_time(unreadable); !unreadable) {
            recording.changed = std::max(recording.changed, changed);
        }
    }
    const auto newest = std::max_element(
        recordings.begin(), recordings.end(),
        [](const auto& a, const auto& b) { return a.second.changed < b.second.changed; });
    if (newest == recordings.end()) {
        return "";
    }
    return newest->second.report.empty() ? newest->second.log : newest->second.report;
}

}  // namespace memlab::report
