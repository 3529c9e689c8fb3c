#include "profiler/cupti/audit.hpp"

#include <algorithm>
#include <new>

namespace memlab::profiler::cupti {

template <class Body>
void Audit::guarded(const Body& body) noexcept {
    const std::lock_guard lock(mutex_);
    if (overflowed_) {
        return;
    }
    try {
        body();
        overflowed_ = open_.size() > max_open || strangers_.size() > max_open;
    } catch (const std::bad_alloc&) {
        overflowed_ = true;
    }
}

void Audit::made(std::uint64_t address) noexcept {
    guarded([&] {
        ++made_;
        const auto [at, is_new] = open_.try_emplace(address);
        Ledger& ledger = at->second;
        // A stranger's allocation at the same address is not this one.
        const auto ours = std::find_if(
            ledger.seen.begin(), ledger.seen.end(),
            [this](const Seen& seen) { return strangers_.count(seen.correlation) == 0; });
        if (ours == ledger.seen.end()) {
            ++ledger.made;
            return;
        }
        ledger.seen.erase(ours);
        if (ledger.seen.empty() && ledger.made == 0) {
            open_.erase(at);
        }
    });
}

void Audit::seen(const Seen& record) noexcept {
    guarded([&] {
        ++records_;
        bytes_ += record.bytes;
        const auto [at, is_new] = open_.try_emplace(record.address);
        Ledger& ledger = at->second;
        if (ledger.made == 0 || strangers_.count(record.correlation) != 0) {
            ledger.seen.push_back(record);
        } else if (--ledger.made == 0 && ledger.seen.empty()) {
            open_.erase(at);
        }
    });
}

void Audit::stranger(std::uint32_t correlation, std::uint32_t api, std::uint32_t stack) noexcept {
    guarded([&] { strangers_[correlation] = {api, stack}; });
}

bool Audit::waits() const noexcept {
    const std::lock_guard lock(mutex_);
    for (const auto& [address, ledger] : open_) {
        for (const Seen& seen : ledger.seen) {
            if (strangers_.count(seen.correlation) == 0) {
                return true;
            }
        }
    }
    return false;
}

Audit::Result Audit::result() const {
    const std::lock_guard lock(mutex_);
    Result result;
    result.records = records_;
    result.bytes = bytes_;
    result.made = made_;
    result.overflowed = overflowed_;
    for (const auto& [address, ledger] : open_) {
        for (const Seen& seen : ledger.seen) {
            if (const auto who = strangers_.find(seen.correlation); who != strangers_.end()) {
                result.bypassed.push_back({seen, who->second.api, who->second.stack});
            }
        }
    }
    std::sort(result.bypassed.begin(), result.bypassed.end(), [](const Left& a, const Left& b) {
        return a.record.monotonic_ns != b.record.monotonic_ns
                   ? a.record.monotonic_ns < b.record.monotonic_ns
                   : a.record.address < b.record.address;
    });
    return result;
}

}  // namespace memlab::profiler::cupti
