#include "report/runs/newest_recording.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "report/reading/find_event_log.hpp"

namespace memlab::report {

namespace {

/// Of one process: its report and its log.
struct Recording {
    std::string report;
    std::string log;
    std::filesystem::file_time_type changed = std::filesystem::file_time_type::min();
};

}  // namespace

std::string newest_recording(const std::string& folder, Wanted wanted) {
    std::map<std::string, Recording, std::less<>> recordings;
    std::error_code error;
    std::filesystem::directory_iterator entries(folder, error);
    for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
        const std::string name = entries->path().filename();
        const auto known = recording_name(name);
        std::error_code unreadable;
        if (!known || !entries->is_regular_file(unreadable)) {
            continue;
        }
        const auto& [stem, is_log] = *known;
        if (!is_log && stem.starts_with("memlab-run.")) {
            if (wanted == Wanted::any) {
                return ".";
            }
            continue;
        }
        if (!is_log && (wanted == Wanted::log || !stem.starts_with("memlab."))) {
            continue;
        }
        Recording& recording = recordings[stem];
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
