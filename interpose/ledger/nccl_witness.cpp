#include "interpose/ledger/nccl_witness.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>

#include "interpose/driver/diagnostics.hpp"
#include "interpose/driver/loader.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

// Of nccl.h.
constexpr int nccl_success = 0;
enum class NcclStatistic : int { suspendable = 0, suspended = 1, persistent = 2, total = 3 };

constexpr std::uint64_t first_interval_ns = 100'000'000;
constexpr std::uint64_t longest_interval_ns = 8'000'000'000;

/// With it NCCL refuses, and says so where it prints warnings.
bool switched_off() {
    const char* const value = std::getenv("NCCL_DISABLE_MEM_MANAGER");
    return value != nullptr && value[0] != '\0' && !(value[0] == '0' && value[1] == '\0');
}

/// 0: NCCL does not tell.
int ranks_of(const void* library, void* communicator) {
    int ranks = 0;
    const auto count =
        reinterpret_cast<int (*)(void*, int*)>(definition_for(library, "ncclCommCount"));
    return count != nullptr && count(communicator, &ranks) == nccl_success ? ranks : 0;
}

}  // namespace

NcclWitness::Functions NcclWitness::functions_of(const void* library) {
    Functions found;
    const auto find = [library]<class Function>(Function*& function, const char* name) {
        function = reinterpret_cast<Function*>(definition_for(library, name));
    };
    find(found.statistic, "ncclCommMemStats");
    find(found.device, "ncclCommCuDevice");
    find(found.rank, "ncclCommUserRank");
    find(found.ranks, "ncclCommCount");
    const bool whole = found.statistic != nullptr && found.device != nullptr &&
                       found.rank != nullptr && found.ranks != nullptr;
    return whole && !switched_off() ? found : Functions();
}

std::vector<NcclWitness::Known>::iterator NcclWitness::find(const void* communicator) {
    return std::find_if(known_.begin(), known_.end(),
                        [&](const Known& each) { return each.handle == communicator; });
}

void NcclWitness::used(void* communicator, int result, const void* function) noexcept {
    if (!follows_ || communicator == nullptr) {
        return;
    }
    try {
        Known asked;
        {
            if (!mutex_.try_lock()) {
                return;  // at the next call
            }
            const threads::LockGuard lock(mutex_, std::adopt_lock);
            auto known = find(communicator);
            if (known == known_.end()) {
                if (result != nccl_success || known_.size() == max_known) {
                    return;
                }
                const void* const library = containing_object(function);
                if (library == nullptr || library == refused_.load(std::memory_order_relaxed)) {
                    return;
                }
                known_.push_back({communicator, ++numbers_, library, functions_of(library)});
                known = known_.end() - 1;
                if (memory_.settings().yield) {
                    known->ranks = ranks_of(library, communicator);
                }
            }
            known->ready = result == nccl_success;
            if (!known->ready || !may_ask(*known)) {
                return;
            }
            const std::uint64_t now_ns = profiler::monotonic_ns();
            if (now_ns < known->not_before_ns) {
                return;
            }
            known->interval_ns =
                std::clamp(2 * known->interval_ns, first_interval_ns, longest_interval_ns);
            known->not_before_ns = now_ns + known->interval_ns;
            if (memory_.settings().ledger != LedgerUse::on &&
                !budget_.allows(trace::LedgerKind::other, now_ns,
                                [] { return profiler::clock_ns(CLOCK_PROCESS_CPUTIME_ID); })) {
                return;
            }
            asked = *known;
        }
        ask(asked, false);
    } catch (const std::bad_alloc&) {  // not asked
    }
}

void NcclWitness::ends(void* communicator, bool ask_first) noexcept {
    if (!follows_) {
        return;
    }
    try {
        Known asked{};
        {
            const threads::LockGuard lock(mutex_);
            const auto known = find(communicator);
            if (known == known_.end()) {
                return;
            }
            asked = *known;
            known_.erase(known);
        }
        if (ask_first && asked.ready && may_ask(asked)) {
            ask(asked, true);
        }
    } catch (const std::bad_alloc&) {  // not asked
    }
}

bool NcclWitness::has_peers_elsewhere() {
    const threads::LockGuard lock(mutex_);
    for (const Known& one : known_) {
        const auto here = std::count_if(known_.begin(), known_.end(), [&one](const Known& other) {
            return other.ranks == one.ranks;
        });
        if (one.ranks == 0 || here < one.ranks) {
            return true;
        }
    }
    return false;
}

/// Without the lock: NCCL and the recorder have their own.
void NcclWitness::ask(Known known, bool ended) {
    const std::uint64_t begin_ns = profiler::monotonic_ns();
    const Functions& nccl = known.functions;
    trace::CommunicatorMemory now;
    std::uint64_t state = 0;
    int device = -1;
    int rank = 0;
    int ranks = 0;
    const auto statistic = [&](NcclStatistic which, std::uint64_t* value) {
        return nccl.statistic(known.handle, static_cast<int>(which), value);
    };
    const bool told = statistic(NcclStatistic::total, &now.total) == nccl_success &&
                      statistic(NcclStatistic::persistent, &now.persistent) == nccl_success &&
                      statistic(NcclStatistic::suspendable, &now.suspendable) == nccl_success &&
                      statistic(NcclStatistic::suspended, &state) == nccl_success &&
                      nccl.device(known.handle, &device) == nccl_success &&
                      nccl.rank(known.handle, &rank) == nccl_success &&
                      nccl.ranks(known.handle, &ranks) == nccl_success;
    const bool plausible = told && now.persistent <= now.total &&
                           now.total - now.persistent == now.suspendable && state <= 1 &&
                           device >= 0 && device < static_cast<int>(trace::DeviceInfo::max_gpus) &&
                           rank >= 0 && rank < ranks;
    if (!plausible) {
        refused_.store(known.library, std::memory_order_relaxed);
        debug(std::string("NCCL's memory is not told by communicator: ncclCommMemStats ") +
              (told ? "has figures that do not add up" : "fails"));
        return;
    }
    now.device = static_cast<std::uint32_t>(device);
    now.communicator = known.number;
    now.rank = static_cast<std::uint32_t>(rank);
    now.ranks = static_cast<std::uint32_t>(ranks);
    now.suspended = state == 1;
    now.ended = ended;
    budget_.spend(trace::LedgerKind::other, profiler::monotonic_ns() - begin_ns);
    if (now == known.last) {
        return;
    }
    memory_.contexts().describe_device(device);
    memory_.recorder()->record(now);
    const threads::LockGuard lock(mutex_);
    for (Known& each : known_) {
        if (each.number == known.number) {
            each.last = now;
        }
    }
}

}  // namespace memlab::interpose
