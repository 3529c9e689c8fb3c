#include "trace/own_descriptor.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace memlab::trace {

int move_to_high_descriptor(int descriptor) {
    // The kernel's descriptor table is as long as the highest number, and each fork copies it.
    constexpr rlim_t max_number = 4096;
    constexpr rlim_t reserve = 64;
    constexpr rlim_t min_number = 3;
    rlimit limit{};
    if (descriptor < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return descriptor;
    }
    const rlim_t top = std::min(limit.rlim_cur, max_number);
    for (rlim_t from = top > 2 * reserve ? top - reserve : top / 2;; from /= 2) {
        from = std::max(from, min_number);
        const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, static_cast<int>(from));
        if (moved >= 0) {
            ::close(descriptor);
            return moved;
        }
        if (from == min_number) {
            return descriptor;
        }
    }
}

OwnDescriptor::OwnDescriptor(int descriptor) : number_(move_to_high_descriptor(descriptor)) {
    struct stat status {};
    if (number_ >= 0 && fstat(number_, &status) == 0) {
        device_ = status.st_dev;
        inode_ = status.st_ino;
    }
}

bool OwnDescriptor::check() {
    struct stat status {};
    if (number_ >= 0 &&
        (fstat(number_, &status) != 0 || status.st_dev != device_ || status.st_ino != inode_)) {
        number_ = -1;
    }
    return number_ >= 0;
}

int OwnDescriptor::close() {
    if (!check()) {
        return 0;
    }
    const int number = number_;
    number_ = -1;
    return ::close(number) == 0 || errno == EINTR ? 0 : errno;
}

}  // namespace memlab::trace
