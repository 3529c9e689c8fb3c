#include "tools/report/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "model/report_file.hpp"
#include "report/text/signal_cleanup.hpp"

namespace memlab::tools {

namespace {

std::string problem(const std::string& path, int error) {
    return path + ": cannot be written (" + std::strerror(error) + "); give another path";
}

/// Writes to an existing file, device or pipe, opened with `flags`.
std::string write_into(const std::string& path, std::string_view text, int flags) {
    const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666);
    if (descriptor < 0) {
        return problem(path, errno);
    }
    struct stat status {};
    std::optional<report::SignalBlocker> whole;
    if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) {
        whole.emplace();
    }
    int error = 0;
    while (!text.empty() && error == 0) {
        const ssize_t written = write(descriptor, text.data(), text.size());
        if (written < 0 && errno != EINTR) {
            error = errno;
        } else if (written > 0) {
            text.remove_prefix(static_cast<std::size_t>(written));
        }
    }
    if (close(descriptor) != 0 && error == 0 && errno != EINTR) {
        error = errno;
    }
    return error == 0 ? std::string() : problem(path, error);
}

}  // namespace

std::string write_output(const std::string& path, std::string_view text, IfExists if_exists) {
    struct stat status {};
    if (stat(path.c_str(), &status) == 0) {
        if (S_ISDIR(status.st_mode)) {
            return problem(path, EISDIR);
        }
        if (!S_ISREG(status.st_mode)) {
            return write_into(path, text, 0);
        }
        if (if_exists == IfExists::refuse) {
            return path + ": is there already; name another file, or say --force";
        }
    }
    std::error_code error;
    const std::filesystem::path target = std::filesystem::canonical(path, error);
    const report::SignalBlocker blocker;  // else Ctrl-C would leave the temporary file
    const model::WriteResult written = model::write_text(
        text, error ? path : target.string(),
        if_exists == IfExists::refuse ? model::Existing::refuse : model::Existing::replace);
    return written.ok() ? std::string() : problem(path, written.error_number);
}

std::string append_output(const std::string& path, std::string_view text) {
    return write_into(path, text, O_CREAT | O_APPEND);
}

}  // namespace memlab::tools
