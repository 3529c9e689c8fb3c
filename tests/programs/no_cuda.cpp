// A program without CUDA. It prints how many threads and open files it has, so that anything that a
// preloaded library starts or leaves open changes its output.
//
// Recorded: nothing; no file is written.
#include <dirent.h>
#include <unistd.h>

#include <cstdio>

namespace {

/// Entries of a /proc folder, the one that looking at it opens not counted.
int entries(const char* folder) {
    DIR* directory = ::opendir(folder);
    if (directory == nullptr) {
        return -1;
    }
    int count = 0;
    char own[16];
    std::snprintf(own, sizeof own, "%d", ::dirfd(directory));
    while (const dirent* entry = ::readdir(directory)) {
        bool is_own = true;
        for (int i = 0; i < 16 && is_own; ++i) {
            is_own = entry->d_name[i] == own[i];
            if (own[i] == '\0') {
                break;
            }
        }
        count += entry->d_name[0] != '.' && !is_own ? 1 : 0;
    }
    ::closedir(directory);
    return count;
}

}  // namespace

int main() {
    const int threads = entries("/proc/self/task");
    std::printf("threads: %d\n", threads);
    std::printf("open files: %d\n", entries("/proc/self/fd"));
    return 0;
}
