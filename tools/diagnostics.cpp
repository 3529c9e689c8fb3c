#include "tools/diagnostics.hpp"

#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <string>

namespace memlab::tools {

spdlog::logger& diagnostics() {
    static spdlog::logger logger("memlab", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    return logger;
}

void set_program_name(const char* name) {
    diagnostics().set_pattern(std::string(name) + ": %v");
    diagnostics().flush_on(spdlog::level::trace);
}

}  // namespace memlab::tools
