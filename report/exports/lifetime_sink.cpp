#include "report/exports/lifetime_sink.hpp"

#include <algorithm>
#include <tuple>

#include "report/reading/read_ahead.hpp"

namespace memlab::report::exports {

void LifetimeSink::Observer::allocated(std::uint32_t slot, const trace::Live& live,
                                       const trace::Event& by) {
    if (slot >= to_.streams_.size()) {
        to_.streams_.resize(std::max<std::size_t>(slot + std::size_t{1}, 2 * to_.streams_.size()));
    }
    to_.streams_[slot] = by.stream;
    to_.allocated(to_.describe(slot, live));
}

void LifetimeSink::Observer::freed(std::uint32_t slot, const trace::Live& live,
                                   const trace::LifeEnd& end) {
    if (to_.is_told(live)) {
        to_.freed(to_.describe(slot, live), end.event);
    }
}

void LifetimeSink::Observer::ended(std::uint32_t slot, const trace::Live& live,
                                   const trace::LifeEnd& end) {
    if (to_.is_told(live)) {
        to_.completed(to_.describe(slot, live), end.event);
    }
}

void LifetimeSink::Observer::interrupted() {
    for (const Allocation& allocation : to_.live()) {
        if (!allocation.pending) {
            to_.freed(allocation, nullptr);
        }
        to_.completed(allocation, nullptr);
    }
    for (const auto& device : to_.figures_.devices()) {
        if (device != nullptr) {
            for (const trace::PoolLayout::Range& range : device->pool.segments()) {
                to_.segment_removed(device->info.index, range);
            }
        }
    }
    to_.interrupted();
}

bool LifetimeSink::reach(std::uint64_t time_ns) {
    const std::uint64_t time = std::max(now_, time_ns);
    if (!entered_ && time >= stretch_.from_ns) {
        entered_ = true;
        now_ = stretch_.from_ns;
        entered();
    }
    over_ = over_ || time > stretch_.until_ns;
    now_ = over_ ? stretch_.until_ns : time;
    return !over_;
}

void LifetimeSink::finish() {
    if (!entered_) {
        entered_ = true;
        now_ = stretch_.from_ns;
        entered();
    }
}

Allocation LifetimeSink::describe(std::uint32_t slot, const trace::Live& live) const {
    const trace::Site& site = figures_.sites()[live.site];
    trace::Event event;
    event.kind = site.kind;
    event.origin = live.origin;
    event.device = site.device;
    event.context = live.context;
    event.thread = live.thread;
    event.api = site.api;
    event.stack = site.stack;
    // What labels say may come later: a free is to be that of what was allocated.
    const std::uint32_t code = figures_.nn_modules().code_of(live.nn_modules);
    event.nn_modules = (code & trace::NnModuleHolder::of_labels) == 0 ? code : 0;
    event.time_ns = live.time_ns;
    event.stream = streams_[slot];
    event.address = live.address;
    event.requested = live.requested;
    event.size = live.size;
    return {.number = live.serial,
            .event = event,
            .size = live.size,
            .pooled = live.origin == trace::Origin::pool,
            .pending = live.pending};
}

std::vector<Allocation> LifetimeSink::live() const {
    std::vector<Allocation> all;
    figures_.live().for_each([&](std::uint32_t slot, const trace::Live& live) {
        if (is_told(live)) {
            all.push_back(describe(slot, live));
        }
    });
    const auto place = [](const Allocation& allocation) {
        return std::tuple(trace::address_space(allocation.event), allocation.event.address);
    };
    std::sort(all.begin(), all.end(),
              [&](const Allocation& a, const Allocation& b) { return place(a) < place(b); });
    return all;
}

std::string describe_missing(const trace::LogReadResult& read, trace::LogPart part,
                             const Stretch& stretch) {
    const bool beginning = part == trace::LogPart::beginning;
    const bool concerned = !read.gap || (stretch.until_ns > read.gap->from_ns &&
                                         (beginning || stretch.from_ns < read.gap->to_ns));
    return concerned ? report::describe_stretch(read, part) : std::string();
}

}  // namespace memlab::report::exports
