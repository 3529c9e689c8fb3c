#include "interpose/moving/helper.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <vector>

#include "interpose/driver/loaded_objects.hpp"
#include "interpose/options/small_file.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

constexpr const char* glibc_loader = "/lib64/ld-linux-x86-64.so.2";
constexpr std::uint64_t look_for_end_ms = 50;
constexpr std::uint64_t longest_start_ns = 60'000'000'000;  // of a driver with many GPUs
constexpr std::size_t stack_bytes = std::size_t{64} << 10;
constexpr std::size_t most_environment = std::size_t{1} << 20;
constexpr unsigned cap_sys_ptrace = 19;

struct Start {
    int socket;
    char* const* arguments;
    char* const* environment;
    char* stack_end;  // of the second process
    int error;
};

/// In a process that shares this one's memory and whose signals are all blocked: system calls only.
int become_helper(void* given) {
    auto& start = *static_cast<Start*>(given);
    ::setsid();
    const int nothing = ::open("/dev/null", O_RDWR);
    if (::dup2(start.socket, STDIN_FILENO) < 0 || ::dup2(nothing, STDOUT_FILENO) < 0 ||
        ::dup2(nothing, STDERR_FILENO) < 0) {
        start.error = errno;
        ::_exit(1);
    }
    if (::syscall(SYS_close_range, 3U, ~0U, 0U) != 0) {  // before Linux 5.9
        rlimit limit{};
        ::getrlimit(RLIMIT_NOFILE, &limit);
        for (int each = 3; each < static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65536));
             ++each) {
            ::close(each);
        }
    }
    static_cast<void>(::chdir("/") != 0);
    ::execve(start.arguments[0], start.arguments, start.environment);
    start.error = errno;
    ::_exit(1);
}

/// Its end makes an orphan of the helper.
int make_orphan(void* given) {
    auto& start = *static_cast<Start*>(given);
    if (::clone(&become_helper, start.stack_end, CLONE_VM | CLONE_VFORK | SIGCHLD, given) < 0) {
        start.error = errno;
    }
    ::_exit(0);
}

/// What this process was started with, without what would make the helper another memlab's or
/// tool's program.
std::vector<char*> environment_of(std::string& text) {
    std::vector<char*> entries;
    for (std::size_t at = 0; at < text.size(); at += std::strlen(&text[at]) + 1) {
        const std::string_view entry(&text[at]);
        const auto is = [entry](std::string_view name) { return entry.starts_with(name); };
        if (!entry.empty() && !is("LD_PRELOAD=") && !is("LD_AUDIT=") && !is("MEMLAB_") &&
            !is("CUDA_INJECTION64_PATH=") && !is("NVTX_INJECTION64_PATH=")) {
            entries.push_back(&text[at]);
        }
    }
    entries.push_back(nullptr);
    return entries;
}

bool adopts_orphans() {
    int subreaper = 0;
    return ::getpid() == 1 || (::prctl(PR_GET_CHILD_SUBREAPER, &subreaper) == 0 && subreaper != 0);
}

/// 0: Yama does not restrict anything here.
int ptrace_scope() {
    const std::string text = read_small_file("/proc/sys/kernel/yama/ptrace_scope", 16);
    return text.empty() ? 0 : text[0] - '0';
}

bool has_cap_sys_ptrace() {
    constexpr std::string_view name = "CapEff:\t";
    const std::string status = read_small_file("/proc/self/status", 8192);
    const std::size_t found = status.find(name);
    std::uint64_t bits = 0;
    if (found != std::string::npos) {
        const char* const begin = status.data() + found + name.size();
        std::from_chars(begin, status.data() + status.size(), bits, 16);
    }
    return (bits >> cap_sys_ptrace & 1) != 0;
}

}  // namespace

std::string missing_right() {
    if (has_cap_sys_ptrace()) {
        return {};
    }
    if (::prctl(PR_GET_DUMPABLE) != 1) {
        return "the process is not dumpable (prctl PR_SET_DUMPABLE, or it has changed its user), "
               "so only a process with CAP_SYS_PTRACE may";
    }
    if (const int scope = ptrace_scope(); scope > 1) {
        return "kernel.yama.ptrace_scope is " + std::to_string(scope) +
               ", so only a process with CAP_SYS_PTRACE may";
    }
    return "it has no CAP_SYS_PTRACE (docker run --cap-add SYS_PTRACE)";
}

bool Helper::find_files() {
    if (driver_file_.empty()) {
        driver_file_ = loaded_object_path("libcuda.so");
        own_file_ = loaded_object_at(reinterpret_cast<const void*>(&missing_right));
        if (own_file_.find('/') == std::string::npos) {
            own_file_.clear();
        } else if (own_file_.front() != '/') {
            own_file_.insert(0, "/proc/self/cwd/");
        }
    }
    return !driver_file_.empty() && !own_file_.empty();
}

std::string Helper::start_process() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        return "no socket for it";
    }
    trace::OwnDescriptor theirs(ends[1]);  // a high number, never the helper's input
    trace::OwnDescriptor ours(ends[0]);
    std::string inherited = read_small_file("/proc/self/environ", most_environment);
    inherited.push_back('\0');
    std::vector<char*> environment = environment_of(inherited);
    std::string loader = glibc_loader;
    std::string role = "helper";
    std::array<char*, 4> arguments{loader.data(), own_file_.data(), role.data(), nullptr};
    void* const stacks = ::mmap(nullptr, 2 * stack_bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stacks == MAP_FAILED) {
        theirs.close();
        ours.close();
        return "the host is out of memory";
    }
    auto* const first = static_cast<char*>(stacks);
    Start start{theirs.number(), arguments.data(), environment.data(), first + 2 * stack_bytes, 0};
    // No signal at its end, and only wait() with __WALL or __WCLONE sees it.
    const pid_t child = ::clone(&make_orphan, first + stack_bytes, CLONE_VM | CLONE_VFORK, &start);
    if (child < 0) {
        start.error = errno;
    } else {
        while (::syscall(SYS_wait4, child, nullptr, __WALL, nullptr) < 0 && errno == EINTR) {
        }
    }
    ::munmap(stacks, 2 * stack_bytes);
    theirs.close();
    if (start.error != 0) {
        ours.close();
        return std::string(glibc_loader) + " " + std::strerror(start.error);
    }
    socket_ = ours;
    return {};
}

std::string Helper::start() {
    if (process_.load() != 0 && socket_.check()) {
        pollfd other{socket_.number(), POLLIN, 0};
        if (::poll(&other, 1, 0) == 0) {
            return {};
        }
    }
    give_up();
    if (adopts_orphans()) {
        return "this process adopts orphans (it is process 1 of its container, or a subreaper), so "
               "the helper would be a child that it waits for: start it with memlab-run, or with "
               "an init (docker run --init)";
    }
    if (!find_files()) {
        return "the files of the driver and of libmemlab.so are not known";
    }
    if (std::string problem = start_process(); !problem.empty()) {
        return "its helper could not be started: " + problem;
    }
    HelperReply reply;
    if (!ask(HelperVerb::begin, &reply, longest_start_ns, 0, driver_file_)) {
        return "its helper did not start: " + own_file_ + " cannot be run by " + glibc_loader +
               ", or the driver does not start";
    }
    if (reply.result != 0) {
        give_up();
        return reply.result == helper_has_no_function
                   ? "the driver is too old: cuCheckpointProcess* came with 570 (CUDA 12.8)"
                   : "the driver does not start in its helper (error " +
                         std::to_string(reply.result) + ")";
    }
    process_.store(reply.process);
    if (ptrace_scope() == 1) {
        ::prctl(PR_SET_PTRACER, static_cast<unsigned long>(reply.process), 0UL, 0UL, 0UL);
    }
    return {};
}

void Helper::give_up() noexcept {
    socket_.close();
    process_.store(0);
}

bool Helper::ask(HelperVerb verb, HelperReply* reply, std::uint64_t max_wait_ns,
                 std::uint32_t timeout_ms, const std::string& text) noexcept {
    static HelperRequest request;  // the mover's, and large
    request = {};
    request.verb = verb;
    request.process = ::getpid();
    request.timeout_ms = timeout_ms;
    if (!socket_.check() || text.size() >= sizeof request.text) {
        return false;
    }
    text.copy(request.text, text.size());
    if (::send(socket_.number(), &request, sizeof request, MSG_NOSIGNAL) !=
        static_cast<ssize_t>(sizeof request)) {
        give_up();
        return false;
    }
    const std::uint64_t begin = profiler::monotonic_ns();
    while (!stopping_.load() && profiler::monotonic_ns() - begin < max_wait_ns && socket_.check()) {
        pollfd other{socket_.number(), POLLIN, 0};
        if (::poll(&other, 1, static_cast<int>(look_for_end_ms)) <= 0) {
            continue;
        }
        if (::recv(socket_.number(), reply, sizeof *reply, MSG_DONTWAIT) ==
                static_cast<ssize_t>(sizeof *reply) &&
            reply->verb == verb) {
            return true;
        }
        break;
    }
    give_up();
    return false;
}

void Helper::close_after_fork() noexcept {
    socket_.close();
    process_.store(0);
}

}  // namespace memlab::interpose
