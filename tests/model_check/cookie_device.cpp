#include "tests/model_check/cookie_device.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace memlab::model_check {

namespace {

using allocator::BackendStatus;
using allocator::FenceState;

constexpr BackendStatus failure{BackendStatus::Kind::error, CookieDevice::failure_code};
constexpr BackendStatus refused_in_capture{BackendStatus::Kind::not_now,
                                           CookieDevice::capture_code};

void raise(CookieDevice::Position& position, const CookieDevice::Position& at_least) {
    for (std::size_t i = 0; i < position.size(); ++i) {
        position[i] = std::max(position[i], at_least[i]);
    }
}

}  // namespace

CookieDevice::CookieDevice(std::uint64_t total, std::size_t streams, Knowledge knowledge,
                           Planted planted, Host& host)
    : streams_(streams),
      knowledge_(knowledge),
      planted_(planted),
      host_(host),
      total_(total),
      memory_(std::make_unique<allocator::SimulatedBackend>(total)) {}

void CookieDevice::found(std::string text) {
    if (problem_.empty()) {
        problem_ = std::move(text);
    }
}

std::string CookieDevice::problem() const {
    if (!problem_.empty()) {
        return problem_;
    }
    const std::vector<std::string> problems = memory_->problems();
    return problems.empty() ? "" : problems.front();
}

bool CookieDevice::failed(Failing what) {
    std::uint64_t& left = failing_[static_cast<std::size_t>(what)];
    return left != 0 && --left == 0;
}

void CookieDevice::clear_failures() {
    failing_ = {};
    memory_->clear_failures();
}

// --- contents
// -------------------------------------------------------------------------------------

void CookieDevice::split_at(Address address) {
    const auto above = contents_.upper_bound(address);
    if (above == contents_.begin()) {
        return;
    }
    const auto run = std::prev(above);
    if (run->first < address && address < run->second.end) {
        contents_.emplace_hint(above, address, run->second);
        run->second.end = address;
    }
}

void CookieDevice::clear(Address begin, Address end) {
    split_at(begin);
    split_at(end);
    contents_.erase(contents_.lower_bound(begin), contents_.lower_bound(end));
}

void CookieDevice::fill(Address begin, Address end, Cookie cookie) {
    clear(begin, end);
    contents_[begin] = {end, cookie};
}

void CookieDevice::execute(const Work& work) {
    ++executed_;
    split_at(work.begin);
    split_at(work.end);
    Address reached = work.begin;
    for (auto run = contents_.find(work.begin);
         run != contents_.end() && reached < work.end && run->first == reached; ++run) {
        if (work.expects != 0 && run->second.cookie != work.expects) {
            found("memory at " + std::to_string(run->first) + " holds " +
                  std::to_string(run->second.cookie) + ", its owner left " +
                  std::to_string(work.expects));
        }
        reached = run->second.end;
    }
    if (reached < work.end) {
        found("work on memory that is not there, at " + std::to_string(reached));
    }
    fill(work.begin, work.end, work.leaves);
}

// --- memory
// ---------------------------------------------------------------------------------------

std::uint64_t CookieDevice::bytes_on_way(Way way) const {
    std::uint64_t sum = 0;
    for (const auto& entry : passing_) {
        sum += entry.second.way == way ? entry.second.bytes : 0;
    }
    return sum;
}

bool CookieDevice::on_way(Address begin, Address end) const {
    return std::any_of(passing_.begin(), passing_.end(), [&](const auto& entry) {
        return entry.first < end && begin < entry.first + entry.second.bytes;
    });
}

/// Returns when `ready` holds; others run meanwhile. False: the context is gone.
bool CookieDevice::others_run(std::function<bool()> ready) {
    const std::uint64_t context = contexts_;
    host_.wait_until(*this, host_.lock_is_held(*this), std::move(ready));
    return contexts_ == context;
}

BackendStatus CookieDevice::segment_alloc(std::uint64_t bytes, Address* address) {
    if (broken_) {
        return failure;
    }
    const BackendStatus status = memory_->segment_alloc(bytes, address);
    if (status.ok()) {
        fill(*address, *address + bytes, 0);
        passing_[*address] = {bytes, Way::arriving};
    }
    return others_run([] { return true; }) ? status : failure;
}

/// False: the memory is gone with its context.
bool CookieDevice::give_back(Address address, std::uint64_t bytes) {
    leaves(address, bytes);
    const Position uses =
        planted_ == Planted::hasty_give_back ? Position{} : uses_of(address, address + bytes);
    if (!others_run([this, uses] { return broken_ || covers(uses); })) {
        return false;
    }
    passing_.erase(address);
    clear(address, address + bytes);
    return true;
}

BackendStatus CookieDevice::segment_free(Address address, std::uint64_t bytes) {
    if (!give_back(address, bytes)) {
        return failure;
    }
    const BackendStatus status = memory_->segment_free(address, bytes);
    return broken_ ? failure : status;
}

BackendStatus CookieDevice::range_reserve(Address* base, std::uint64_t bytes) {
    return others_run([] { return true; }) && !broken_ ? memory_->range_reserve(base, bytes)
                                                       : failure;
}

BackendStatus CookieDevice::range_release(Address base, std::uint64_t bytes) {
    return others_run([] { return true; }) ? memory_->range_release(base, bytes) : failure;
}

BackendStatus CookieDevice::pages_map(Address address, std::uint64_t bytes, std::uint64_t chunk) {
    if (broken_) {
        return failure;
    }
    if (on_way(address, address + bytes)) {
        found("pages were mapped while they were given back");
    }
    const BackendStatus status = memory_->pages_map(address, bytes, chunk);
    if (status.ok()) {
        fill(address, address + bytes, 0);
        passing_[address] = {bytes, Way::arriving};
    }
    return others_run([] { return true; }) ? status : failure;
}

BackendStatus CookieDevice::pages_unmap(Address address, std::uint64_t bytes) {
    return give_back(address, bytes) ? memory_->pages_unmap(address, bytes) : failure;
}

CookieDevice::Position CookieDevice::uses_of(Address begin, Address end) const {
    Position uses{};
    for (std::size_t stream = 0; stream < streams_; ++stream) {
        std::uint64_t position = completed_[stream];
        for (const Work& work : work_[stream]) {
            ++position;
            if (work.begin < end && work.end > begin) {
                uses[stream] = position;
            }
        }
    }
    return uses;
}

// --- work
// -----------------------------------------------------------------------------------------

void CookieDevice::submit(std::size_t stream, const Work& work, bool ticks) {
    begin();
    work_[stream].push_back(work);
    raise(work_[stream].back().after, ordered_);
    ++submitted_[stream];
    if (ticks) {
        tick();
    }
}

bool CookieDevice::covers(const Position& position) const {
    return std::equal(completed_.begin(), completed_.end(), position.begin(),
                      [](std::uint64_t have, std::uint64_t need) { return have >= need; });
}

bool CookieDevice::step(std::size_t stream) {
    if (broken_ || work_[stream].empty() || !covers(work_[stream].front().after)) {
        return false;
    }
    execute(work_[stream].front());
    work_[stream].pop_front();
    ++completed_[stream];
    return true;
}

void CookieDevice::run_up_to(const Position& position) {
    for (bool moved = true; moved && !covers(position);) {
        moved = false;
        for (std::size_t stream = 0; stream < streams_; ++stream) {
            while (completed_[stream] < position[stream] && step(stream)) {
                moved = true;
            }
            // Another stream's work may depend on work after `position` in this one.
            moved = step(stream) || moved;
        }
    }
}

void CookieDevice::run_all() {
    run_up_to(submitted_);
}

std::size_t CookieDevice::unfinished() const {
    std::size_t sum = 0;
    for (const auto& queue : work_) {
        sum += queue.size();
    }
    return sum;
}

void CookieDevice::reset() {
    for (auto& queue : work_) {
        queue.clear();
    }
    completed_ = submitted_;
    broken_ = false;
    records_.clear();
    references_ = 0;
    contents_.clear();
    passing_.clear();
    if (const std::string problem = this->problem(); !problem.empty()) {
        found(problem);  // lest it be forgotten
    }
    memory_ = std::make_unique<allocator::SimulatedBackend>(total_);
    ++contexts_;
}

// --- fences
// ---------------------------------------------------------------------------------------

bool CookieDevice::known_idle(std::uint64_t time) const {
    return (knowledge_ == Knowledge::exact && completed_ == submitted_) ||
           (knowledge_ == Knowledge::clock && clock_.idle_since(time));
}

bool CookieDevice::may_share(const Record& newest, std::uint64_t time) const {
    return planted_ == Planted::endless_epoch ||
           (knowledge_ == Knowledge::exact && newest.captured == submitted_) ||
           (knowledge_ == Knowledge::clock && time != ModelClock::none && newest.time == time);
}

BackendStatus CookieDevice::fence_record(Fence* fence) {
    *fence = 0;
    if (broken_ || failed(Failing::record)) {
        return failure;
    }
    const std::uint64_t time = clock_.now();
    if (known_idle(time) || planted_ == Planted::no_fence) {
        return {};
    }
    const auto newest = records_.find(newest_);
    if (newest != records_.end() && may_share(newest->second, time)) {
        ++newest->second.references;
        ++references_;
        *fence = newest_;
        return {};
    }
    if (knowledge_ == Knowledge::clock) {
        host_.wait_until(*this, true, [] { return true; });
    }
    if (capturing_) {
        return refused_in_capture;
    }
    records_[++last_] = {submitted_, time, 1};
    ++references_;
    newest_ = last_;
    *fence = last_;
    return {};
}

FenceState CookieDevice::fence_query(Fence fence) {
    const auto found_record = records_.find(fence);
    if (found_record == records_.end()) {
        found("a fence was looked at that is not held");
        return FenceState::failed;
    }
    const Record& record = found_record->second;
    bool complete = covers(record.captured);
    if (planted_ == Planted::early_fence) {
        for (std::size_t stream = 0; stream < streams_; ++stream) {
            complete =
                complete || done(stream, std::max<std::uint64_t>(record.captured[stream], 1));
        }
    }
    if (complete) {
        clock_.completed(record.time);
        return FenceState::complete;
    }
    return broken_ ? FenceState::failed : FenceState::pending;
}

BackendStatus CookieDevice::fence_wait_device(Fence fence) {
    const auto record = records_.find(fence);
    if (record == records_.end()) {
        found("the device was to wait for a fence that is not held");
        return failure;
    }
    if (broken_ || failed(Failing::wait_device)) {
        return failure;
    }
    if (capturing_) {
        return refused_in_capture;
    }
    if (planted_ != Planted::unordered_device) {
        raise(ordered_, record->second.captured);
    }
    return {};
}

BackendStatus CookieDevice::fence_wait_host(Fence fence) {
    if (failed(Failing::wait_host)) {
        return failure;
    }
    const auto record = records_.find(fence);
    if (record == records_.end()) {
        found("the host was to wait for a fence that is not held");
        return failure;
    }
    if (planted_ == Planted::hasty_host) {
        return {};
    }
    const Position captured = record->second.captured;
    const std::uint64_t time = record->second.time;
    host_.wait_until(*this, false, [this, captured] { return broken_ || covers(captured); });
    if (!covers(captured)) {
        return failure;
    }
    clock_.completed(time);
    return {};
}

void CookieDevice::fence_release(Fence fence) {
    const auto record = records_.find(fence);
    if (record == records_.end()) {
        found("a fence was released that is not held");
        return;
    }
    if (planted_ == Planted::release_forgotten && ++released_ % 100 == 0) {
        return;
    }
    --references_;
    if (--record->second.references == 0) {
        records_.erase(record);
    }
}

}  // namespace memlab::model_check
