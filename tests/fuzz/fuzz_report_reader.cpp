// libFuzzer: the JSON reader, and everything that shows its result, on any bytes at all.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "report/reader.hpp"
#include "report/summary.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace memlab::report;
    const ReadResult read = parse_report({reinterpret_cast<const char*>(data), size});
    if (!read.report) {
        // A refusal without a reason, or of more than a line, is a defect too.
        if (read.error.empty() || read.error.find('\n') != std::string::npos) {
            __builtin_trap();
        }
        return 0;
    }
    Resolver resolver(*read.report, nullptr);
    const Summary summary = summarize("fuzz.json", *read.report, "", resolver);
    TextOptions options;
    options.stacks = 2;
    options.style.ascii = size % 2 == 0;
    options.style.width = 40 + static_cast<int>(size % 81);
    if (render_text(summary, resolver, options).empty() || render_short(summary, options).empty() ||
        render_json(summary, resolver, 3).empty()) {
        __builtin_trap();
    }
    return 0;
}
