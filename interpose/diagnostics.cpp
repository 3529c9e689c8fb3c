#include "interpose/diagnostics.hpp"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <mutex>

namespace memlab::interpose {
namespace {

// Straight to the descriptor: stdio's buffers and locks belong to the program.
class DescriptorSink final : public spdlog::sinks::base_sink<std::mutex> {
  protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        const int saved_errno = errno;
        const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
        static_cast<void>(written);  // nobody to tell
        errno = saved_errno;
    }
    void flush_() override {}
};

// A logger of our own, outside spdlog's registry (the program may have its own spdlog), and never
// destroyed: threads may outlive main.
spdlog::logger& logger() {
    static spdlog::logger* const instance = [] {
        auto sink = std::make_shared<DescriptorSink>();
        auto* made = new spdlog::logger("memlab", std::move(sink));
        made->set_pattern("memlab: %v");
        made->set_level(spdlog::level::warn);
        return made;
    }();
    return *instance;
}

}  // namespace

void set_verbosity(Verbosity verbosity) {
    switch (verbosity) {
        case Verbosity::quiet:
            logger().set_level(spdlog::level::off);
            break;
        case Verbosity::warnings:
            logger().set_level(spdlog::level::warn);
            break;
        case Verbosity::debug:
            logger().set_level(spdlog::level::debug);
            break;
    }
}

void warn(const std::string& message) noexcept {
    try {
        logger().warn("{}", message);
    } catch (...) {  // out of memory: there is nothing left to say it with
    }
}

void debug(const std::string& message) noexcept {
    try {
        logger().debug("{}", message);
    } catch (...) {
    }
}

}  // namespace memlab::interpose
