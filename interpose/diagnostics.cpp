#include "interpose/diagnostics.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

namespace memlab::interpose {
namespace {

std::atomic<Verbosity> current_verbosity{Verbosity::warnings};

// Straight to the descriptor, one write a line: stdio's buffers and locks belong to the program.
// Not spdlog, which the tools use: its formatter needs libm, and its thread-local storage the
// dynamic model, and the preload library may bring a program neither.
void say(const std::string* lines, std::size_t count) noexcept {
    try {
        std::string line;
        for (std::size_t i = 0; i < count; ++i) {
            line += "memlab: " + lines[i] + "\n";
        }
        const int saved_errno = errno;
        const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
        static_cast<void>(written);  // nobody to tell
        errno = saved_errno;
    } catch (...) {  // out of memory: there is nothing left to say it with
    }
}

}  // namespace

void set_verbosity(Verbosity verbosity) {
    current_verbosity.store(verbosity, std::memory_order_relaxed);
}

void warn(const std::string& message) noexcept {
    if (current_verbosity.load(std::memory_order_relaxed) != Verbosity::quiet) {
        say(&message, 1);
    }
}

void warn(const std::vector<std::string>& lines) noexcept {
    if (current_verbosity.load(std::memory_order_relaxed) != Verbosity::quiet) {
        say(lines.data(), lines.size());
    }
}

void warn_without_heap(std::initializer_list<std::string_view> pieces) noexcept {
    if (current_verbosity.load(std::memory_order_relaxed) == Verbosity::quiet) {
        return;
    }
    std::array<iovec, 18> parts;
    std::size_t count = 0;
    const auto add = [&](std::string_view piece) {
        if (count < parts.size()) {
            // writev only reads; iovec has no const.
            parts[count++] = {const_cast<char*>(piece.data()), piece.size()};
        }
    };
    add("memlab: ");
    for (std::string_view piece : pieces) {
        add(piece);
    }
    add("\n");
    const int saved_errno = errno;
    const ssize_t written = writev(STDERR_FILENO, parts.data(), static_cast<int>(count));
    static_cast<void>(written);  // nobody to tell
    errno = saved_errno;
}

void debug(const std::string& message) noexcept {
    if (current_verbosity.load(std::memory_order_relaxed) == Verbosity::debug) {
        say(&message, 1);
    }
}

}  // namespace memlab::interpose
