#include "interpose/ledger/nvml_witness.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <new>
#include <string_view>
#include <vector>

#include "interpose/driver/loader.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/ledger/nvml_abi.hpp"
#include "interpose/ledger/nvml_limits.hpp"
#include "profiler/clock.hpp"
#include "profiler/lock_until.hpp"
#include "threads/own_thread.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr std::uint64_t max_stop_wait_ns = second_ns;
constexpr std::uint64_t max_fork_wait_ns = second_ns / 5;

/// The pauses before each query; the last one repeats.
constexpr std::array<std::uint64_t, 4> pauses_ns = {3 * second_ns / 10, second_ns, 10 * second_ns,
                                                    60 * second_ns};

}  // namespace

/// The thread's own.
struct NvmlWitness::Nvml {
    int (*by_uuid)(const char*, nvml::Device*) = nullptr;
    int (*processes)(nvml::Device, unsigned*, nvml::Process*) = nullptr;
    NvmlLimits limits;
    std::uint32_t pid = 0;

    void load() {
        // Its own functions, not those that the program gets.
        const DlsymFunction find = libc_dlsym();
        void* const library = open_nvml(find);
        if (library == nullptr) {
            return;
        }
        by_uuid = reinterpret_cast<decltype(by_uuid)>(find(library, "nvmlDeviceGetHandleByUUID"));
        processes = reinterpret_cast<decltype(processes)>(
            find(library, "nvmlDeviceGetComputeRunningProcesses_v3"));
        limits = NvmlLimits(library, find);
        pid = pid_of_the_host();
    }

    /// May throw std::bad_alloc.
    trace::Witness ask(const std::string& uuid) const {
        trace::Witness witness;
        nvml::Device device = nullptr;
        if (by_uuid == nullptr || processes == nullptr ||
            by_uuid(uuid.c_str(), &device) != nvml::success) {
            return witness;
        }
        std::vector<nvml::Process> list(64);
        for (int attempt = 0; attempt < 3; ++attempt) {
            auto count = static_cast<unsigned>(list.size());
            const int result = processes(device, &count, list.data());
            if (result == nvml::success) {
                list.resize(std::min<std::size_t>(count, list.size()));
                return judge(list);
            }
            if (result != nvml::insufficient_size) {
                return witness;
            }
            list.resize(std::size_t{count} + 64);
        }
        return witness;
    }

    trace::Witness judge(const std::vector<nvml::Process>& list) const {
        trace::Witness witness;
        witness.state = trace::WitnessState::elsewhere;
        // This process has a context on the GPU: a list of one process is this one.
        const bool alone = list.size() == 1;
        for (const nvml::Process& process : list) {
            if (process.used_bytes == nvml::not_available) {
                return trace::Witness();
            }
            if (alone || (pid != 0 && process.pid == pid)) {
                witness.state = trace::WitnessState::seen;
                witness.own += process.used_bytes;
            } else {
                witness.others += process.used_bytes;
                ++witness.processes;
            }
        }
        if (witness.state == trace::WitnessState::seen && pid != 0) {
            tell_apart(list, witness);
        }
        return witness;
    }

    /// The others by cgroup and pid namespace: their ids are those of /proc here.
    void tell_apart(const std::vector<nvml::Process>& list, trace::Witness& witness) const {
        for (const nvml::Process& process : list) {
            if (process.pid == pid || list.size() == 1) {
                continue;
            }
            const std::optional<bool> same = is_in_own_cgroup(process.pid);
            if (same && *same) {
                witness.group_bytes += process.used_bytes;
                ++witness.group_processes;
            } else if (same) {
                witness.foreign_bytes += process.used_bytes;
                ++witness.foreign_processes;
            }
        }
    }
};

std::uint32_t pid_of_the_host() {
    // The inode of the initial namespace is a constant of the kernel's.
    constexpr std::string_view initial = "pid:[4026531836]";
    std::array<char, 64> name{};
    const ssize_t length = readlink("/proc/self/ns/pid", name.data(), name.size());
    const bool same =
        length > 0 && std::string_view(name.data(), static_cast<std::size_t>(length)) == initial;
    return same ? static_cast<std::uint32_t>(getpid()) : 0;
}

trace::GroupLimit figures_of(const CgroupLimit& limit, profiler::Recorder* recorder) {
    static_assert(CgroupLimit::unlimited == trace::GroupLimit::unlimited);
    return {.group = recorder != nullptr ? recorder->string_id(limit.path) : 0,
            .limit = limit.limit,
            .used = limit.used,
            .guaranteed = limit.guaranteed};
}

bool NvmlWitness::watch(CUdevice device, std::string uuid, std::string pci) {
    if (recorder_ == nullptr || device < 0 || device >= max_devices || uuid.empty()) {
        return false;
    }
    {
        const threads::LockGuard lock(watched_mutex_);
        Watched& watched = watched_[static_cast<std::size_t>(device)];
        watched.uuid = std::move(uuid);
        watched.pci = std::move(pci);
    }
    if (started_.exchange(true)) {
        return false;
    }
    const bool started = threads::start_own_thread(&NvmlWitness::run, this);
    if (!started) {
        ended_.store(1);
    }
    return started;
}

void NvmlWitness::ask_soon() noexcept {
    if (!started_.load(std::memory_order_relaxed) || asked_for_.exchange(true)) {
        return;
    }
    wake_.store(1, std::memory_order_release);
    syscall(SYS_futex, &wake_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

void NvmlWitness::stop(bool ask_again) {
    if (!started_.load() || state_.load() != State::running) {
        return;
    }
    state_.store(ask_again ? State::last : State::stopped);
    wake_.store(1, std::memory_order_release);
    syscall(SYS_futex, &wake_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    const std::uint64_t deadline = profiler::monotonic_ns() + max_stop_wait_ns;
    for (std::uint64_t now = profiler::monotonic_ns();
         now < deadline && ended_.load(std::memory_order_acquire) == 0;
         now = profiler::monotonic_ns()) {
        const timespec left = profiler::to_timespec(deadline - now);
        syscall(SYS_futex, &ended_, FUTEX_WAIT_PRIVATE, 0, &left, nullptr, 0);
    }
    state_.store(State::stopped);
}

void NvmlWitness::before_fork() {
    if (started_.load() &&
        profiler::lock_until(mutex_, profiler::monotonic_ns() + max_fork_wait_ns)) {
        forking_.store(pthread_self());
    }
}

void NvmlWitness::after_fork() {
    if (pthread_equal(forking_.load(), pthread_self()) != 0) {
        forking_.store(pthread_t{});
        mutex_.unlock();
    }
}

void* NvmlWitness::run(void* self) {
    const InsideMemlab inside;
    static_cast<NvmlWitness*>(self)->loop();
    return nullptr;
}

void NvmlWitness::loop() {
    Nvml nvml;
    for (std::size_t round = 0; ask_next(nvml, round); ++round) {
    }
    ended_.store(1, std::memory_order_release);
    syscall(SYS_futex, &ended_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

/// Waits until the next time, until it is asked for, or until the end.
void NvmlWitness::pause(std::size_t round) {
    const std::uint64_t next =
        profiler::monotonic_ns() + pauses_ns[std::min(round, pauses_ns.size() - 1)];
    for (;;) {
        wake_.store(0);  // what is asked for from here on ends the wait
        if (state_.load() != State::running) {
            return;
        }
        const std::uint64_t now = profiler::monotonic_ns();
        const std::uint64_t earliest = asked_ns_ == 0 ? now : asked_ns_ + second_ns;
        const std::uint64_t end = asked_for_.load() ? std::min(next, earliest) : next;
        if (now >= end) {
            return;
        }
        const timespec left = profiler::to_timespec(end - now);
        syscall(SYS_futex, &wake_, FUTEX_WAIT_PRIVATE, 0, &left, nullptr, 0);
    }
}

/// Waits, and asks. False when that was the last time.
bool NvmlWitness::ask_next(Nvml& nvml, std::size_t round) {
    pause(round);
    const threads::LockGuard lock(mutex_);
    const State state = state_.load();
    const bool asked_for = asked_for_.exchange(false);
    if (state == State::stopped || (state == State::last && round == 0 && !asked_for)) {
        return false;
    }
    asked_ns_ = profiler::monotonic_ns();
    if (round == 0) {
        nvml.load();
    }
    bool again = true;
    try {
        again = ask(nvml);
    } catch (const std::bad_alloc&) {  // at the next time
    }
    return state == State::running && again;
}

/// Records what NVML and the cgroup say of each device. False if a later call could add nothing.
bool NvmlWitness::ask(Nvml& nvml) {
    const CgroupPlace place = own_cgroup();
    bool any = nvml.processes != nullptr;
    for (std::size_t device = 0; device < max_devices; ++device) {
        Watched watched;
        {
            const threads::LockGuard lock(watched_mutex_);
            watched = watched_[device];
        }
        if (watched.uuid.empty() || state_.load() == State::stopped) {
            continue;
        }
        trace::Witness witness = nvml.ask(watched.uuid);
        witness.device = static_cast<std::uint32_t>(device);
        if (const std::optional<CgroupLimit> dmem = dmem_limit(place, watched.pci)) {
            witness.dmem = figures_of(*dmem, recorder_);
            witness.capacity = dmem->capacity;
            any = true;
        }
        std::optional<CgroupLimit> limit = nvml.limits.of(watched.uuid, place);
        if (limit) {
            witness.nvml = figures_of(*limit, recorder_);
        }
        {
            const threads::LockGuard lock(watched_mutex_);
            watched_[device].limit = std::move(limit);
        }
        recorder_->record(witness);
    }
    return any;
}

std::optional<CgroupLimit> NvmlWitness::limit_by_nvml(CUdevice device) {
    if (device < 0 || device >= max_devices) {
        return std::nullopt;
    }
    const threads::LockGuard lock(watched_mutex_);
    return watched_[static_cast<std::size_t>(device)].limit;
}

}  // namespace memlab::interpose
