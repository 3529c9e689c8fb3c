#include "interpose/moving/staying.hpp"

#include <algorithm>
#include <map>
#include <new>
#include <tuple>

#include "interpose/memory/oom_report.hpp"
#include "interpose/moving/program_handles.hpp"
#include "model/oom_explanation.hpp"
#include "model/size_text.hpp"
#include "trace/event.hpp"

namespace memlab::interpose {
namespace {

constexpr std::size_t places_of_kind = 3;

std::uint64_t positive(std::int64_t value) {
    return static_cast<std::uint64_t>(std::max<std::int64_t>(value, 0));
}

/// The pool's segments that are not mapped memory.
void add_segments(Memory& memory, CUdevice device, std::vector<StayingMemory>& staying) {
    for (Context* const context : memory.contexts().all(device)) {
        const std::uint64_t kept =
            std::max(context->backend().pages().mapped_bytes(), context->unused_bytes());
        const std::uint64_t reserved = positive(context->pool().stats().reserved_bytes.all.current);
        if (reserved > kept) {
            StayingMemory segments;
            segments.kind = "segment";
            segments.device = static_cast<std::uint32_t>(context->device());
            segments.bytes = reserved - kept;
            segments.count = 1;
            staying.push_back(std::move(segments));
        }
    }
}

void add_of_driver(Memory& memory, CUdevice device, std::vector<StayingMemory>& staying) {
    struct Sum {
        std::uint64_t bytes = 0;
        std::uint64_t count = 0;
    };
    std::map<std::tuple<trace::MemoryKind, std::uint32_t, std::uint32_t>, Sum> sums;
    const std::set<std::uint64_t> moves = program_handles().movable_numbers(device);
    memory.live().for_each(
        [&](HandleClass handles, std::uint64_t address, const LiveAllocation& each) {
            if (handles == HandleClass::vmm_allocation && moves.contains(address)) {
                return;
            }
            if (trace::counts_as_device_memory(each.kind) &&
                (device < 0 || each.device == static_cast<std::uint32_t>(device))) {
                Sum& sum = sums[{each.kind, each.device, each.stack}];
                sum.bytes += each.requested;
                ++sum.count;
            }
        });
    for (const auto& [key, sum] : sums) {
        if (sum.bytes != 0) {
            const auto& [kind, on, stack] = key;
            staying.push_back({trace::name_of(kind), on, stack, sum.bytes, sum.count, {}});
        }
    }
}

void name_places(Memory& memory, std::size_t named, std::uint64_t deadline_ns,
                 std::vector<StayingMemory>& staying) {
    named = std::min(named, staying.size());
    if (memory.recorder() == nullptr || named == 0) {
        return;
    }
    std::vector<model::OomHolder> sites(named);
    bool no_memory = false;
    memory.recorder()->with_frozen_aggregate(deadline_ns, [&](const trace::Aggregator& aggregate) {
        try {
            for (std::size_t i = 0; i < named; ++i) {
                if (staying[i].stack != 0) {
                    sites[i].frames = model::holder_frames(aggregate, staying[i].stack);
                }
            }
        } catch (const std::bad_alloc&) {
            no_memory = true;
        }
    });
    if (no_memory) {
        throw std::bad_alloc();
    }
    for (std::size_t i = 0; i < named; ++i) {
        staying[i].place = place_text(sites[i]);
    }
}

}  // namespace

std::vector<StayingMemory> staying_memory(Memory& memory, CUdevice device, std::size_t named,
                                          std::uint64_t deadline_ns) {
    std::vector<StayingMemory> staying;
    add_segments(memory, device, staying);
    add_of_driver(memory, device, staying);
    std::stable_sort(
        staying.begin(), staying.end(),
        [](const StayingMemory& a, const StayingMemory& b) { return a.bytes > b.bytes; });
    name_places(memory, named, deadline_ns, staying);
    return staying;
}

std::string staying_text(const std::vector<StayingMemory>& staying) {
    struct Kind {
        std::string name;
        std::uint64_t bytes = 0;
        std::vector<const StayingMemory*> places;
        std::uint64_t other_bytes = 0;
        std::uint64_t other_places = 0;
    };
    std::vector<Kind> kinds;
    for (const StayingMemory& each : staying) {
        auto kind = std::find_if(kinds.begin(), kinds.end(),
                                 [&](const Kind& known) { return known.name == each.kind; });
        if (kind == kinds.end()) {
            kind = kinds.emplace(kinds.end());
            kind->name = each.kind;
        }
        kind->bytes += each.bytes;
        if (!each.place.empty() && kind->places.size() < places_of_kind) {
            kind->places.push_back(&each);
        } else {
            kind->other_bytes += each.bytes;
            ++kind->other_places;
        }
    }
    std::string text;
    for (const Kind& kind : kinds) {
        text += (text.empty() ? "" : ", ") + kind.name + " " + model::size_text(kind.bytes);
        std::string places;
        for (const StayingMemory* const each : kind.places) {
            places += (places.empty() ? "" : ", ") + model::size_text(each->bytes) + " from " +
                      each->place;
        }
        if (!places.empty() && kind.other_places != 0) {
            places += ", " + model::size_text(kind.other_bytes) + " from " +
                      model::count_text(kind.other_places, "other place");
        }
        text += places.empty() ? "" : " (" + places + ")";
    }
    return text;
}

}  // namespace memlab::interpose
