#include "profiler/cupti/audit.hpp"

#include <algorithm>
#include <new>

namespace memlab::profiler::cupti {

template <class Body>
void Audit::guarded(const Body& body) noexcept {
    const threads::LockGuard lock(mutex_);
    if (overflowed_) {
        return;
    }
    try {
        body();
        overflowed_ = open_.size() > max_open || bypass_calls_.size() > max_open;
    } catch (const std::bad_alloc&) {
        overflowed_ = true;
    }
}

void Audit::add_known(std::uint64_t address) noexcept {
    guarded([&] {
        mutex_.assert_held();
        ++known_;
        const auto [at, is_new] = open_.try_emplace(address);
        Unmatched& unmatched = at->second;
        // A record of a call that bypassed memlab is of another allocation at this address.
        const auto match = std::find_if(unmatched.records.begin(), unmatched.records.end(),
                                        [this](const Allocation& record) {
                                            mutex_.assert_held();
                                            return bypass_calls_.count(record.correlation) == 0;
                                        });
        if (match == unmatched.records.end()) {
            ++unmatched.known;
            return;
        }
        unmatched.records.erase(match);
        if (unmatched.records.empty() && unmatched.known == 0) {
            open_.erase(at);
        }
    });
}

void Audit::add_record(const Allocation& record) noexcept {
    guarded([&] {
        mutex_.assert_held();
        ++records_;
        bytes_ += record.bytes;
        const auto [at, is_new] = open_.try_emplace(record.address);
        Unmatched& unmatched = at->second;
        if (unmatched.known == 0 || bypass_calls_.count(record.correlation) != 0) {
            unmatched.records.push_back(record);
        } else if (--unmatched.known == 0 && unmatched.records.empty()) {
            open_.erase(at);
        }
    });
}

void Audit::add_bypass_call(std::uint32_t correlation, std::uint32_t api,
                            std::uint32_t stack) noexcept {
    guarded([&] {
        mutex_.assert_held();
        bypass_calls_[correlation] = {api, stack};
    });
}

bool Audit::has_pending() const noexcept {
    const threads::LockGuard lock(mutex_);
    for (const auto& [address, unmatched] : open_) {
        for (const Allocation& record : unmatched.records) {
            if (bypass_calls_.count(record.correlation) == 0) {
                return true;
            }
        }
    }
    return false;
}

Audit::Result Audit::result() const {
    const threads::LockGuard lock(mutex_);
    Result result;
    result.records = records_;
    result.bytes = bytes_;
    result.known = known_;
    result.overflowed = overflowed_;
    for (const auto& [address, unmatched] : open_) {
        for (const Allocation& record : unmatched.records) {
            if (const auto call = bypass_calls_.find(record.correlation);
                call != bypass_calls_.end()) {
                result.bypassed.push_back({record, call->second.api, call->second.stack});
            }
        }
    }
    std::sort(result.bypassed.begin(), result.bypassed.end(), [](const Bypass& a, const Bypass& b) {
        return a.record.monotonic_ns != b.record.monotonic_ns
                   ? a.record.monotonic_ns < b.record.monotonic_ns
                   : a.record.address < b.record.address;
    });
    return result;
}

}  // namespace memlab::profiler::cupti
