#include "report/reading/input_file.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
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

/// A file may be what unpacks to itself.
constexpr int most_layers = 2;

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

std::string cannot_unpack() {
    return errno_text("cannot be unpacked: writing to TMPDIR failed", errno) +
           "; set TMPDIR to a folder with more space";
}

/// What is unpacked or comes through a pipe, on its way to a temporary file. Zeros, of which a log
/// that was reserved and not written has many, become holes. Refuses what unpacks to far more than
/// a recording does, before it fills memory or disk.
class Unpacked {
  public:
    /// `packed`: the bytes that it comes from; none: it is not compressed.
    Unpacked(int fd, std::optional<std::uint64_t> packed)
        : fd_(fd),
          most_data_(packed ? std::max(data_taken, *packed * most_ratio) : no_limit),
          most_(packed ? std::max(taken, *packed * most_with_zeros) : no_limit) {}

    /// False: problem() says why.
    bool add(const unsigned char* data, std::size_t size) {
        const bool zeros =
            std::all_of(data, data + size, [](unsigned char byte) { return byte == 0; });
        data_ += zeros ? 0 : size;
        size_ += size;
        if (data_ > most_data_ || size_ > most_) {
            problem_ = "unpacks to far more than a recording does (over " +
                       std::to_string(most_ratio) +
                       " times its size); unpack it first if it is one";
            return false;
        }
        if (zeros ? lseek(fd_, static_cast<off_t>(size), SEEK_CUR) < 0 : !write_all(data, size)) {
            return fail();
        }
        return true;
    }

    /// After the last add().
    bool finish() { return ftruncate(fd_, static_cast<off_t>(size_)) == 0 || fail(); }
    const std::string& problem() const { return problem_; }

  private:
    static constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();
    /// Reports shrink to a tenth at best, logs to a third; zeros to nearly nothing.
    static constexpr std::uint64_t most_ratio = 100;
    static constexpr std::uint64_t most_with_zeros = 2000;
    static constexpr std::uint64_t data_taken = 64ULL << 20;
    static constexpr std::uint64_t taken = 4ULL << 30;

    bool write_all(const unsigned char* data, std::size_t size) const {
        while (size != 0) {
            const ssize_t put = write(fd_, data, size);
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
    bool fail() {
        problem_ = cannot_unpack();
        return false;
    }

    const int fd_;
    const std::uint64_t most_data_;
    const std::uint64_t most_;
    std::uint64_t data_ = 0;  ///< without zeros
    std::uint64_t size_ = 0;
    std::string problem_;
};

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

std::string copy(int from, Unpacked& to) {
    Buffer buffer;
    ssize_t got = 0;
    while ((got = read_some(from, buffer)) > 0) {
        if (!to.add(buffer.data(), static_cast<std::size_t>(got))) {
            return to.problem();
        }
    }
    if (got < 0) {
        return errno_text("cannot be read", errno) + "; check the command before the pipe";
    }
    return to.finish() ? std::string() : to.problem();
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
    std::string unpack(int from, Unpacked& to) {
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
                if (!to.add(out.data(), out.size() - stream_.avail_out)) {
                    return to.problem();
                }
            }
        }
        if (!good_ || got != 0 || !at_end) {
            return damaged();
        }
        return to.finish() ? std::string() : to.problem();
    }

  private:
    static std::string damaged() {
        return "damaged: its gzip data ends early or is wrong; copy or compress it again";
    }

    z_stream stream_{};
    bool good_ = false;
};

/// By the program of that name: its library is not linked.
std::string unpack_zstd(int from, Unpacked& to) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
        return cannot_unpack();
    }
    std::optional<Descriptor> unpacked(std::in_place, ends[0]);
    std::optional<Descriptor> writing(std::in_place, ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, from, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, writing->get(), STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    std::array<char, 5> program{"zstd"};
    std::array<char, 4> arguments{"-dc"};
    std::array<char*, 3> argv{program.data(), arguments.data(), nullptr};
    pid_t child = -1;
    const int error = posix_spawnp(&child, program.data(), &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    writing.reset();
    std::string problem = error == 0 ? copy(unpacked->get(), to) : std::string();
    unpacked.reset();  // ends one that is not wanted
    int status = -1;
    if (error == 0) {
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
    }
    const bool missing = error != 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 127);
    if (missing) {
        return "compressed with zstd, and there is no program zstd here; unpack it first";
    }
    if (!problem.empty()) {
        return problem;
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
        Unpacked to(copied, std::nullopt);
        input.problem = copied < 0 ? cannot_unpack() : copy(from, to);
        from = copied;
    }
    struct stat packed {};
    fstat(from, &packed);
    for (int layer = 0; input.problem.empty() && (is_gzip(from) || is_zstd(from)); ++layer) {
        if (layer == most_layers) {
            input.problem = "compressed more than twice; unpack it first";
            break;
        }
        const int unpacked = make_temporary();
        if (unpacked < 0) {
            input.problem = cannot_unpack();
            break;
        }
        lseek(from, 0, SEEK_SET);
        Unpacked to(unpacked, static_cast<std::uint64_t>(packed.st_size));
        input.problem = is_gzip(from) ? Inflater().unpack(from, to) : unpack_zstd(from, to);
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
