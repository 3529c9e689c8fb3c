#include "tests/model_check/model_device.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace memlab::model_check {

namespace {

using allocator::BackendStatus;

constexpr BackendStatus failure{BackendStatus::Kind::error, 719};
constexpr BackendStatus refused_in_capture{BackendStatus::Kind::not_now, 900};

void raise(Counts& counts, const Counts& at_least) {
    for (std::size_t i = 0; i < max_streams; ++i) {
        counts[i] = std::max(counts[i], at_least[i]);
    }
}

/// The part of a point that the first unfinished stream has in it.
Counts first_busy_part(const Counts& of, const Counts& completed) {
    Counts part = completed;
    for (std::size_t i = 0; i < max_streams; ++i) {
        if (of[i] > completed[i]) {
            part[i] = of[i];
            break;
        }
    }
    return part;
}

}  // namespace

ModelDevice::ModelDevice(std::uint64_t total, Knowledge knowledge, bool one_stream,
                         Mutation mutation, Checker& checker)
    : total_(total),
      knowledge_(knowledge),
      mutation_(mutation),
      checker_(checker),
      streams_(one_stream ? Streams::none : Streams::many) {
    std::iota(handles_.begin(), handles_.end(), std::size_t{0});
}

bool ModelDevice::failed(Failing what) {
    return std::exchange(failing_[static_cast<std::size_t>(what)], false);
}

namespace {

/// The lowest addresses from `base` on that have so many bytes between those of `taken`.
allocator::Address lowest_gap(const std::map<allocator::Address, std::uint64_t>& taken,
                              allocator::Address base, std::uint64_t bytes) {
    allocator::Address at = base;
    for (const auto& [begin, size] : taken) {
        if (begin - at >= bytes) {
            break;
        }
        at = begin + size;
    }
    return at;
}

}  // namespace

BackendStatus ModelDevice::segment_alloc(std::uint64_t bytes, Address* address) {
    if (failed(Failing::segment_alloc)) {
        checker_.arriving(0, 0);
        return failure;
    }
    if (bytes > total_ - used_) {
        checker_.arriving(0, 0);
        return {BackendStatus::Kind::out_of_memory, allocator::out_of_memory_code};
    }
    const Address at = lowest_gap(segments_, base, bytes);
    segments_[at] = bytes;
    used_ += bytes;
    *address = at;
    checker_.arriving(at, bytes);
    return {};
}

BackendStatus ModelDevice::segment_free(Address address, std::uint64_t bytes) {
    checker_.give_back(address, bytes);  // as cudaFree: it waits for the device
    const auto found = segments_.find(address);
    if (found == segments_.end() || found->second != bytes) {
        checker_.broken("a segment was given back that is not there");
        return failure;
    }
    used_ -= bytes;
    segments_.erase(found);
    return {};
}

BackendStatus ModelDevice::range_reserve(Address* address, std::uint64_t bytes) {
    *address = lowest_gap(ranges_, base, bytes);
    ranges_[*address] = bytes;
    return {};
}

BackendStatus ModelDevice::range_release(Address address, std::uint64_t bytes) {
    const auto found = ranges_.find(address);
    const auto page = pages_.lower_bound(address);
    if (found == ranges_.end() || found->second != bytes ||
        (page != pages_.end() && *page < address + bytes)) {
        checker_.broken("a range was released that has memory, or is none");
        return failure;
    }
    ranges_.erase(found);
    return {};
}

BackendStatus ModelDevice::pages_map(Address address, std::uint64_t bytes, std::uint64_t) {
    if (failed(Failing::segment_alloc)) {
        checker_.arriving(0, 0);
        return failure;
    }
    const auto page = pages_.lower_bound(address);
    if (page != pages_.end() && *page < address + bytes) {
        checker_.broken("pages were mapped that have memory");
        return failure;
    }
    if (bytes > total_ - used_ || full_for_ != 0) {
        full_for_ -= full_for_ != 0 ? 1 : 0;
        checker_.arriving(0, 0);
        return {BackendStatus::Kind::out_of_memory, allocator::out_of_memory_code};
    }
    for (std::uint64_t done = 0; done < bytes; done += allocator::page_bytes) {
        pages_.insert(address + done);
    }
    used_ += bytes;
    checker_.arriving(address, bytes);
    return {};
}

BackendStatus ModelDevice::pages_unmap(Address address, std::uint64_t bytes) {
    checker_.give_back(address, bytes);
    if (mutation_ == Mutation::unmapping_forgotten) {
        return {};
    }
    full_for_ = mutation_ == Mutation::full_for_long ? 2 : 0;
    for (std::uint64_t done = 0; done < bytes; done += allocator::page_bytes) {
        if (pages_.erase(address + done) == 0) {
            checker_.broken("pages were unmapped that have no memory");
            return failure;
        }
    }
    used_ -= bytes;
    return {};
}

std::uint64_t ModelDevice::time_now() const {
    return mutation_ == Mutation::under_way_unseen ? clock_.ticks() : clock_.now();
}

bool ModelDevice::known_idle(std::uint64_t time) const {
    switch (knowledge_) {
        case Knowledge::nothing:
            return false;
        case Knowledge::exact:
            return completed_ == submitted_;
        case Knowledge::clock:
            return clock_.idle_since(time);
    }
    return false;
}

bool ModelDevice::may_share(const Record& newest, std::uint64_t time) const {
    if (mutation_ == Mutation::endless_epoch) {
        return true;
    }
    switch (knowledge_) {
        case Knowledge::nothing:
            return false;
        case Knowledge::exact:
            return newest.captured == submitted_;
        case Knowledge::clock:
            return time != ModelClock::none && newest.time == time;
    }
    return false;
}

void ModelDevice::close_late_records() {
    for (auto& [fence, record] : records_) {
        if (record.open) {
            record.open = false;
            record.captured = submitted_;
        }
    }
}

BackendStatus ModelDevice::fence_record(Fence* fence) {
    *fence = 0;
    if (failed(Failing::record)) {
        return failure;
    }
    if (mutation_ == Mutation::no_fence ||
        (mutation_ == Mutation::one_stream_is_idle && streams_ == Streams::one)) {
        return {};
    }
    std::uint64_t time = time_now();
    if (known_idle(time)) {
        return {};
    }
    close_late_records();
    if (const auto newest = records_.find(newest_);
        newest != records_.end() && may_share(newest->second, time)) {
        ++newest->second.references;
        ++references_;
        *fence = newest_;
        checker_.recorded(*fence);
        return {};
    }
    Counts captured = submitted_;
    if (knowledge_ == Knowledge::clock) {
        checker_.between_look_and_record();
        if (mutation_ == Mutation::look_after_record) {
            time = time_now();
        } else {
            captured = submitted_;
        }
    }
    if (capturing_) {
        if (mutation_ != Mutation::fence_in_capture) {
            return refused_in_capture;
        }
        checker_.broken("a fence was recorded in a capture");
    }
    Record& record = records_[++last_];
    record.captured =
        mutation_ == Mutation::one_stream_fence ? first_busy_part(captured, completed_) : captured;
    record.time = time;
    record.references = 1;
    record.open = mutation_ == Mutation::recorded_late;
    ++references_;
    newest_ = last_;
    *fence = last_;
    checker_.recorded(*fence);
    return {};
}

const ModelDevice::Record* ModelDevice::record_of(Fence fence) const {
    const auto found = records_.find(fence);
    return found == records_.end() ? nullptr : &found->second;
}

bool ModelDevice::part_is_complete(const Record& record) const {
    for (std::size_t i = 0; i < max_streams; ++i) {
        if (record.captured[i] != 0 && completed_[i] >= record.captured[i]) {
            return true;
        }
    }
    return false;
}

allocator::FenceState ModelDevice::fence_query(Fence fence) {
    const Record* record = record_of(fence);
    if (record == nullptr) {
        checker_.broken("a fence was looked at that is not held");
        return FenceState::failed;
    }
    if (knowledge_ == Knowledge::clock && clock_.idle_since(record->time)) {
        return FenceState::complete;
    }
    bool done = record->open ? completed_ == submitted_ : complete(*record);
    if (mutation_ == Mutation::any_stream_completes) {
        done = done || part_is_complete(*record);
    }
    if (mutation_ == Mutation::out_of_order && fence != newest_) {
        done = done || records_.count(newest_) != 0;
    }
    if (!done) {
        return FenceState::pending;
    }
    clock_.completed(record->time);
    return FenceState::complete;
}

BackendStatus ModelDevice::fence_wait_device(Fence fence) {
    const Record* record = record_of(fence);
    if (record == nullptr) {
        checker_.broken("the device was to wait for a fence that is not held");
        return failure;
    }
    if (failed(Failing::wait_device)) {
        return failure;
    }
    if (capturing_) {
        if (mutation_ != Mutation::fence_in_capture) {
            return refused_in_capture;
        }
        checker_.broken("a device wait fell into a capture");
    }
    close_late_records();
    if (mutation_ == Mutation::wait_orders_one_stream) {
        raise(barrier_, first_busy_part(record->captured, completed_));
    } else if (mutation_ != Mutation::wait_orders_nothing) {
        raise(barrier_, record->captured);
    }
    return {};
}

BackendStatus ModelDevice::fence_wait_host(Fence fence) {
    if (failed(Failing::wait_host)) {
        return failure;
    }
    close_late_records();
    if (mutation_ == Mutation::host_waits_for_nothing) {
        return {};
    }
    const Record* record = record_of(fence);
    if (record == nullptr) {
        checker_.broken("the host was to wait for a fence that is not held");
        return failure;
    }
    if (!complete(*record)) {
        checker_.wait_on_host(fence);
        record = record_of(fence);
    }
    if (record == nullptr || !complete(*record)) {
        checker_.broken("a fence that the host waits for was released");
        return failure;
    }
    clock_.completed(record->time);
    return {};
}

void ModelDevice::fence_release(Fence fence) {
    const auto found = records_.find(fence);
    if (found == records_.end()) {
        checker_.broken("a fence was released that is not held");
        return;
    }
    if (mutation_ == Mutation::release_forgotten) {
        return;
    }
    if (mutation_ == Mutation::released_is_complete) {
        clock_.completed(found->second.time);
    }
    --references_;
    if (--found->second.references == 0) {
        records_.erase(found);
        if (mutation_ == Mutation::released_twice) {
            fence_release(fence);
        }
    }
}

// --- one stream ---

std::size_t ModelDevice::handle_of(std::size_t stream) const {
    const std::size_t handle = handles_[stream];
    return mutation_ == Mutation::streams_confused && handle == 1 ? 0 : handle;
}

bool ModelDevice::ordered_behind(Fence fence) {
    const Record* record = record_of(fence);
    if (record == nullptr) {
        checker_.broken("a fence counts as ordered that is not held");
        return false;
    }
    if (streams_ != Streams::one && streams_ != Streams::gone) {
        return false;
    }
    if (mutation_ == Mutation::older_fence_ordered || covers(record->captured, ordered_)) {
        ordered_ = record->captured;
    }
    return true;
}

bool ModelDevice::look_at(std::size_t stream) {
    if (mutation_ == Mutation::one_stream_unseen && stream == 0) {
        return false;
    }
    if (streams_ == Streams::none) {
        streams_ = Streams::one;
        known_ = handle_of(stream);
    }
    if (streams_ == Streams::many || is_known(stream)) {
        return false;
    }
    if (mutation_ == Mutation::second_told_early) {
        streams_ = Streams::many;
    } else if (mutation_ != Mutation::second_told_late) {
        streams_ = Streams::ordering;
    }
    return true;
}

void ModelDevice::order_second() {
    if (capturing_) {
        checker_.broken("a device wait fell into a capture");
    }
    if (mutation_ == Mutation::second_orders_everything) {
        raise(barrier_, submitted_);
    } else if (mutation_ != Mutation::second_orders_nothing) {
        raise(barrier_, ordered_);
    }
}

void ModelDevice::tell_second() {
    streams_ = Streams::many;
}

void ModelDevice::give_up_one_stream() {
    if (streams_ != Streams::many) {
        order_second();
        tell_second();
    }
}

void ModelDevice::replace(std::size_t stream, std::size_t next) {
    if (is_known(stream) && mutation_ != Mutation::destroyed_stays_known) {
        streams_ = Streams::gone;
    }
    gone_[stream] = true;
    handles_[next] = handles_[stream];
}

void ModelDevice::submit(std::size_t stream, Address begin, Address end, std::uint64_t owner) {
    items_[stream].push_back({begin, end, owner, barrier_});
    ++submitted_[stream];
}

void ModelDevice::begin(std::size_t stream) {
    if (mutation_ != Mutation::unseen_stream || stream != 0) {
        clock_.begin();
    }
}

void ModelDevice::tick(std::size_t stream) {
    if (mutation_ != Mutation::unseen_stream || stream != 0) {
        clock_.tick();
    }
}

bool ModelDevice::can_finish(std::size_t stream) const {
    return !items_[stream].empty() && covers(completed_, items_[stream].front().after);
}

void ModelDevice::finish(std::size_t stream) {
    items_[stream].erase(items_[stream].begin());
    ++completed_[stream];
}

void ModelDevice::finish_up_to(const Counts& target) {
    for (std::size_t stream = 0; stream < max_streams; ++stream) {
        while (completed_[stream] < target[stream]) {
            // By value: finishing other streams' work does not touch this item, but be plain.
            const Counts after = items_[stream].front().after;
            if (!covers(completed_, after)) {
                finish_up_to(after);
            }
            finish(stream);
        }
    }
}

}  // namespace memlab::model_check
