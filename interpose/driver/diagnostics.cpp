#include "interpose/driver/diagnostics.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>

#include "threads/no_cancellation.hpp"

namespace memlab::interpose {
namespace {

std::atomic<Verbosity> current_verbosity{Verbosity::warnings};

struct FileIdentity {
    dev_t device = 0;
    ino_t inode = 0;
    mode_t mode = 0;
    bool known = false;
};

FileIdentity query_identity(int descriptor) {
    struct stat status {};
    if (fstat(descriptor, &status) != 0) {
        return {};
    }
    return {status.st_dev, status.st_ino, status.st_mode, true};
}

// The file that was stderr at start. The program may close it and reuse descriptor 2 for a file of
// its own.
FileIdentity first_stderr;

__attribute__((constructor)) void remember_stderr() {
    first_stderr = query_identity(STDERR_FILENO);
}

/// Blocks and discards the signals of a failed write: SIGPIPE (no reader left) and SIGXFSZ
/// (RLIMIT_FSIZE reached).
class BlockedWriteSignals {
  public:
    BlockedWriteSignals() {
        sigemptyset(&signals_);
        sigaddset(&signals_, SIGPIPE);
        sigaddset(&signals_, SIGXFSZ);
        sigset_t pending;
        sigpending(&pending);
        for (const int signal : {SIGPIPE, SIGXFSZ}) {
            if (sigismember(&pending, signal) == 1) {
                sigdelset(&signals_, signal);  // it is the program's own
            }
        }
        pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    }
    ~BlockedWriteSignals() {
        constexpr timespec at_once{0, 0};
        while (sigtimedwait(&signals_, nullptr, &at_once) > 0) {
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    BlockedWriteSignals(const BlockedWriteSignals&) = delete;
    BlockedWriteSignals& operator=(const BlockedWriteSignals&) = delete;

  private:
    sigset_t signals_;
    sigset_t before_;
};

// Writes directly to the descriptor: stdio's buffers and locks belong to the program. No spdlog,
// which the tools use: its formatter needs libm and its thread-local storage the dynamic TLS model,
// both unacceptable in a preload library.
//
// Writes nothing if stderr is no longer the file of the process's start, and only as much as fits
// without blocking.
void write_to_stderr(std::string_view text) noexcept {
    const int saved_errno = errno;
    const FileIdentity now = query_identity(STDERR_FILENO);
    if (!now.known || now.device != first_stderr.device || now.inode != first_stderr.inode) {
        errno = saved_errno;
        return;
    }
    const threads::NoCancellation no_cancellation;
    const BlockedWriteSignals no_signal;
    // A writable pipe takes PIPE_BUF bytes without blocking; longer text goes in pieces.
    const std::size_t max_piece = S_ISREG(now.mode) ? text.size() : std::size_t{PIPE_BUF};
    while (!text.empty()) {
        pollfd ready{STDERR_FILENO, POLLOUT, 0};
        if (poll(&ready, 1, 0) != 1 || ready.revents != POLLOUT) {
            break;
        }
        const std::string_view piece = text.substr(0, max_piece);
        iovec part{const_cast<char*>(piece.data()), piece.size()};
        ssize_t written = -1;
        if (S_ISREG(now.mode) ||
            ((written = pwritev2(STDERR_FILENO, &part, 1, -1, RWF_NOWAIT)) < 0 &&
             (errno == EOPNOTSUPP || errno == ENOSYS))) {
            written = write(STDERR_FILENO, piece.data(), piece.size());
        }
        if (written <= 0) {
            break;  // no reader, or full
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    errno = saved_errno;
}

void write_lines(const std::string* lines, std::size_t count) noexcept {
    try {
        std::string text;
        for (std::size_t i = 0; i < count; ++i) {
            text += "memlab: " + lines[i] + "\n";
        }
        write_to_stderr(text);
    } catch (...) {  // out of memory: drop the message
    }
}

}  // namespace

void set_verbosity(Verbosity verbosity) {
    current_verbosity.store(verbosity, std::memory_order_relaxed);
}

void warn(const std::string& message) noexcept {
    if (current_verbosity.load(std::memory_order_relaxed) != Verbosity::quiet) {
        write_lines(&message, 1);
    }
}

void warn(const std::vector<std::string>& lines) noexcept {
    if (current_verbosity.load(std::memory_order_relaxed) != Verbosity::quiet) {
        write_lines(lines.data(), lines.size());
    }
}

void warn_without_heap(std::initializer_list<std::string_view> pieces) noexcept {
    if (current_verbosity.load(std::memory_order_relaxed) == Verbosity::quiet) {
        return;
    }
    std::array<char, 1024> line;
    std::size_t size = 0;
    const auto add = [&](std::string_view piece) {
        size += piece.copy(line.data() + size, line.size() - 1 - size);
    };
    add("memlab: ");
    for (std::string_view piece : pieces) {
        add(piece);
    }
    line[size++] = '\n';
    write_to_stderr({line.data(), size});
}

void debug(const std::string& message) noexcept {
    if (current_verbosity.load(std::memory_order_relaxed) == Verbosity::debug) {
        write_lines(&message, 1);
    }
}

}  // namespace memlab::interpose
