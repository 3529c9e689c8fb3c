// The exported functions behind memlab.h.
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "interpose/driver/diagnostics.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/include/memlab/memlab.h"
#include "interpose/memory/suballocations.hpp"
#include "interpose/process/annotations.hpp"
#include "model/interval_document.hpp"

namespace mi = memlab::interpose;
using memlab::profiler::AnnotationName;
using memlab::profiler::AnnotationNames;

namespace {

bool write_snapshot(mi::Session& session, std::string_view name) {
    constexpr std::uint64_t forever = ~std::uint64_t{0} >> 2;
    if (session.report_path().empty() && name.find('/') == std::string_view::npos) {
        return false;
    }
    try {
        const std::string problem =
            session.write_snapshot(name.empty() ? "snapshot" : name, forever);
        if (!problem.empty()) {
            mi::warn(problem);
        }
        return problem.empty();
    } catch (const std::bad_alloc&) {
        return false;
    }
}

void fill(memlab_device_stats& stats, const memlab::trace::DeviceTotals& device) {
    using memlab::trace::CurveName;
    const auto& requested = device.curve(CurveName::requested);
    const auto& allocated = device.curve(CurveName::allocated);
    const auto& active = device.curve(CurveName::active);
    const auto& reserved = device.curve(CurveName::reserved);
    stats.requested_bytes = requested.current;
    stats.allocated_bytes = allocated.current;
    stats.active_bytes = active.current;
    stats.reserved_bytes = reserved.current;
    stats.requested_peak_bytes = requested.peak;
    stats.allocated_peak_bytes = allocated.peak;
    stats.active_peak_bytes = active.peak;
    stats.reserved_peak_bytes = reserved.peak;
    for (std::size_t kind = 0; kind < device.kinds.size(); ++kind) {
        if (memlab::trace::counts_as_device_memory(static_cast<memlab::trace::MemoryKind>(kind))) {
            stats.allocation_count += device.kinds[kind].count;
            stats.live_count += device.kinds[kind].live_count;
        }
    }
    stats.oom_count = device.pool.stats.num_ooms;
}

/// Runs `use(intervals, aggregate)` while recording goes on, unless it has ended. Without host
/// memory it ends early.
template <class Use>
void with_aggregate_now(const Use& use) {
    mi::in_session([&](mi::Session& session) {
        if (session.recorder() == nullptr) {
            return false;
        }
        constexpr std::uint64_t forever = ~std::uint64_t{0};
        auto guarded = [&](memlab::trace::Intervals& intervals,
                           const memlab::trace::Aggregator& aggregate) {
            try {
                use(intervals, aggregate);
            } catch (const std::bad_alloc&) {  // as if there were no figures
            }
        };
        try {
            return session.recorder()->with_intervals(forever, guarded);
        } catch (const std::bad_alloc&) {  // the recording has ended
            return false;
        }
    });
}

/// The length of the JSON, which is in `json` if that is less than `size`; 0: there is none.
size_t write_document(const memlab::trace::Aggregator& aggregate,
                      const std::optional<memlab::trace::IntervalTotals>& totals, char* json,
                      size_t size) {
    return totals
               ? mi::copy_text(
                     memlab::model::to_json(memlab::model::interval_document(aggregate, *totals)),
                     json, size)
               : 0;
}

}  // namespace

MEMLAB_EXPORT void memlab_api_scope_begin(const char* name) {
    mi::begin_scope(AnnotationNames::own_domain, mi::own_annotation_name(name));
}

MEMLAB_EXPORT void memlab_api_scope_end(void) {
    mi::end_scope(AnnotationNames::own_domain);
}

MEMLAB_EXPORT void memlab_api_mark(const char* name) {
    mi::add_mark(mi::own_annotation_name(name));
}

MEMLAB_EXPORT int memlab_api_label(const void* pointer, const char* name) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    return address != 0 && mi::label_memory(address, false, mi::label_name(name)) ? 0 : -1;
}

MEMLAB_EXPORT int memlab_api_label_detail(const void* pointer, const char* name,
                                          const char* detail) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    return address != 0 &&
                   mi::label_memory(address, false, mi::label_name(name), mi::label_detail(detail))
               ? 0
               : -1;
}

MEMLAB_EXPORT int memlab_api_suballoc(const char* allocator, const void* pointer, size_t bytes) {
    const bool recorded = mi::in_session([&](mi::Session& session) {
        const AnnotationName* const name = mi::own_annotation_name(allocator);
        return name != nullptr &&
               mi::record_suballocation_by(session, name->text,
                                           reinterpret_cast<std::uintptr_t>(pointer), bytes);
    });
    return recorded ? 0 : -1;
}

MEMLAB_EXPORT int memlab_api_subfree(const char* allocator, const void* pointer) {
    const bool recorded = mi::in_session([&](mi::Session& session) {
        const AnnotationName* const name = mi::own_annotation_name(allocator);
        return name != nullptr &&
               mi::record_suballocation_freed_by(session, name->text,
                                                 reinterpret_cast<std::uintptr_t>(pointer));
    });
    return recorded ? 0 : -1;
}

MEMLAB_EXPORT int memlab_api_nn_module(const void* nn_module, const char* name,
                                       const char* class_name) {
    const bool recorded = mi::in_session([&](mi::Session& session) {
        memlab::profiler::Recorder* const recorder = session.recorder();
        if (recorder == nullptr || nn_module == nullptr || name == nullptr) {
            return false;
        }
        recorder->name_nn_module(reinterpret_cast<std::uintptr_t>(nn_module), name,
                                 class_name == nullptr ? "" : class_name);
        return true;
    });
    return recorded ? 0 : -1;
}

MEMLAB_EXPORT int memlab_api_nn_module_end(const void* nn_module) {
    const bool recorded = mi::in_session([&](mi::Session& session) {
        memlab::profiler::Recorder* const recorder = session.recorder();
        if (recorder != nullptr) {
            recorder->end_nn_module(reinterpret_cast<std::uintptr_t>(nn_module));
        }
        return recorder != nullptr;
    });
    return recorded ? 0 : -1;
}

MEMLAB_EXPORT size_t memlab_api_nn_modules_unnamed(const void** nn_modules, size_t count) {
    std::size_t taken = 0;
    mi::in_session([&](mi::Session& session) {
        if (session.recorder() != nullptr && nn_modules != nullptr) {
            static_assert(sizeof(std::uintptr_t) == sizeof(const void*));
            taken = session.recorder()->take_unnamed_nn_modules(
                {reinterpret_cast<std::uintptr_t*>(nn_modules), count});
        }
        return true;
    });
    return taken;
}

MEMLAB_EXPORT void memlab_api_nn_modules_tell(memlab_add_pending_call add,
                                              memlab_pending_call call) {
    memlab::profiler::Recorder::tell_of_unnamed_nn_modules(add, call);
}

MEMLAB_EXPORT uint64_t memlab_api_empty_cache(void) {
    uint64_t released = 0;
    const mi::OtherPassage passage;
    mi::in_session([&](mi::Session& session) {
        released = passage.refused() ? 0
                   : session.captures().capturing()
                       ? 0
                       : session.contexts().release_cached(-1, nullptr);
        return true;
    });
    return released;
}

MEMLAB_EXPORT int memlab_api_yield(char* problem, size_t size) {
    const bool done = mi::in_session([&](mi::Session& session) {
        mi::YieldOrder order;
        order.timeout_ns = session.settings().yield_timeout_ns;
        order.comes_back = true;
        mi::MoveOutcome outcome;
        if (session.mover() != nullptr) {
            session.mover()->yield(order, &outcome);
        } else {
            outcome.problem = "it was started without MEMLAB_YIELD=on";
        }
        if (outcome.problem.empty()) {
            return true;
        }
        if (problem == nullptr || size == 0) {
            mi::warn("this process did not step aside: " + outcome.problem);
        } else {
            problem[outcome.problem.copy(problem, size - 1)] = '\0';
        }
        return false;
    });
    return done ? 0 : -1;
}

MEMLAB_EXPORT int memlab_api_restore(void) {
    const bool done = mi::in_session([](mi::Session& session) {
        mi::MoveOutcome outcome;
        if (session.mover() == nullptr) {
            return false;
        }
        session.mover()->restore(&outcome);
        return outcome.problem.empty();
    });
    return done ? 0 : -1;
}

MEMLAB_EXPORT int memlab_api_snapshot(const char* name) {
    const bool written = mi::in_session([&](mi::Session& session) {
        return session.recorder() != nullptr &&
               write_snapshot(session, name == nullptr ? "" : name);
    });
    return written ? 0 : -1;
}

MEMLAB_EXPORT uint64_t memlab_api_interval_begin(void) {
    return mi::begin_interval({});
}

MEMLAB_EXPORT uint64_t memlab_api_interval_begin_of(int gpu, const char* kind) {
    memlab::trace::IntervalFilter filter;
    if (gpu >= 0) {
        filter.gpu = static_cast<std::uint32_t>(gpu);
    }
    for (const auto each :
         {memlab::trace::MemoryKind::managed, memlab::trace::MemoryKind::pinned}) {
        if (kind != nullptr && std::strcmp(kind, memlab::trace::name_of(each)) == 0) {
            filter.kind = each;
        }
    }
    return kind != nullptr && !filter.kind ? 0 : mi::begin_interval(filter);
}

MEMLAB_EXPORT uint64_t memlab_api_moment(void) {
    std::uint64_t moment = 0;
    with_aggregate_now(
        [&](const memlab::trace::Intervals&, const memlab::trace::Aggregator& aggregate) {
            moment = aggregate.latest_serial();
        });
    return moment;
}

MEMLAB_EXPORT size_t memlab_api_interval_end(uint64_t interval, size_t max_sites, char* json,
                                             size_t size) {
    return mi::end_interval(interval, max_sites, json, size);
}

MEMLAB_EXPORT size_t memlab_api_cache_stats(int gpu, uint64_t* values, size_t count) {
    size_t known = 0;
    with_aggregate_now([&](memlab::trace::Intervals& intervals, const memlab::trace::Aggregator&) {
        known = intervals.take_cache_stats(gpu, {values, count});
    });
    return known;
}

MEMLAB_EXPORT size_t memlab_api_cache_holders(int gpu, const uint64_t* known, size_t count,
                                              size_t max_sites, char* json, size_t size) {
    size_t length = 0;
    with_aggregate_now(
        [&](const memlab::trace::Intervals& intervals, const memlab::trace::Aggregator& aggregate) {
            length = write_document(
                aggregate, intervals.held_by_cache(gpu, {known, count}, max_sites), json, size);
        });
    return length;
}

MEMLAB_EXPORT size_t memlab_api_made_between(const uint64_t* moments, size_t count,
                                             size_t max_sites, char* json, size_t size) {
    size_t length = 0;
    with_aggregate_now(
        [&](const memlab::trace::Intervals& intervals, const memlab::trace::Aggregator& aggregate) {
            length = write_document(aggregate, intervals.made_between({moments, count}, max_sites),
                                    json, size);
        });
    return length;
}

MEMLAB_EXPORT size_t memlab_api_recording(char* path, size_t size) {
    size_t length = 0;
    mi::in_session([&](mi::Session& session) {
        length = mi::copy_text(session.report_path(), path, size);
        return true;
    });
    return length;
}

MEMLAB_EXPORT int memlab_api_stats(int device, void* stats, size_t size) {
    const bool known = mi::in_session([&](mi::Session& session) {
        if (session.recorder() == nullptr) {
            return false;
        }
        if (device < 0) {
            const mi::Context* current = session.contexts().current();
            device = current == nullptr ? -1 : current->device();
        }
        memlab_device_stats filled{};
        session.recorder()->with_aggregate([&](const memlab::trace::Aggregator& aggregate) {
            const auto index = static_cast<std::size_t>(device);
            if (device >= 0 && index < aggregate.devices().size() &&
                aggregate.devices()[index] != nullptr) {
                filled.size = std::min(size, sizeof(filled));
                fill(filled, *aggregate.devices()[index]);
            }
        });
        std::memcpy(stats, &filled, std::min(size, sizeof(filled)));
        return filled.size != 0;
    });
    return known ? 0 : -1;
}
