#include "tests/support/simulated_backend.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace memlab::allocator {

namespace {

std::size_t index_of(SimulatedBackend::Call call) {
    return static_cast<std::size_t>(call);
}

std::string range(Address begin, std::uint64_t bytes) {
    return std::to_string(bytes) + " bytes at " + std::to_string(begin);
}

}  // namespace

void SimulatedBackend::problem(std::string text) {
    problems_.push_back(std::move(text));
}

/// Counts the call; true if it must fail with *status.
bool SimulatedBackend::injected(Call call, BackendStatus* status) {
    const std::uint64_t number = ++calls_[index_of(call)];
    auto& failures = failures_[index_of(call)];
    if (const auto found = failures.find(number); found != failures.end()) {
        *status = found->second;
        failures.erase(found);
        return true;
    }
    if (broken_) {
        *status = {BackendStatus::Kind::error, broken_code_};
        return true;
    }
    return false;
}

/// The caller has checked that the sum fits; the address space is far larger.
Address SimulatedBackend::lowest_gap(std::uint64_t bytes) const {
    Address at = base_;
    auto segment = segments_.begin();
    auto range = ranges_.begin();
    for (;;) {
        const bool use_range =
            segment == segments_.end() || (range != ranges_.end() && range->first < segment->first);
        if (use_range && range == ranges_.end()) {
            return at;
        }
        const auto& [begin, size] = use_range ? *range++ : *segment++;
        if (begin - at >= bytes) {
            return at;
        }
        at = begin + size;
    }
}

void SimulatedBackend::call_without_lock(std::unique_lock<std::mutex>& lock,
                                         const std::function<void()>& set) {
    if (set) {
        const std::function<void()> hook = set;
        lock.unlock();
        hook();
        lock.lock();
    }
}

BackendStatus SimulatedBackend::segment_alloc(std::uint64_t bytes, Address* address) {
    const std::lock_guard lock(mutex_);
    BackendStatus status;
    if (injected(Call::segment_alloc, &status)) {
        return status;
    }
    if (bytes == 0 || bytes % page_bytes != 0) {
        problem("segment_alloc of " + std::to_string(bytes) + " bytes: not a multiple of 2 MiB");
    }
    if (bytes > total_ - used_) {
        return {BackendStatus::Kind::out_of_memory, out_of_memory_code};
    }
    *address = lowest_gap(bytes);
    segments_[*address] = bytes;
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    return {};
}

std::uint64_t SimulatedBackend::available_memory() const {
    const std::lock_guard lock(mutex_);
    return knows_available_ ? total_ - used_ : unknown_memory;
}

void SimulatedBackend::set_knows_available(bool knows) {
    const std::lock_guard lock(mutex_);
    knows_available_ = knows;
}

BackendStatus SimulatedBackend::segment_free(Address address, std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    call_without_lock(lock, segment_free_hook_);
    BackendStatus status;
    if (injected(Call::segment_free, &status)) {
        return status;
    }
    const auto found = segments_.find(address);
    if (found == segments_.end() || found->second != bytes) {
        problem("segment_free of " + range(address, bytes) + ": there is no such segment");
        return {BackendStatus::Kind::error, 1};
    }
    finish_work_on(address, bytes);
    used_ -= bytes;
    segments_.erase(found);
    return {};
}

/// Like cudaFree: work that uses the memory finishes first.
void SimulatedBackend::finish_work_on(Address begin, std::uint64_t bytes) {
    for (auto it = accesses_.rbegin(); it != accesses_.rend(); ++it) {
        if (it->begin < begin + bytes && it->end > begin) {
            complete_to(it->position);
            break;
        }
    }
}

BackendStatus SimulatedBackend::range_reserve(Address* base, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    BackendStatus status;
    if (injected(Call::range_reserve, &status)) {
        return status;
    }
    if (bytes == 0 || bytes % page_bytes != 0) {
        problem("range_reserve of " + std::to_string(bytes) + " bytes: not whole pages");
    }
    *base = lowest_gap(bytes);
    ranges_[*base] = bytes;
    return {};
}

BackendStatus SimulatedBackend::range_release(Address base, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = ranges_.find(base);
    const auto page = pages_.lower_bound(base);
    if (found == ranges_.end() || found->second != bytes ||
        (page != pages_.end() && *page < base + bytes)) {
        problem("range_release of " + range(base, bytes) + ": no such range without memory");
        return {BackendStatus::Kind::error, 1};
    }
    ranges_.erase(found);
    return {};
}

bool SimulatedBackend::inside_a_range(Address begin, std::uint64_t bytes) const {
    const auto above = ranges_.upper_bound(begin);
    if (above == ranges_.begin()) {
        return false;
    }
    const auto& [base, size] = *std::prev(above);
    return bytes != 0 && bytes % page_bytes == 0 && (begin - base) % page_bytes == 0 &&
           bytes <= base + size - begin && begin < base + size;
}

BackendStatus SimulatedBackend::pages_map(Address address, std::uint64_t bytes,
                                          std::uint64_t chunk) {
    const std::lock_guard lock(mutex_);
    BackendStatus status;
    if (injected(Call::pages_map, &status)) {
        return status;
    }
    const auto first = pages_.lower_bound(address);
    if (!inside_a_range(address, bytes) || (first != pages_.end() && *first < address + bytes)) {
        problem("pages_map of " + range(address, bytes) + ": no pages without memory there");
        return {BackendStatus::Kind::error, 1};
    }
    if (bytes > total_ - used_) {
        return {BackendStatus::Kind::out_of_memory, out_of_memory_code};
    }
    for (Address page = address; page < address + bytes; page += page_bytes) {
        pages_.insert(pages_.end(), page);
    }
    for (Address begin = address; begin < address + bytes; begin += chunk) {
        chunks_.insert(begin);
    }
    used_ += bytes;
    peak_ = std::max(peak_, used_);
    return {};
}

BackendStatus SimulatedBackend::pages_unmap(Address address, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    BackendStatus status;
    const bool fails = injected(Call::pages_unmap, &status);
    if (!inside_a_range(address, bytes) || !has_memory(address, address + bytes)) {
        problem("pages_unmap of " + range(address, bytes) + ": no pages with memory there");
        return {BackendStatus::Kind::error, 1};
    }
    const Address end = address + bytes;
    if (chunks_.count(address) == 0 || (pages_.count(end) != 0 && chunks_.count(end) == 0 &&
                                        inside_a_range(address, bytes + page_bytes))) {
        problem("pages_unmap of " + range(address, bytes) + ": not whole chunks");
        return {BackendStatus::Kind::error, 1};
    }
    finish_work_on(address, bytes);
    chunks_.erase(chunks_.find(address), chunks_.lower_bound(end));
    pages_.erase(pages_.find(address), pages_.lower_bound(address + bytes));
    used_ -= bytes;
    return fails ? status : BackendStatus{};
}

BackendStatus SimulatedBackend::fence_record(Fence* fence) {
    const std::lock_guard lock(mutex_);
    *fence = 0;
    BackendStatus status;
    if (injected(Call::fence_record, &status)) {
        return status;
    }
    if (knows_idle_ && completed_ == submitted_) {
        return {};
    }
    const auto last = fences_.find(last_fence_);
    if (last == fences_.end() || last->second.position != submitted_) {
        fences_[++last_fence_].position = submitted_;
    }
    ++fences_[last_fence_].references;
    ++references_;
    *fence = last_fence_;
    return {};
}

const SimulatedBackend::FenceEntry* SimulatedBackend::known(Fence fence, const char* where) {
    const auto found = fences_.find(fence);
    if (found == fences_.end()) {
        problem(std::string(where) + ": fence " + std::to_string(fence) + " is not held");
        return nullptr;
    }
    return &found->second;
}

FenceState SimulatedBackend::fence_query(Fence fence) {
    const std::lock_guard lock(mutex_);
    ++queries_;
    const FenceEntry* entry = known(fence, "fence_query");
    if (entry == nullptr || (broken_ && entry->position > completed_)) {
        return FenceState::failed;
    }
    return entry->position <= completed_ ? FenceState::complete : FenceState::pending;
}

BackendStatus SimulatedBackend::fence_wait_device(Fence fence) {
    const std::lock_guard lock(mutex_);
    const FenceEntry* entry = known(fence, "fence_wait_device");
    BackendStatus status;
    if (injected(Call::fence_wait_device, &status)) {
        return status;
    }
    if (entry == nullptr) {
        return {BackendStatus::Kind::error, 1};
    }
    ordered_ = std::max(ordered_, entry->position);
    return {};
}

bool SimulatedBackend::ordered_behind(Fence fence) {
    const std::lock_guard lock(mutex_);
    const FenceEntry* entry = known(fence, "ordered_behind");
    if (!one_stream_ || entry == nullptr) {
        return false;
    }
    ordered_ = std::max(ordered_, entry->position);
    return true;
}

BackendStatus SimulatedBackend::fence_wait_host(Fence fence) {
    std::unique_lock lock(mutex_);
    call_without_lock(lock, hook_);
    const FenceEntry* entry = known(fence, "fence_wait_host");
    BackendStatus status;
    if (injected(Call::fence_wait_host, &status)) {
        return status;
    }
    if (entry == nullptr) {
        return {BackendStatus::Kind::error, 1};
    }
    status = wait_for(lock, entry->position);
    if (status.ok()) {
        known(fence, "the end of fence_wait_host");  // the waiter's reference must have lasted
    }
    return status;
}

BackendStatus SimulatedBackend::wait_host() {
    std::unique_lock lock(mutex_);
    call_without_lock(lock, hook_);
    return wait_for(lock, submitted_);
}

BackendStatus SimulatedBackend::wait_for(std::unique_lock<std::mutex>& lock, Position position) {
    if (host_wait_ == HostWait::advances) {
        complete_to(position);
    }
    moved_.wait(lock, [&] { return broken_ || completed_ >= position; });
    return completed_ >= position ? BackendStatus{}
                                  : BackendStatus{BackendStatus::Kind::error, broken_code_};
}

bool SimulatedBackend::caller_needs_host_wait() const {
    std::unique_lock lock(mutex_);
    const std::function<bool()> answer = needs_host_wait_;
    lock.unlock();
    return answer ? answer() : true;
}

bool SimulatedBackend::caller_never_waits() const {
    const std::lock_guard lock(mutex_);
    return caller_never_waits_;
}

void SimulatedBackend::fence_release(Fence fence) {
    const std::lock_guard lock(mutex_);
    if (known(fence, "fence_release") == nullptr) {
        return;
    }
    --references_;
    if (--fences_[fence].references == 0) {
        fences_.erase(fence);
    }
}

SimulatedBackend::Position SimulatedBackend::submit() {
    const std::lock_guard lock(mutex_);
    return ++submitted_;
}

bool SimulatedBackend::has_memory(Address begin, Address end) const {
    const auto above = segments_.upper_bound(begin);
    if (above != segments_.begin()) {
        const auto& [base, size] = *std::prev(above);
        if (begin < base + size) {
            return end <= base + size;
        }
    }
    auto page = pages_.upper_bound(begin);
    if (page == pages_.begin()) {
        return false;
    }
    Address reached = *--page;
    while (page != pages_.end() && *page == reached && reached < end) {
        reached += page_bytes;
        ++page;
    }
    return reached >= end && reached > begin;
}

SimulatedBackend::Position SimulatedBackend::access(std::uint64_t owner, Address address,
                                                    std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const Access now{++submitted_, owner, address, address + bytes};
    if (!has_memory(now.begin, now.end)) {
        problem("access of " + range(address, bytes) + ": there is no memory");
    }
    for (const Access& earlier : accesses_) {
        if (earlier.position > ordered_ && earlier.owner != owner && earlier.begin < now.end &&
            earlier.end > now.begin) {
            problem("access of " + range(address, bytes) + " by owner " + std::to_string(owner) +
                    ": work of owner " + std::to_string(earlier.owner) +
                    " on it is unfinished and not ordered before");
        }
    }
    accesses_.push_back(now);
    return now.position;
}

void SimulatedBackend::complete_to(Position position) {
    if (broken_) {
        return;
    }
    completed_ = std::max(completed_, std::min(position, submitted_));
    while (!accesses_.empty() && accesses_.front().position <= completed_) {
        accesses_.pop_front();
    }
    moved_.notify_all();
}

void SimulatedBackend::advance_to(Position position) {
    const std::lock_guard lock(mutex_);
    complete_to(position);
}

void SimulatedBackend::advance_all() {
    const std::lock_guard lock(mutex_);
    complete_to(submitted_);
}

SimulatedBackend::Position SimulatedBackend::submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_;
}

SimulatedBackend::Position SimulatedBackend::completed() const {
    const std::lock_guard lock(mutex_);
    return completed_;
}

void SimulatedBackend::set_host_wait(HostWait wait) {
    const std::lock_guard lock(mutex_);
    host_wait_ = wait;
}

void SimulatedBackend::set_host_wait_hook(std::function<void()> hook) {
    const std::lock_guard lock(mutex_);
    hook_ = std::move(hook);
}

void SimulatedBackend::set_segment_free_hook(std::function<void()> hook) {
    const std::lock_guard lock(mutex_);
    segment_free_hook_ = std::move(hook);
}

void SimulatedBackend::set_caller_needs_host_wait(std::function<bool()> answer) {
    const std::lock_guard lock(mutex_);
    needs_host_wait_ = std::move(answer);
}

void SimulatedBackend::set_caller_never_waits(bool never) {
    const std::lock_guard lock(mutex_);
    caller_never_waits_ = never;
}

void SimulatedBackend::set_knows_idle(bool knows) {
    const std::lock_guard lock(mutex_);
    knows_idle_ = knows;
}

void SimulatedBackend::set_one_stream(bool one_stream) {
    const std::lock_guard lock(mutex_);
    one_stream_ = one_stream;
}

void SimulatedBackend::fail(Call call, std::uint64_t nth, BackendStatus status) {
    const std::lock_guard lock(mutex_);
    failures_[index_of(call)][calls_[index_of(call)] + nth] = status;
}

void SimulatedBackend::clear_failures() {
    const std::lock_guard lock(mutex_);
    for (auto& failures : failures_) {
        failures.clear();
    }
}

void SimulatedBackend::break_context(std::int32_t code) {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    broken_code_ = code;
    moved_.notify_all();
}

std::uint64_t SimulatedBackend::calls(Call call) const {
    const std::lock_guard lock(mutex_);
    return calls_[index_of(call)];
}

std::uint64_t SimulatedBackend::queries() const {
    const std::lock_guard lock(mutex_);
    return queries_;
}

std::uint64_t SimulatedBackend::used() const {
    const std::lock_guard lock(mutex_);
    return used_;
}

std::uint64_t SimulatedBackend::peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
}

std::uint64_t SimulatedBackend::segments() const {
    const std::lock_guard lock(mutex_);
    return segments_.size();
}

std::uint64_t SimulatedBackend::ranges() const {
    const std::lock_guard lock(mutex_);
    return ranges_.size();
}

std::uint64_t SimulatedBackend::mapped() const {
    const std::lock_guard lock(mutex_);
    return pages_.size() * page_bytes;
}

std::uint64_t SimulatedBackend::fences() const {
    const std::lock_guard lock(mutex_);
    return references_;
}

std::vector<std::string> SimulatedBackend::problems() const {
    const std::lock_guard lock(mutex_);
    return problems_;
}

}  // namespace memlab::allocator
