#include "report/reading/input_file.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>

extern char** environ;

namespace memlab::report {

namespace {

class Descriptor {
  public:
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        if (fd_ >= 0) {
            close(fd_);
        }
    }
    int get() const { return fd_; }

  private:
    const int fd_;
};

using Buffer = std::array<unsigned char, 1 << 16>;

std::string errno_text(const char* what, int error) {
    return std::string(what) + " (" + std::strerror(error) + ")";
}

/// The number of bytes; 0 at the end, negative on errors.
ssize_t read_some(int fd, Buffer& buffer) {
    ssize_t got = -1;
    do {
        got = read(fd, buffer.data(), buffer.size());
    } while (got < 0 && errno == EINTR);
    return got;
}

bool write_all(int fd, const unsigned char* data, std::size_t size) {
    while (size != 0) {
        const ssize_t put = write(fd, data, size);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return false;
        }
        data += put;
        size -= static_cast<std::size_t>(put);
    }
    return true;
}

/// A file without a name in TMPDIR; -1 with errno set.
int make_temporary() {
    const char* const folder = std::getenv("TMPDIR");
    const std::string in = folder != nullptr && folder[0] != '\0' ? folder : "/tmp";
    const int unnamed = open(in.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (unnamed >= 0) {
        return unnamed;
    }
    std::string name = in + "/memlab-report.XXXXXX";  // not every file system has O_TMPFILE
    const int named = mkostemp(name.data(), O_CLOEXEC);
    if (named >= 0) {
        unlink(name.c_str());
    }
    return named;
}

std::string cannot_unpack() {
    return errno_text("cannot be unpacked: writing to TMPDIR failed", errno) +
           "; set TMPDIR to a folder with more space";
}

std::string copy(int from, int to) {
    Buffer buffer;
    ssize_t got = 0;
    while ((got = read_some(from, buffer)) > 0) {
        if (!write_all(to, buffer.data(), static_cast<std::size_t>(got))) {
            return cannot_unpack();
        }
    }
    return got < 0 ? errno_text("cannot be read", errno) + "; check the command before the pipe"
                   : std::string();
}

class Inflater {
  public:
    Inflater() {
        constexpr int gzip_window = 15 + 16;  // +16: a gzip header
        good_ = inflateInit2(&stream_, gzip_window) == Z_OK;
    }
    Inflater(const Inflater&) = delete;
    Inflater& operator=(const Inflater&) = delete;
    ~Inflater() { inflateEnd(&stream_); }

    /// Unpacks all members of the file.
    std::string unpack(int from, int to) {
        Buffer in;
        Buffer out;
        bool at_end = false;
        ssize_t got = 0;
        while (good_ && (got = read_some(from, in)) > 0) {
            stream_.next_in = in.data();
            stream_.avail_in = static_cast<uInt>(got);
            while (stream_.avail_in != 0) {
                if (at_end && inflateReset(&stream_) != Z_OK) {
                    return damaged();
                }
                stream_.next_out = out.data();
                stream_.avail_out = static_cast<uInt>(out.size());
                const int status = inflate(&stream_, Z_NO_FLUSH);
                if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
                    return damaged();
                }
                at_end = status == Z_STREAM_END;
                if (!write_all(to, out.data(), out.size() - stream_.avail_out)) {
                    return cannot_unpack();
                }
            }
        }
        return good_ && got == 0 && at_end ? std::string() : damaged();
    }

  private:
    static std::string damaged() {
        return "damaged: its gzip data ends early or is wrong; copy or compress it again";
    }

    z_stream stream_{};
    bool good_ = false;
};

/// By the program of that name: its library is not linked.
std::string unpack_zstd(int from, int to) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, from, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, to, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    std::array<char, 5> program{"zstd"};
    std::array<char, 4> arguments{"-dc"};
    std::array<char*, 3> argv{program.data(), arguments.data(), nullptr};
    pid_t child = -1;
    const int error = posix_spawnp(&child, program.data(), &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    int status = -1;
    if (error == 0) {
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
    }
    const bool missing = error != 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 127);
    if (missing) {
        return "compressed with zstd, and there is no program zstd here; unpack it first";
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? std::string()
               : "damaged: its zstd data ends early or is wrong; copy or compress it again";
}

bool begins_with(int fd, std::string_view magic) {
    std::array<char, 4> head{};
    return pread(fd, head.data(), magic.size(), 0) == static_cast<ssize_t>(magic.size()) &&
           std::string_view(head.data(), magic.size()) == magic;
}

bool is_gzip(int fd) {
    return begins_with(fd, "\x1f\x8b");
}

bool is_zstd(int fd) {
    return begins_with(fd, "\x28\xb5\x2f\xfd");
}

std::string name_of(int fd) {
    return "/proc/self/fd/" + std::to_string(fd);
}

InputFile open_input(const std::string& path) {
    constexpr const char* standard_input = "-";
    const bool is_standard = path == standard_input;
    const Descriptor given(is_standard ? dup(STDIN_FILENO)
                                       : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (given.get() < 0 || fstat(given.get(), &status) != 0) {
        return {path, is_standard ? "standard input is closed; pipe a recording into it" : ""};
    }
    const bool is_pipe = S_ISFIFO(status.st_mode) || (is_standard && !S_ISREG(status.st_mode));
    if (!is_pipe && !S_ISREG(status.st_mode)) {
        return {path, ""};
    }
    if (is_standard && isatty(STDIN_FILENO) != 0) {
        return {path, "standard input is a terminal; pipe a recording into it"};
    }
    InputFile input{is_standard ? name_of(STDIN_FILENO) : path, ""};
    int from = given.get();
    int copied = -1;
    if (is_pipe) {
        fcntl(from, F_SETFL, fcntl(from, F_GETFL) & ~O_NONBLOCK);
        copied = make_temporary();
        input.problem = copied < 0 ? cannot_unpack() : copy(from, copied);
        from = copied;
    }
    while (input.problem.empty() && (is_gzip(from) || is_zstd(from))) {
        const int unpacked = make_temporary();
        if (unpacked < 0) {
            input.problem = cannot_unpack();
            break;
        }
        lseek(from, 0, SEEK_SET);
        input.problem =
            is_gzip(from) ? Inflater().unpack(from, unpacked) : unpack_zstd(from, unpacked);
        if (copied >= 0) {
            close(copied);
        }
        from = copied = unpacked;
    }
    if (copied >= 0) {
        input.path = name_of(copied);  // stays open until the process ends
    }
    return input;
}

}  // namespace

InputFile find_input(const std::string& path) {
    static std::mutex mutex;
    static std::map<std::string, InputFile> known;
    const std::scoped_lock lock(mutex);
    const auto at = known.find(path);
    if (at != known.end()) {
        return at->second;
    }
    InputFile input = open_input(path);
    if (input.path != path || !input.problem.empty()) {
        known.emplace(path, input);  // a plain file may change, and is found as fast again
    }
    return input;
}

trace::LogReadResult read_input_log(const std::string& path, trace::RecordSink& sink,
                                    std::atomic<std::uint64_t>* bytes_read, trace::LogPart part) {
    const InputFile input = find_input(path);
    trace::LogReadResult result = trace::read_log(input.path, sink, bytes_read, part);
    if (input.path != path && result.message.starts_with(input.path)) {
        result.message.replace(0, input.path.size(), path);
    }
    return result;
}

}  // namespace memlab::report
