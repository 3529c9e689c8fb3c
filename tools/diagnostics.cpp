#include "tools/diagnostics.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>

namespace memlab::tools {

namespace {

/// Outside of spdlog's registry.
spdlog::logger& logger() {
    static spdlog::logger logger("memlab", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    return logger;
}

}  // namespace

void print_diagnostic(const std::string& line) {
    logger().log(spdlog::level::err, line);
}

void set_program_name(const char* name) {
    logger().set_pattern(std::string(name) + ": %v");
    logger().flush_on(spdlog::level::trace);
}

}  // namespace memlab::tools
