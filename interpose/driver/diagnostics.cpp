#include "interpose/driver/diagnostics.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>

#include "trace/no_cancellation.hpp"

namespace memlab::interpose {
namespace {

std::atomic<Verbosity> current_verbosity{Verbosity::warnings};

struct FileIdentity {
    dev_t device = 0;
    ino_t inode = 0;
    mode_t mode = 0;
    bool known = false;
};

FileIdentity identity_of(int descriptor) {
    struct stat status {};
    if (fstat(descriptor, &status) != 0) {
        return {};
    }
    return {status.st_dev, status.st_ino, status.st_mode, true};
}

// What this process had as its stderr when it began. What has the number later may be a file of the
// program's, which it closed stderr for.
FileIdentity first_stderr;

__attribute__((constructor)) void remember_stderr() {
    first_stderr = identity_of(STDERR_FILENO);
}

/// The signals of a failed write stay away from the program: of a pipe that nobody reads any more,
/// and of a file that has reached RLIMIT_FSIZE.
class NoSignalOfWrite {
  public:
    NoSignalOfWrite() {
        sigemptyset(&signals_);
        sigaddset(&signals_, SIGPIPE);
        sigaddset(&signals_, SIGXFSZ);
        sigset_t pending;
        sigpending(&pending);
        for (const int signal : {SIGPIPE, SIGXFSZ}) {
            if (sigismember(&pending, signal) == 1) {
                sigdelset(&signals_, signal);  // it is the program's
            }
        }
        pthread_sigmask(SIG_BLOCK, &signals_, &before_);
    }
    ~NoSignalOfWrite() {
        constexpr timespec at_once{0, 0};
        while (sigtimedwait(&signals_, nullptr, &at_once) > 0) {
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    NoSignalOfWrite(const NoSignalOfWrite&) = delete;
    NoSignalOfWrite& operator=(const NoSignalOfWrite&) = delete;

  private:
    sigset_t signals_;
    sigset_t before_;
};

// Straight to the descriptor: stdio's buffers and locks belong to the program. Not spdlog, which
// the tools use: its formatter needs libm, and its thread-local storage the dynamic model, and the
// preload library may bring a program neither.
//
// To the stderr that the process began with, or nowhere; and only what finds room there: the
// program must not wait for whoever does not read it.
void write_to_stderr(std::string_view text) noexcept {
    const int saved_errno = errno;
    const FileIdentity now = identity_of(STDERR_FILENO);
    if (!now.known || now.device != first_stderr.device || now.inode != first_stderr.inode) {
        errno = saved_errno;
        return;
    }
    const trace::NoCancellation no_cancellation;
    const NoSignalOfWrite no_signal;
    // A pipe that can be written to has room for so much; what is longer may come in pieces.
    const std::size_t most = S_ISREG(now.mode) ? text.size() : std::size_t{PIPE_BUF};
    while (!text.empty()) {
        pollfd ready{STDERR_FILENO, POLLOUT, 0};
        if (poll(&ready, 1, 0) != 1 || ready.revents != POLLOUT) {
            break;
        }
        const std::string_view piece = text.substr(0, most);
        iovec part{const_cast<char*>(piece.data()), piece.size()};
        ssize_t written = -1;
        if (S_ISREG(now.mode) ||
            ((written = pwritev2(STDERR_FILENO, &part, 1, -1, RWF_NOWAIT)) < 0 &&
             (errno == EOPNOTSUPP || errno == ENOSYS))) {
            written = write(STDERR_FILENO, piece.data(), piece.size());
        }
        if (written <= 0) {
            break;  // nobody to tell
        }
        text.remove_prefix(static_cast<std::size_t>(written));
    }
    errno = saved_errno;
}

void say(const std::string* lines, std::size_t count) noexcept {
    try {
        std::string text;
        for (std::size_t i = 0; i < count; ++i) {
            text += "memlab: " + lines[i] + "\n";
        }
        write_to_stderr(text);
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
        say(&message, 1);
    }
}

}  // namespace memlab::interpose
