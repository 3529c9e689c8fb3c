#include "model/report_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>

#include "model/json_output.hpp"
#include "model/json_writer.hpp"
#include "trace/log_file.hpp"

namespace memlab::model {
namespace {

class DescriptorSink final : public ByteSink {
  public:
    explicit DescriptorSink(int descriptor) : descriptor_(descriptor) {
        struct stat status {};
        if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) {
            const off_t at = lseek(descriptor, 0, SEEK_CUR);
            rlimit limit{};
            if (at >= 0 && getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
                limit.rlim_cur != RLIM_INFINITY) {
                const auto position = static_cast<std::uint64_t>(at);
                space_ = limit.rlim_cur > position ? limit.rlim_cur - position : 0;
            }
        }
    }

    bool write(const char* data, std::size_t size) override {
        if (size > space_ - bytes_) {
            error_ = EFBIG;  // another write() would raise SIGXFSZ
            return false;
        }
        while (size > 0) {
            const ssize_t written = ::write(descriptor_, data, size);
            if (written < 0 && errno == EINTR) {
                continue;
            }
            if (written <= 0) {
                error_ = written == 0 ? ENOSPC : errno;
                return false;
            }
            data += written;
            size -= static_cast<std::size_t>(written);
            bytes_ += static_cast<std::uint64_t>(written);
        }
        return true;
    }

    std::uint64_t bytes() const { return bytes_; }
    int error() const { return error_; }

  private:
    int descriptor_;
    std::uint64_t space_ = ~std::uint64_t{0};
    std::uint64_t bytes_ = 0;
    int error_ = 0;
};

WriteResult failure(const std::string& path, int error_number) {
    WriteResult result;
    result.error = "cannot write the report '" + path + "': " + trace::describe_errno(error_number);
    result.error_number = error_number;
    return result;
}

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

/// Creates a new file beside `path`, skipping names left over by processes that died.
int create_temporary(const std::string& path, unsigned mode, std::string& name) {
    constexpr int attempts = 100;
    const std::string stem = path + ".tmp." + std::to_string(getpid());
    for (int attempt = 0; attempt < attempts; ++attempt) {
        name = attempt == 0 ? stem : stem + "." + std::to_string(attempt);
        const int descriptor =
            open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                 static_cast<mode_t>(mode));
        if (descriptor >= 0) {
            return trace::move_to_high_descriptor(descriptor);
        }
        if (errno != EEXIST) {
            return descriptor;
        }
    }
    return -1;
}

/// `write(descriptor)` writes the contents.
template <typename Write>
WriteResult write_file(const std::string& path, Existing existing, unsigned mode, Write write) {
    std::string temporary;
    const int descriptor = create_temporary(path, mode, temporary);
    if (descriptor < 0) {
        return failure(path, errno);
    }
    WriteResult result;
    try {
        result = write(descriptor);
    } catch (...) {
        close(descriptor);
        unlink(temporary.c_str());
        throw;
    }
    int error = result.error_number;
    if (close(descriptor) != 0 && error == 0 && errno != EINTR) {
        error = errno;  // network file systems report a full disk here
    }
    if (error == 0) {
        error = existing == Existing::refuse ? rename_without_replacing(temporary, path)
                : rename(temporary.c_str(), path.c_str()) == 0 ? 0
                                                               : errno;
    }
    if (error != 0) {
        unlink(temporary.c_str());
        return failure(path, error);
    }
    return result;
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
        return write_file(path, existing, mode,
                          [&](int descriptor) { return write_report(aggregator, descriptor); });
    });
}

WriteResult write_text(std::string_view text, const std::string& path, Existing existing) {
    return catch_bad_alloc([&] {
        return write_file(path, existing, 0666, [&](int descriptor) {
            WriteResult result;
            DescriptorSink sink(descriptor);
            if (!sink.write(text.data(), text.size())) {
                result.error_number = sink.error();
            }
            result.bytes = sink.bytes();
            return result;
        });
    });
}

}  // namespace memlab::model
