#include "report/export/input.hpp"

#include <utility>

#include "report/event_log_of.hpp"
#include "report/reader.hpp"

namespace memlab::exports {

std::optional<Recording> read_recording(const std::string& path, std::string* error) {
    report::ReadResult read = report::read_report(path);
    if (!read.report) {
        *error = read.error;
        return std::nullopt;
    }
    std::string log = report::event_log_of(path, *read.report);
    return Recording{std::move(*read.report), std::move(log), read.warning};
}

}  // namespace memlab::exports
