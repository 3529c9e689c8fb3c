#include "interpose/moving/helper_program.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "interpose/driver/loader.hpp"
#include "interpose/ledger/nvml_abi.hpp"
#include "interpose/ledger/nvml_limits.hpp"
#include "interpose/moving/helper_protocol.hpp"

namespace memlab::interpose {
namespace {

/// The arguments of cuCheckpointProcess*, as CUDA 12.8 and later have them; all else is reserved
/// and zero.
struct LockArguments {
    unsigned timeout_ms;
    unsigned reserved0;
    unsigned long long reserved1[7];
};
static_assert(sizeof(LockArguments) == 64);

struct HelpingLibraries {
    int (*state)(int, int*) = nullptr;
    int (*lock)(int, LockArguments*) = nullptr;
    int (*checkpoint)(int, void*) = nullptr;
    int (*restore)(int, void*) = nullptr;
    int (*unlock)(int, void*) = nullptr;
    int (*by_uuid)(const char*, nvml::Device*) = nullptr;
    int (*memory)(nvml::Device, nvml::Memory*) = nullptr;

    template <class Function>
    static void find(void* library, const char* name, Function** function) {
        *function = reinterpret_cast<Function*>(libc_dlsym()(library, name));
    }

    /// Pays for the driver's start. Returns its error.
    int load(const char* driver) {
        void* const cuda = ::dlopen(driver, RTLD_NOW | RTLD_LOCAL);
        if (cuda == nullptr) {
            return helper_has_no_library;
        }
        int (*init)(unsigned) = nullptr;
        find(cuda, "cuInit", &init);
        find(cuda, "cuCheckpointProcessGetState", &state);
        find(cuda, "cuCheckpointProcessLock", &lock);
        find(cuda, "cuCheckpointProcessCheckpoint", &checkpoint);
        find(cuda, "cuCheckpointProcessRestore", &restore);
        find(cuda, "cuCheckpointProcessUnlock", &unlock);
        if (init == nullptr || state == nullptr || lock == nullptr || checkpoint == nullptr ||
            restore == nullptr || unlock == nullptr) {
            return helper_has_no_function;
        }
        if (void* const library = open_nvml(libc_dlsym())) {
            find(library, "nvmlDeviceGetHandleByUUID", &by_uuid);
            find(library, "nvmlDeviceGetMemoryInfo", &memory);
        }
        return init(0);
    }

    int read_memory(const char* uuid, HelperReply* reply) const {
        nvml::Device device = nullptr;
        nvml::Memory read{};
        if (by_uuid == nullptr || memory == nullptr) {
            return helper_has_no_library;
        }
        int result = by_uuid(uuid, &device);
        if (result == nvml::success) {
            result = memory(device, &read);
        }
        reply->free_bytes = read.free;
        reply->total_bytes = read.total;
        return result;
    }
};

/// Async-signal-safe.
void end_with_the_other(int /*signal*/) {
    pollfd other{STDIN_FILENO, 0, 0};
    if (::poll(&other, 1, 0) > 0 && (other.revents & POLLHUP) != 0) {
        ::_exit(0);
    }
}

/// While the driver works: the other side's end is this one's end, too. (The signal may also come
/// of the request that was just read.)
class EndsWithTheOther {
  public:
    EndsWithTheOther() {
        ::fcntl(STDIN_FILENO, F_SETFL, O_ASYNC);
        end_with_the_other(SIGIO);
    }
    ~EndsWithTheOther() { ::fcntl(STDIN_FILENO, F_SETFL, 0); }
    EndsWithTheOther(const EndsWithTheOther&) = delete;
    EndsWithTheOther& operator=(const EndsWithTheOther&) = delete;
};

int serve(HelpingLibraries& libraries, const HelperRequest& request, HelperReply* reply) {
    const int process = request.process;
    if (request.verb == HelperVerb::begin) {
        return libraries.load(request.text);
    }
    if (request.verb == HelperVerb::memory) {
        return libraries.read_memory(request.text, reply);
    }
    if (libraries.unlock == nullptr) {
        return helper_has_no_function;
    }
    switch (request.verb) {
        case HelperVerb::state:
            return libraries.state(process, &reply->state);
        case HelperVerb::lock: {
            LockArguments arguments{};
            arguments.timeout_ms = request.timeout_ms;
            return libraries.lock(process, &arguments);
        }
        case HelperVerb::checkpoint:
            return libraries.checkpoint(process, nullptr);
        case HelperVerb::restore:
            return libraries.restore(process, nullptr);
        default:
            return libraries.unlock(process, nullptr);
    }
}

/// As a program of its own begins: what was blocked and ignored is the other process's.
void reset_signals() {
    for (int signal = 1; signal < NSIG; ++signal) {
        ::signal(signal, SIG_DFL);
    }
    ::signal(SIGPIPE, SIG_IGN);
    struct sigaction action {};
    action.sa_handler = &end_with_the_other;
    action.sa_flags = SA_RESTART;
    sigaction(SIGIO, &action, nullptr);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace

void serve_as_helper() {
    reset_signals();
    ::prctl(PR_SET_NAME, "memlab-helper");
    ::fcntl(STDIN_FILENO, F_SETOWN, ::getpid());
    static HelpingLibraries libraries;
    static HelperRequest request;
    for (;;) {
        const ssize_t got = ::recv(STDIN_FILENO, &request, sizeof request, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got != static_cast<ssize_t>(sizeof request)) {
            return;  // it has ended, or closed the socket
        }
        request.text[sizeof request.text - 1] = '\0';
        HelperReply reply;
        reply.verb = request.verb;
        reply.process = ::getpid();
        {
            const EndsWithTheOther ends;
            reply.result = serve(libraries, request, &reply);
        }
        if (::send(STDIN_FILENO, &reply, sizeof reply, MSG_NOSIGNAL) !=
            static_cast<ssize_t>(sizeof reply)) {
            return;
        }
    }
}

}  // namespace memlab::interpose
