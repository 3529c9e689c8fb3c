// A standard error that is not what it was, and a failing allocation, of which memlab has something
// to say. The program itself writes nothing there.
//
//   broken_stderr unread    a pipe whose reader is gone
//   broken_stderr full      a pipe that is full, and that nobody reads
//   broken_stderr reused    the number is that of a data file by now
//   broken_stderr closed    there is none
//
// Recorded: one allocation that fails.
#include <fcntl.h>

#include <array>
#include <csignal>
#include <cstring>

#include "program.hpp"

using namespace program;

int main(int argc, char** argv) {
    const char* way = argc == 2 ? argv[1] : "";
    int ends[2] = {-1, -1};
    int data = -1;
    if (std::strcmp(way, "unread") == 0 || std::strcmp(way, "full") == 0) {
        // A process's stderr is what it is started with: it starts once more, with the pipe.
        const bool unread = std::strcmp(way, "unread") == 0;
        if (::pipe(ends) != 0) {
            return 3;
        }
        ::dup2(ends[1], STDERR_FILENO);
        if (unread) {
            ::close(ends[0]);
        } else {
            const std::array<char, 4096> much{};
            ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
            while (::write(ends[1], much.data(), much.size()) > 0) {
            }
            ::fcntl(ends[1], F_SETFL, 0);
        }
        ::execl("/proc/self/exe", argv[0], "again", static_cast<char*>(nullptr));
        return 4;
    }
    if (std::strcmp(way, "reused") == 0) {
        ::close(STDERR_FILENO);
        data = ::open("data", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (data != STDERR_FILENO) {
            return 5;
        }
    } else if (std::strcmp(way, "closed") == 0) {
        ::close(STDERR_FILENO);
    }
    use_device();
    CUdeviceptr address = 0;
    SAY("an impossible allocation: %d\n", cuMemAlloc(&address, std::size_t{1} << 50));
    sigset_t pending;
    ::sigpending(&pending);
    SAY("a signal is pending: %s\n", ::sigismember(&pending, SIGPIPE) == 1 ? "yes" : "no");
    if (data >= 0) {
        SAY("bytes in the data file: %ld\n", static_cast<long>(::lseek(data, 0, SEEK_END)));
        ::unlink("data");
    }
    return 0;
}
