#include "report/summary/thread_text.hpp"

namespace memlab::report {

std::string thread_text(const Report& report, std::uint64_t thread) {
    const auto named = report.thread_names.find(thread);
    std::string name;
    if (named != report.thread_names.end()) {
        name = named->second;
    } else if (thread == report.process.pid) {
        name = "main";
    }
    return "thread " + std::to_string(thread) + (name.empty() ? "" : " (" + name + ")");
}

}  // namespace memlab::report
