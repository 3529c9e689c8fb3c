#include "report/export/input.hpp"

#include <utility>

#include "report/reader.hpp"

namespace memlab::exports {

std::optional<Recording> read_recording(const std::string& path, std::string* error) {
    report::ReadResult read = report::read_report(path);
    if (!read.report) {
        *error = read.error;
        return std::nullopt;
    }
    return Recording{std::move(*read.report), report::is_event_log(path) ? path : "", read.warning};
}

}  // namespace memlab::exports
