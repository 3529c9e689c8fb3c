// A libnccl.so.2 of our own, which sends nothing: communicators with memory that grows by 8 MiB
// that can be suspended and 2 MiB that cannot, at the first use of each. It holds its callers to
// NCCL's rules: a communicator is used by one thread at a time, not in an open group of another
// use, and not after its end; who breaks one ends the process with code 70.
//
// SIMNCCL_STATISTICS: what ncclCommMemStats does instead of answering: "fails", or "odd": figures
// that do not add up. ncclCommMemStats counts its calls; SIMNCCL_COUNT names a file that gets the
// number at the end of the process.
#include <unistd.h>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int success = 0;
constexpr int invalid_argument = 4;
constexpr int invalid_usage = 5;
constexpr int in_progress = 7;
constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t alive = 0x6e63636c6e63636c;

struct Communicator {
    std::uint64_t magic = alive;
    std::atomic<bool> busy{false};
    std::atomic<bool> used{false};
    bool suspended = false;
    bool in_progress = false;  ///< a call that has not ended
    int rank = 0;
    int ranks = 0;
    int device = 0;
};

std::atomic<unsigned> asked{0};
thread_local unsigned groups = 0;

[[noreturn]] void broken(const char* rule) {
    (void)dprintf(STDERR_FILENO, "simulated NCCL: %s\n", rule);
    _exit(70);
}

/// A use of a communicator by the calling thread.
class Use {
  public:
    explicit Use(void* handle) : communicator(*static_cast<Communicator*>(handle)) {
        if (communicator.magic != alive) {
            broken("a communicator was used after its end");
        }
        if (communicator.busy.exchange(true)) {
            broken("two threads used a communicator");
        }
    }
    ~Use() { communicator.busy.store(false); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Communicator& communicator;
};

int work(void* handle) {
    if (handle == nullptr) {
        return invalid_argument;
    }
    const Use use(handle);
    (void)usleep(20);
    use.communicator.used = true;
    return use.communicator.in_progress ? in_progress : success;
}

int end(void* handle) {
    if (handle == nullptr) {
        return invalid_argument;
    }
    const Use use(handle);
    use.communicator.magic = 0;  // kept, so that a later use is seen
    return success;
}

struct AtEnd {
    ~AtEnd() {
        if (const char* const path = std::getenv("SIMNCCL_COUNT")) {
            if (std::FILE* const file = std::fopen(path, "w")) {
                (void)std::fprintf(file, "%u\n", asked.load());
                (void)std::fclose(file);
            }
        }
    }
} at_end;

}  // namespace

extern "C" {

int ncclCommInitAll(void** communicators, int count, const int* devices) {
    for (int i = 0; i < count; ++i) {
        auto* const made = new Communicator;
        made->rank = i;
        made->ranks = count;
        made->device = devices != nullptr ? devices[i] : i;
        communicators[i] = made;
    }
    return success;
}

int ncclAllReduce(const void*, void*, std::size_t, int, int, void* comm, void*) {
    return work(comm);
}
int ncclReduce(const void*, void*, std::size_t, int, int, int, void* comm, void*) {
    return work(comm);
}
int ncclBroadcast(const void*, void*, std::size_t, int, int, void* comm, void*) {
    return work(comm);
}
int ncclBcast(void* buffer, std::size_t count, int type, int root, void* comm, void* stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);  // as NCCL does
}
int ncclReduceScatter(const void*, void*, std::size_t, int, int, void* comm, void*) {
    return work(comm);
}
int ncclAllGather(const void*, void*, std::size_t, int, void* comm, void*) {
    return work(comm);
}
int ncclSend(const void*, std::size_t, int, int, void* comm, void*) {
    return work(comm);
}
int ncclRecv(void*, std::size_t, int, int, void* comm, void*) {
    return work(comm);
}

int ncclGroupStart() {
    ++groups;
    return success;
}
int ncclGroupEnd() {
    if (groups == 0) {
        return invalid_usage;
    }
    --groups;
    return success;
}

int ncclCommFinalize(void* comm) {
    if (comm == nullptr) {
        return invalid_argument;
    }
    const Use use(comm);
    use.communicator.in_progress = true;
    return success;
}
int ncclCommDestroy(void* comm) {
    return end(comm);
}
int ncclCommAbort(void* comm) {
    return end(comm);
}

int ncclCommSuspend(void* comm, int) {
    const Use use(comm);
    use.communicator.suspended = true;
    return success;
}

int ncclCommCuDevice(void* comm, int* device) {
    const Use use(comm);
    *device = use.communicator.device;
    return success;
}
int ncclCommUserRank(void* comm, int* rank) {
    const Use use(comm);
    *rank = use.communicator.rank;
    return success;
}
int ncclCommCount(void* comm, int* count) {
    const Use use(comm);
    *count = use.communicator.ranks;
    return success;
}

#ifndef WITHOUT_MEMORY_STATISTICS
int ncclCommMemStats(void* comm, int statistic, std::uint64_t* value) {
    ++asked;
    const Use use(comm);
    if (groups != 0) {
        broken("a communicator was asked in a group");
    }
    if (use.communicator.in_progress) {
        broken("a communicator was asked while a call is in progress");
    }
    const char* const how = std::getenv("SIMNCCL_STATISTICS");
    if (how != nullptr && std::strcmp(how, "fails") == 0) {
        return invalid_usage;
    }
    const bool odd = how != nullptr && std::strcmp(how, "odd") == 0;
    const bool used = use.communicator.used;
    const std::uint64_t suspendable = used ? 8 * mib : 0;
    const std::uint64_t persistent = used ? 2 * mib : 0;
    const std::uint64_t figures[] = {suspendable, use.communicator.suspended ? 1U : 0U, persistent,
                                     suspendable + persistent + (odd ? 1 : 0)};
    if (statistic < 0 || statistic > 3 || value == nullptr) {
        return invalid_argument;
    }
    *value = figures[statistic];
    return success;
}
#endif
}
