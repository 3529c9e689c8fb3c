#include "tools/report/debuginfod_option.hpp"

#include "report/symbols/debuginfod.hpp"
#include "report/text/terminal.hpp"
#include "tools/diagnostics.hpp"

namespace memlab::tools {

void add_debuginfod(CLI::App& app) {
    const CLI::Option* no_symbols = app.get_option_no_throw("--no-symbols");
    app.add_flag_callback(
        "--debuginfod",
        [no_symbols] {
            // Not CLI11's excludes(), whose text in --help breaks the columns.
            if (no_symbols != nullptr && no_symbols->count() > 0) {
                throw CLI::ValidationError("--debuginfod",
                                           "--no-symbols looks nothing up; omit one of them");
            }
            if (const std::string problem = report::allow_debuginfod(); !problem.empty()) {
                throw CLI::ValidationError("--debuginfod", problem);
            }
        },
        "Download missing debug information from the servers in DEBUGINFOD_URLS");
}

void add_symbols(CLI::App& app, bool& no_symbols, const std::string& meaning) {
    app.add_flag("--no-symbols", no_symbols, meaning);
    add_debuginfod(app);
}

void note_debuginfod() {
    if (const std::string note = report::debuginfod_note(); !note.empty()) {
        print_diagnostic(note);
    }
}

}  // namespace memlab::tools
