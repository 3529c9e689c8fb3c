// libFuzzer: a file of suppressions, any bytes at all. What is taken has a name, a reason and a
// pattern; what is refused says in one line why.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "report/views/suppressions.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace memlab::model;
    using namespace memlab::report;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const SuppressionList read = parse_suppressions(text);
    if (!read.problem.empty()) {
        if (!read.list.empty() || read.problem.rfind("line ", 0) != 0 ||
            read.problem.find('\n') != std::string::npos) {
            __builtin_trap();
        }
        return 0;
    }
    StackFrame frame;
    frame.function = std::string(text.substr(0, size / 2));
    frame.module = std::string(text.substr(size / 2));
    for (const Suppression& each : read.list) {
        if (each.name.empty() || each.reason.empty() || (each.filter.empty() && each.api.empty())) {
            __builtin_trap();
        }
        (void)each.matches(Site{}, {frame});
    }
    return 0;
}
