#include "tools/diagnostics.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <mutex>
#include <vector>

namespace memlab::tools {

namespace {

/// Outside of spdlog's registry.
spdlog::logger& logger() {
    static spdlog::logger logger("memlab", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    return logger;
}

std::mutex collecting;
std::vector<std::string>* collected = nullptr;

}  // namespace

void print_diagnostic(const std::string& line) {
    {
        const std::scoped_lock lock(collecting);
        if (collected != nullptr) {
            collected->push_back(line);
            return;
        }
    }
    logger().log(spdlog::level::err, line);
}

void collect_diagnostics(std::vector<std::string>* lines) {
    const std::scoped_lock lock(collecting);
    collected = lines;
}

void set_program_name(const char* name) {
    logger().set_pattern(std::string(name) + ": %v");
    logger().flush_on(spdlog::level::trace);
}

}  // namespace memlab::tools
