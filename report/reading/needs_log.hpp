// What a command says that needs single events, of a report whose event log is not there or is no
// use.
#pragma once

#include <cctype>
#include <string>
#include <string_view>

#include "report/lacks.hpp"
#include "report/reading/find_event_log.hpp"

namespace memlab::report {

/// What a report alone has of what was live.
inline constexpr std::string_view live_at_few_moments =
    "a report knows what was live at the peak and at the end, and at no other moment";

/// "what; what to do", to be put behind the report's file and a colon. `has`: what a report has or
/// lacks ("has sums, not moments"). Throws std::bad_alloc only.
inline std::string needs_log(const FoundLog& log, std::string_view has) {
    std::string text = log.problem;
    if (text.empty()) {
        return std::string(has) +
               "; give its event log (*.memlog), which is kept beside the report unless "
               "MEMLAB_KEEP_LOG=off";
    }
    if (text.ends_with('.')) {
        text.pop_back();
    }
    text.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(text.front())));
    return text + "; " + std::string(info(Lack::Kind::event_log).advice);
}

}  // namespace memlab::report
