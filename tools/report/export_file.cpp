#include "tools/report/export_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "report/text/progress.hpp"
#include "report/text/signal_cleanup.hpp"

namespace memlab::tools {

ExportFile::ExportFile(std::string path) : path_(std::move(path)) {
    if (path_.empty() || path_ == "-") {
        path_.clear();
        descriptor_ = STDOUT_FILENO;
        if (isatty(STDOUT_FILENO) != 0) {
            report::show_progress_on(-1);  // what is read is printed meanwhile
        }
        return;
    }
    std::error_code error;
    if (const std::filesystem::path target = std::filesystem::canonical(path_, error); !error) {
        path_ = target.string();
    }
    struct stat status {};
    if (stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
        // A device or a pipe is written to directly; opening a folder fails here.
        descriptor_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
        if (descriptor_ < 0) {
            fail(errno);
        }
        return;
    }
    temporary_ = path_ + ".tmp." + std::to_string(getpid());
    report::remove_file_on_signal(temporary_.c_str());
    descriptor_ =
        open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) {
        const int reason = errno;
        report::remove_file_on_signal(nullptr);
        temporary_.clear();  // not created by us: do not remove it
        fail(reason);
    }
}

ExportFile::~ExportFile() {
    remove();
}

void ExportFile::remove() {
    if (!path_.empty() && descriptor_ >= 0) {
        close(descriptor_);
    }
    descriptor_ = -1;
    if (!temporary_.empty()) {
        unlink(temporary_.c_str());
        report::remove_file_on_signal(nullptr);
        temporary_.clear();
    }
}

void ExportFile::fail(int error) {
    if (!problem_.empty()) {
        return;
    }
    problem_ = path_.empty() ? "cannot write to standard output (" : "cannot write " + path_ + " (";
    problem_ += std::strerror(error);
    problem_ += error == ENOSPC ? "); free some space, or choose another disk with -o"
                                : "); choose another path with -o";
}

bool ExportFile::write(const char* data, std::size_t size) {
    while (size > 0 && problem_.empty()) {
        const ssize_t written = ::write(descriptor_, data, size);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            fail(written == 0 ? ENOSPC : errno);
            break;
        }
        data += written;
        size -= static_cast<std::size_t>(written);
    }
    return problem_.empty();
}

bool ExportFile::finish() {
    if (!problem_.empty() || path_.empty()) {
        return problem_.empty();
    }
    // Network file systems report a full disk only on close.
    const int closed = close(descriptor_);
    descriptor_ = -1;
    if (closed != 0 && errno != EINTR) {
        fail(errno);
        return false;
    }
    if (!temporary_.empty() && rename(temporary_.c_str(), path_.c_str()) != 0) {
        fail(errno);
        return false;
    }
    report::remove_file_on_signal(nullptr);
    temporary_.clear();
    return true;
}

}  // namespace memlab::tools
