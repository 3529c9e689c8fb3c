// A program that is asked by its control channel while it runs. It holds 3 MiB, says "ready" and
// does what it reads from standard input, a word on each line:
//
//   allocate   holds one MiB more
//   free       frees all of these
//   churn      a thread allocates and frees without a pause from now on
//   count      says how many pairs of these there were
//   large      asks for 64 MiB, says what it got, and frees it
//   full       asks for more than the device has, and says what it got
//   full_there the same in a thread of its own
//   takes      closes each socket, and has files of its own by those numbers
//   intact     says whether these files are empty and by their numbers still
//   forks      a child says how many sockets it has
//   execs      becomes "cat"
//   exits      ends
//
// Recorded: the blocks that it holds.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "program.hpp"

using namespace program;

namespace {

constexpr int most_descriptors = 8192;

std::atomic<std::uint64_t> pairs{0};

void churn(CUcontext context) {
    CHECK(cuCtxSetCurrent(context));
    for (;;) {
        release(allocate(100'000));
        pairs.fetch_add(1);
    }
}

std::vector<int> sockets() {
    std::vector<int> found;
    for (int descriptor = 3; descriptor < most_descriptors; ++descriptor) {
        struct stat status {};
        if (::fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode)) {
            found.push_back(descriptor);
        }
    }
    return found;
}

struct OwnFile {
    int descriptor;
    ino_t inode;
};

std::vector<OwnFile> take_their_numbers() {
    std::vector<OwnFile> files;
    for (const int descriptor : sockets()) {
        ::close(descriptor);
        const int file = ::open(".", O_TMPFILE | O_RDWR, 0600);
        struct stat status {};
        if (file < 0 || ::dup2(file, descriptor) != descriptor ||
            ::fstat(descriptor, &status) != 0) {
            ::_exit(4);
        }
        ::close(file);
        files.push_back({descriptor, status.st_ino});
    }
    return files;
}

bool are_intact(const std::vector<OwnFile>& files) {
    return std::all_of(files.begin(), files.end(), [](const OwnFile& file) {
        struct stat status {};
        return ::fstat(file.descriptor, &status) == 0 && status.st_ino == file.inode &&
               status.st_size == 0;
    });
}

void ask_for_too_much() {
    CUdeviceptr none = 0;
    SAY("got %d\n", static_cast<int>(cuMemAlloc(&none, std::size_t{1} << 50)));
}

void ask_for_much() {
    CUdeviceptr block = 0;
    const CUresult result = cuMemAlloc(&block, 64 << 20);
    SAY("got %d\n", static_cast<int>(result));
    if (result == CUDA_SUCCESS) {
        release(block);
    }
}

}  // namespace

int main() {
    const CUcontext context = use_device();
    allocate(3 << 20);
    std::vector<CUdeviceptr> blocks;
    std::vector<OwnFile> files;
    SAY("ready\n");
    for (std::string word; std::getline(std::cin, word) && word != "exits";) {
        if (word == "allocate") {
            blocks.push_back(allocate(1 << 20));
        } else if (word == "free") {
            std::for_each(blocks.begin(), blocks.end(), release);
            blocks.clear();
        } else if (word == "churn") {
            std::thread(churn, context).detach();
        } else if (word == "count") {
            SAY("%llu\n", static_cast<unsigned long long>(pairs.load()));
            continue;
        } else if (word == "large") {
            ask_for_much();
            continue;
        } else if (word == "full") {
            ask_for_too_much();
            continue;
        } else if (word == "full_there") {
            std::thread([context] {
                CHECK(cuCtxSetCurrent(context));
                ask_for_too_much();
            }).detach();
        } else if (word == "takes") {
            files = take_their_numbers();
        } else if (word == "intact") {
            SAY("%s\n", are_intact(files) && !files.empty() ? "intact" : "damaged");
            continue;
        } else if (word == "forks") {
            if (const pid_t child = ::fork(); child == 0) {
                SAY("the child has %d\n", static_cast<int>(sockets().size()));
                ::_exit(0);
            } else {
                ::waitpid(child, nullptr, 0);
            }
            continue;
        } else if (word == "execs") {
            ::execlp("cat", "cat", nullptr);
        }
        SAY("done\n");
    }
    return 0;
}
