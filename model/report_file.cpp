#include "model/report_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <utility>

#include "model/json_writer.hpp"
#include "trace/log_file.hpp"
#include "trace/own_descriptor.hpp"

namespace memlab::model {
namespace {

/// Renames `from` to `to` unless `to` exists; 0 or errno. On file systems with neither
/// RENAME_NOREPLACE nor hard links it checks first, which is racy between two processes.
int rename_without_replacing(const std::string& from, const std::string& to) {
    constexpr unsigned no_replace = 1;  // RENAME_NOREPLACE
    if (syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), no_replace) == 0) {
        return 0;
    }
    if (errno == EEXIST) {
        return EEXIST;
    }
    if (link(from.c_str(), to.c_str()) == 0) {
        unlink(from.c_str());
        return 0;
    }
    if (errno == EEXIST) {
        return EEXIST;
    }
    struct stat status {};
    if (lstat(to.c_str(), &status) == 0) {
        return EEXIST;
    }
    return rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

}  // namespace

int rename_file(const std::string& from, const std::string& to, Existing existing) {
    if (existing == Existing::refuse) {
        return rename_without_replacing(from, to);
    }
    return rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

DescriptorSink::DescriptorSink(int descriptor) : descriptor_(descriptor) {
    struct stat status {};
    if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) {
        const bool at_end = (fcntl(descriptor, F_GETFL) & O_APPEND) != 0;
        const off_t at = at_end ? status.st_size : lseek(descriptor, 0, SEEK_CUR);
        rlimit limit{};
        if (at >= 0 && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
            const auto position = static_cast<std::uint64_t>(at);
            space_ = limit.rlim_cur > position ? limit.rlim_cur - position : 0;
        }
    }
}

bool DescriptorSink::write(const char* data, std::size_t size) {
    if (error_ == 0 && size > space_ - bytes_) {
        error_ = EFBIG;  // another write() would raise SIGXFSZ
    }
    while (size > 0 && error_ == 0) {
        const ssize_t written = ::write(descriptor_, data, size);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            error_ = written == 0 ? ENOSPC : errno;
            break;
        }
        data += written;
        size -= static_cast<std::size_t>(written);
        bytes_ += static_cast<std::uint64_t>(written);
    }
    return error_ == 0;
}

NewFile::NewFile(std::string path, unsigned mode)
    : path_(std::move(path)), descriptor_(create(mode)), sink_(descriptor_) {}

NewFile::~NewFile() {
    if (descriptor_ >= 0) {
        close(descriptor_);
    }
    if (!temporary_.empty()) {
        unlink(temporary_.c_str());
    }
}

int NewFile::create(unsigned mode) {
    constexpr int attempts = 100;
    const std::string stem = path_ + ".tmp." + std::to_string(getpid());
    for (int attempt = 0; attempt < attempts; ++attempt) {
        temporary_ = attempt == 0 ? stem : stem + "." + std::to_string(attempt);
        const int descriptor =
            open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                 static_cast<mode_t>(mode));
        if (descriptor >= 0) {
            return trace::move_to_high_descriptor(descriptor);
        }
        if (errno != EEXIST) {
            break;
        }
    }
    error_ = errno;
    temporary_.clear();
    return -1;
}

bool NewFile::write(const char* data, std::size_t size) {
    if (error_ == 0 && !sink_.write(data, size)) {
        error_ = sink_.error();
    }
    return error_ == 0;
}

int NewFile::complete() {
    if (descriptor_ >= 0 && close(std::exchange(descriptor_, -1)) != 0 && error_ == 0 &&
        errno != EINTR) {
        error_ = errno;
    }
    return error_;
}

int NewFile::place(Existing existing) {
    if (complete() == 0) {
        error_ = rename_file(temporary_, path_, existing);
    }
    if (error_ == 0) {
        temporary_.clear();
    }
    return error_;
}

namespace {

WriteResult failure(const std::string& path, int error_number, const char* why = nullptr) {
    WriteResult result;
    result.error = "cannot write the report '" + path +
                   "': " + (why != nullptr ? why : trace::describe_errno(error_number));
    result.error_number = error_number;
    return result;
}

/// `write(sink)` writes the contents; returns an errno, or 0.
template <typename Write>
WriteResult write_file(const std::string& path, Existing existing, unsigned mode, Write write) {
    struct stat status {};
    if (existing == Existing::replace && stat(path.c_str(), &status) == 0 &&
        !S_ISREG(status.st_mode)) {
        return failure(path, S_ISDIR(status.st_mode) ? EISDIR : EEXIST,
                       S_ISDIR(status.st_mode) ? nullptr : "a device or a pipe is never replaced");
    }
    NewFile file(path, mode);
    WriteResult result;
    int error = file.error();
    if (error == 0) {
        error = write(file);
        result.bytes = file.bytes();
    }
    error = error == 0 ? file.place(existing) : error;
    return error == 0 ? result : failure(path, error);
}

}  // namespace

WriteResult write_report(const trace::Aggregator& aggregator, int descriptor) {
    WriteResult result;
    try {
        DescriptorSink sink(descriptor);
        if (!write_json(sink, aggregator, Moment::end)) {
            result.error_number = sink.error();
            result.error = "cannot write the report: " + trace::describe_errno(sink.error());
        }
        result.bytes = sink.bytes();
    } catch (const std::bad_alloc&) {
        result.error = "no host memory";  // short enough to need none
        result.error_number = ENOMEM;
    }
    return result;
}

/// Runs `work`; turns std::bad_alloc into an error.
template <typename Work>
static WriteResult catch_bad_alloc(Work work) {
    try {
        return work();
    } catch (const std::bad_alloc&) {
        WriteResult result;
        result.error = "no host memory";
        result.error_number = ENOMEM;
        return result;
    }
}

WriteResult write_report(const trace::Aggregator& aggregator, const std::string& path,
                         Existing existing, unsigned mode) {
    return catch_bad_alloc([&] {
        return write_file(path, existing, mode, [&](NewFile& file) {
            return write_json(file, aggregator, Moment::end) ? 0 : file.error();
        });
    });
}

WriteResult write_text(std::string_view text, const std::string& path, Existing existing) {
    return catch_bad_alloc([&] {
        return write_file(path, existing, 0666, [&](NewFile& file) {
            return file.write(text.data(), text.size()) ? 0 : file.error();
        });
    });
}

}  // namespace memlab::model
