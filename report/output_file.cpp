#include "report/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace memlab::report {

namespace {

using model::Existing;

constexpr mode_t for_all = 0666;

/// The number in a name that stands for a descriptor; -1: none.
int named_descriptor(std::string_view path) {
    if (path == "-" || path == "/dev/stdout") {
        return STDOUT_FILENO;
    }
    if (path == "/dev/stderr") {
        return STDERR_FILENO;
    }
    for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
        if (path.starts_with(folder)) {
            path.remove_prefix(folder.size());
            int number = -1;
            const auto [end, error] =
                std::from_chars(path.data(), path.data() + path.size(), number);
            return error == std::errc() && end == path.data() + path.size() ? number : -1;
        }
    }
    return -1;
}

const char* what_to_do(int error) {
    switch (error) {
        case ENOSPC:
        case EDQUOT:
            return "free some space, or give another path";
        case EFBIG:
            return "raise the limit for files (ulimit -f), or give another path";
        default:
            return "give another path";
    }
}

}  // namespace

std::string link_target(const std::string& path) {
    std::error_code error;
    std::filesystem::path target = std::filesystem::canonical(path, error);
    if (!error) {
        return target.string();
    }
    constexpr int most_links = 40;
    target = path;
    for (int link = 0; link < most_links; ++link) {
        const std::filesystem::path next = std::filesystem::read_symlink(target, error);
        if (error) {
            return target.string();
        }
        target = target.parent_path() / next;
    }
    return path;
}

std::string output_problem(const std::string& path, int error) {
    if (error == EEXIST) {
        return path + ": is there already; name another file, or say --force";
    }
    return (named_descriptor(path) == STDOUT_FILENO ? "standard output" : path) +
           ": cannot be written (" + std::strerror(error) + "); " + what_to_do(error);
}

OutputFile::OutputFile(const std::string& path, Existing existing)
    : path_(path), existing_(existing) {
    int error = 0;
    struct stat status {};
    const bool is_there = stat(path.c_str(), &status) == 0;
    if (const int number = named_descriptor(path); number >= 0) {
        descriptor_ = fcntl(number, F_DUPFD_CLOEXEC, 0);
        error = descriptor_ < 0 ? errno : 0;
    } else if (is_there && !S_ISREG(status.st_mode)) {
        descriptor_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);  // fails for a folder
        error = descriptor_ < 0 ? errno : 0;
    } else {
        const mode_t mode = is_there ? status.st_mode & for_all : for_all;
        const SignalBlocker blocker;
        file_.emplace(link_target(path), mode);
        error = file_->error();
        if (error == 0) {
            cleanup_.emplace(file_->temporary());
            error = existing == Existing::refuse && is_there ? EEXIST : 0;
        }
    }
    if (error != 0) {
        fail(error);
    } else if (descriptor_ >= 0) {
        direct_.emplace(descriptor_);
    }
}

OutputFile::~OutputFile() {
    const SignalBlocker blocker;
    if (descriptor_ >= 0) {
        close(descriptor_);
    }
    file_.reset();
    cleanup_.reset();
}

bool OutputFile::is_stdout() const {
    return named_descriptor(path_) == STDOUT_FILENO;
}

bool OutputFile::fail(int error) {
    if (problem_.empty()) {
        problem_ = output_problem(path_, error);
    }
    return false;
}

bool OutputFile::write(const char* data, std::size_t size) {
    if (!problem_.empty()) {
        return false;
    }
    if (direct_) {
        return direct_->write(data, size) || fail(direct_->error());
    }
    return file_->write(data, size) || fail(file_->error());
}

bool OutputFile::complete() {
    if (!problem_.empty()) {
        return false;
    }
    if (file_) {
        const int error = file_->complete();
        return error == 0 || fail(error);
    }
    // Of a descriptor that others have, too, this may tell nothing.
    const int closed = descriptor_ < 0 ? 0 : close(descriptor_);
    descriptor_ = -1;
    return closed == 0 || errno == EINTR || fail(errno);
}

bool OutputFile::finish() {
    if (!complete()) {
        return false;
    }
    if (file_) {
        const SignalBlocker blocker;
        if (const int error = file_->place(existing_); error != 0) {
            return fail(error);
        }
        cleanup_.reset();
    }
    return true;
}

std::string write_output(const std::string& path, std::string_view text, Existing existing) {
    OutputFile file(path, existing);
    if (file.write(text.data(), text.size())) {
        file.finish();
    }
    return file.problem();
}

std::string append_output(const std::string& path, std::string_view text) {
    const SignalBlocker whole;
    struct stat before {};
    const bool was_there = stat(path.c_str(), &before) == 0;
    const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, for_all);
    if (descriptor < 0) {
        return output_problem(path, errno);
    }
    model::DescriptorSink sink(descriptor);
    int error = sink.write(text.data(), text.size()) ? 0 : sink.error();
    if (close(descriptor) != 0 && error == 0 && errno != EINTR) {
        error = errno;
    }
    struct stat after {};
    if (error != 0 && stat(path.c_str(), &after) == 0 && S_ISREG(after.st_mode) &&
        after.st_size <= before.st_size + static_cast<off_t>(sink.bytes())) {
        [[maybe_unused]] const int undone =
            was_there ? truncate(path.c_str(), before.st_size) : unlink(path.c_str());
    }
    return error == 0 ? std::string() : output_problem(path, error);
}

}  // namespace memlab::report
