#include "profiler/thread_name.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>

namespace memlab::profiler {
namespace {

constexpr std::size_t name_size = 16;  // the kernel's TASK_COMM_LEN, including the zero

}  // namespace

std::string own_thread_name() {
    const int program_errno = errno;
    char name[name_size] = {};
    const bool ok = prctl(PR_GET_NAME, name) == 0;
    errno = program_errno;
    name[name_size - 1] = '\0';
    return ok ? name : "";
}

std::string process_name() {
    const int program_errno = errno;
    char name[name_size] = {};
    const int file = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    const ssize_t size = file < 0 ? -1 : read(file, name, sizeof name);
    if (file >= 0) {
        close(file);
    }
    errno = program_errno;
    std::string text(name, size < 0 ? 0 : static_cast<std::size_t>(size));
    return text.substr(0, text.find('\n'));
}

}  // namespace memlab::profiler
