#include "trace/own_descriptor.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace memlab::trace {

int move_out_of_the_way(int descriptor) {
    // The kernel's table of a process is as long as its highest number, and is copied by each fork.
    constexpr rlim_t highest = 4096;
    constexpr rlim_t from_the_top = 64;
    constexpr rlim_t lowest = 3;
    rlimit limit{};
    if (descriptor < 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return descriptor;
    }
    const rlim_t top = std::min(limit.rlim_cur, highest);
    for (rlim_t from = top > 2 * from_the_top ? top - from_the_top : top / 2;; from /= 2) {
        from = std::max(from, lowest);
        const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, static_cast<int>(from));
        if (moved >= 0) {
            ::close(descriptor);
            return moved;
        }
        if (from == lowest) {
            return descriptor;
        }
    }
}

OwnDescriptor::OwnDescriptor(int descriptor) : number_(move_out_of_the_way(descriptor)) {
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
