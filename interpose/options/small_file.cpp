#include "interpose/options/small_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace memlab::interpose {

std::string read_small_file(const std::string& path, std::size_t most) {
    std::string text;
    const int error = errno;
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) {
        errno = error;
        return text;
    }
    char buffer[1024];
    try {
        while (text.size() < most) {
            const ssize_t length = read(file, buffer, std::min(sizeof buffer, most - text.size()));
            if (length > 0) {
                text.append(buffer, static_cast<std::size_t>(length));
            } else if (length == 0 || errno != EINTR) {
                break;
            }
        }
    } catch (...) {
        close(file);
        throw;
    }
    close(file);
    errno = error;
    return text;
}

}  // namespace memlab::interpose
