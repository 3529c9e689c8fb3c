// A program that is careless with descriptors, or begins without some of them. What it writes must
// be what its files hold.
//
//   descriptors sweep    closes every regular file above 2 after CUDA has started, as daemons do,
//                        and opens files of its own
//   descriptors stdout   starts without standard output; its own file gets the number then
//
// Recorded: what went before, at least; the log may stop when its descriptor is closed.
#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <string>

#include "program.hpp"

using namespace program;

namespace {

constexpr int file_count = 8;
constexpr int blocks = 512;
using Block = std::array<char, 4096>;

Block block_of(int file) {
    Block block;
    block.fill(static_cast<char>('A' + file));
    return block;
}

std::string name_of(int file) {
    return "data." + std::to_string(::getpid()) + "." + std::to_string(file);
}

/// Regular files with a name: the driver's own descriptors stay.
void close_files_above_2() {
    for (int fd = 3; fd < 8192; ++fd) {
        std::array<char, 512> path{};
        struct stat status {};
        const std::string link = "/proc/self/fd/" + std::to_string(fd);
        if (::readlink(link.c_str(), path.data(), path.size() - 1) > 0 && path[0] == '/' &&
            std::strncmp(path.data(), "/memfd:", 7) != 0 && ::fstat(fd, &status) == 0 &&
            S_ISREG(status.st_mode)) {
            ::close(fd);
        }
    }
}

void churn(int pairs) {
    for (int i = 0; i < pairs; ++i) {
        release(allocate(static_cast<std::size_t>(1000 + i % 977 * 8)));
    }
}

}  // namespace

int main(int argc, char** argv) {
    const char* way = argc == 2 ? argv[1] : "";
    const int output = ::dup(STDOUT_FILENO);
    if (std::strcmp(way, "stdout") == 0) {
        ::close(STDOUT_FILENO);
    }
    use_device();
    churn(10);
    if (std::strcmp(way, "sweep") == 0) {
        close_files_above_2();
    }
    std::array<int, file_count> files{};
    for (int file = 0; file < file_count; ++file) {
        files[static_cast<std::size_t>(file)] =
            ::open(name_of(file).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        const Block block = block_of(file);
        for (int i = 0; i < blocks; ++i) {
            if (::write(files[static_cast<std::size_t>(file)], block.data(), block.size()) !=
                static_cast<ssize_t>(block.size())) {
                return 3;
            }
        }
    }
    churn(100000);
    int wrong = 0;
    for (int file = 0; file < file_count; ++file) {
        const int fd = files[static_cast<std::size_t>(file)];
        struct stat status {};
        bool good = ::fstat(fd, &status) == 0 &&
                    status.st_size == static_cast<off_t>(blocks * sizeof(Block));
        for (int i = 0; i < blocks && good; ++i) {
            Block found{};
            good = ::pread(fd, found.data(), found.size(),
                           static_cast<off_t>(static_cast<std::size_t>(i) * found.size())) ==
                       static_cast<ssize_t>(found.size()) &&
                   found == block_of(file);
        }
        wrong += good ? 0 : 1;
        ::unlink(name_of(file).c_str());
    }
    ::dprintf(output, "%d of %d files are not as they were written\n", wrong, file_count);
    return wrong == 0 ? 0 : 1;
}
