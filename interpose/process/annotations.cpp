#include "interpose/process/annotations.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "interpose/driver/loader.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/process/session.hpp"
#include "model/interval_document.hpp"
#include "profiler/loaded_modules.hpp"
#include "profiler/thread_id.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {
namespace {

using profiler::AnnotationName;
using profiler::AnnotationNames;

struct NameTables {
    AnnotationNames annotations;
    AnnotationNames labels{AnnotationNames::labels};
    AnnotationNames details{AnnotationNames::details};
};
std::atomic<NameTables*> names{nullptr};
// Number of the recording: string ids cached for an earlier one (the parent's before a fork) are
// invalid.
std::atomic<std::uint32_t> recording{1};
std::atomic<std::uint64_t> last_range{0};
// A forked child goes on counting, so that no interval of its own has the number of an inherited
// one.
std::atomic<std::uint64_t> last_interval{0};

// Open scopes of the calling thread; the thread's end closes them.
__attribute__((tls_model("initial-exec"))) thread_local std::uint32_t open_scopes = 0;
pthread_key_t thread_end_key;
pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;
bool thread_end_known = false;

// Annotations from before the first use of CUDA that are still open. No heap.
constinit threads::Mutex early_lock;
struct EarlyNote {
    const AnnotationName* name;
    std::uint64_t range;  // 0: a scope of the thread
    std::uint32_t domain;
    std::uint32_t thread;
    bool mark;
};
constexpr std::size_t max_early_notes = 128;
EarlyNote early_notes[max_early_notes] MEMLAB_GUARDED_BY(early_lock);
std::size_t early_note_count MEMLAB_GUARDED_BY(early_lock) = 0;
struct EarlyThreadName {
    std::uint32_t thread;
    const AnnotationName* name;
};
EarlyThreadName early_thread_names[max_early_notes] MEMLAB_GUARDED_BY(early_lock);
std::size_t early_thread_name_count MEMLAB_GUARDED_BY(early_lock) = 0;
struct EarlyInterval {
    std::uint64_t id;
    trace::IntervalFilter filter;
};
EarlyInterval early_intervals[trace::Intervals::max_intervals] MEMLAB_GUARDED_BY(early_lock);
std::size_t early_interval_count MEMLAB_GUARDED_BY(early_lock) = 0;
bool early_notes_recorded MEMLAB_GUARDED_BY(early_lock) = false;

NameTables& all_names() {
    NameTables* known = names.load(std::memory_order_acquire);
    if (known == nullptr) {
        auto* mine = new NameTables;
        if (names.compare_exchange_strong(known, mine, std::memory_order_acq_rel)) {
            return *mine;
        }
        delete mine;
    }
    return *known;
}

std::uint32_t recorded_id(const AnnotationName& name, profiler::Recorder& recorder) {
    const std::uint32_t now = recording.load(std::memory_order_relaxed);
    const std::uint64_t known = name.recorded.load(std::memory_order_relaxed);
    if (known >> 32 == now) {
        return static_cast<std::uint32_t>(known);
    }
    const std::uint32_t id = recorder.string_id(name.text);
    name.recorded.store((std::uint64_t{now} << 32) | id, std::memory_order_relaxed);
    return id;
}

trace::Event make_event(trace::EventType type, std::uint32_t domain, std::uint64_t range) {
    trace::Event event;
    event.type = type;
    event.requested = event.size = domain;
    event.address = range;
    return event;
}

/// Never null. Out of host memory one name stands for all.
const AnnotationName* find_name(AnnotationNames NameTables::*table, std::uint32_t domain,
                                std::string_view text) {
    try {
        return (all_names().*table).find(domain, text);
    } catch (const std::bad_alloc&) {
        static AnnotationName& any = *new (std::nothrow) AnnotationName;
        return &any;
    }
}

/// No more of a text than is needed: truncate_utf8() needs one byte more to find a character
/// boundary.
std::string_view own_text(const char* text) {
    constexpr std::size_t max_length = AnnotationNames::max_bytes + 1;
    return text == nullptr ? "" : std::string_view(text, strnlen(text, max_length));
}

/// Runs `record(recorder)`, or `early()` while CUDA has not been used.
template <class Record, class Early>
void record_or_defer(const Record& record, const Early& early) {
    const InsideMemlab inside;
    if (inside.nested()) {
        return;
    }
    Session* session = Session::current_or_late(false);
    if (session == nullptr && Session::may_start()) {
        {
            const threads::LockGuard lock(early_lock);
            if (!early_notes_recorded) {
                early();
                return;
            }
        }
        session = Session::wait_for_start();  // it is starting now
    }
    if (session != nullptr && session->recorder() != nullptr) {
        record(*session->recorder());
    }
}

void add_early(const EarlyNote& note) MEMLAB_REQUIRES(early_lock) {
    if (early_note_count < max_early_notes) {
        early_notes[early_note_count++] = note;
    }
}

void remove_early(std::uint64_t range, std::uint32_t domain) MEMLAB_REQUIRES(early_lock) {
    const std::uint32_t thread = profiler::thread_id();
    for (std::size_t i = early_note_count; i-- > 0;) {
        const EarlyNote& note = early_notes[i];
        const bool same = range != 0
                              ? note.range == range
                              : note.range == 0 && note.thread == thread && note.domain == domain;
        if (!note.mark && same) {
            for (--early_note_count; i < early_note_count; ++i) {
                early_notes[i] = early_notes[i + 1];
            }
            return;
        }
    }
}

void at_thread_end(void*) {
    if (open_scopes == 0) {
        return;
    }
    open_scopes = 0;
    record_or_defer(
        [](profiler::Recorder& recorder) {
            trace::Event event = make_event(trace::EventType::scope_end, 0, 0);
            event.stream = trace::ended_with_thread;
            recorder.record(event);
        },
        [] {
            early_lock.assert_held();
            const std::uint32_t thread = profiler::thread_id();
            std::size_t kept = 0;
            for (std::size_t i = 0; i < early_note_count; ++i) {
                if (early_notes[i].mark || early_notes[i].range != 0 ||
                    early_notes[i].thread != thread) {
                    early_notes[kept++] = early_notes[i];
                }
            }
            early_note_count = kept;
        });
}

void register_thread_end() {
    pthread_once(&thread_end_once, [] {
        thread_end_known = pthread_key_create(&thread_end_key, at_thread_end) == 0;
    });
    if (thread_end_known) {
        static const char present = 0;
        pthread_setspecific(thread_end_key, &present);
    }
}

void begin(std::uint32_t domain, std::uint64_t range, const AnnotationName* name) {
    record_or_defer(
        [&](profiler::Recorder& recorder) {
            trace::Event event = make_event(trace::EventType::scope_begin, domain, range);
            event.name = recorded_id(*name, recorder);
            recorder.record(event);
        },
        [&] {
            early_lock.assert_held();
            add_early({name, range, domain, profiler::thread_id(), false});
        });
}

void end(std::uint32_t domain, std::uint64_t range) {
    record_or_defer(
        [&](profiler::Recorder& recorder) {
            recorder.record(make_event(trace::EventType::scope_end, domain, range));
        },
        [&] {
            early_lock.assert_held();
            remove_early(range, domain);
        });
}

/// Runs `use(intervals, aggregate)` unless the recording has ended. Without host memory it ends
/// early.
template <class Use>
void with_intervals(profiler::Recorder& recorder, const Use& use) {
    constexpr std::uint64_t forever = ~std::uint64_t{0};
    auto guarded = [&](trace::Intervals& intervals, const trace::Aggregator& aggregate) {
        try {
            use(intervals, aggregate);
        } catch (const std::bad_alloc&) {  // as if there were no such interval
        }
    };
    try {
        recorder.with_intervals(forever, guarded);
    } catch (const std::bad_alloc&) {  // the recording has ended
    }
}

bool begin_recorded(profiler::Recorder& recorder, const EarlyInterval& interval) {
    bool begun = false;
    with_intervals(recorder, [&](trace::Intervals& intervals, const trace::Aggregator&) {
        begun = intervals.begin(interval.id, interval.filter);
    });
    return begun;
}

/// The driver-served allocation that contains `address`, or 0.
std::uint64_t driver_allocation(Session& session, std::uint64_t address, bool base_only) {
    if (session.live().find(HandleClass::memory, address)) {
        return address;
    }
    if (base_only) {
        return 0;
    }
    const DriverRange range = find_driver_range(session, address);
    return range.live ? range.begin : 0;
}

}  // namespace

const AnnotationName* annotation_name(std::uint32_t domain, std::string_view text) noexcept {
    return find_name(&NameTables::annotations, domain, text);
}

const AnnotationName* own_annotation_name(const char* text) noexcept {
    return annotation_name(AnnotationNames::own_domain, own_text(text));
}

const AnnotationName* label_name(const char* text) noexcept {
    return find_name(&NameTables::labels, AnnotationNames::own_domain, own_text(text));
}

const AnnotationName* label_detail(const char* text) noexcept {
    const std::string_view given = own_text(text);
    if (given.empty() || given.size() > AnnotationNames::max_bytes) {
        return nullptr;
    }
    const AnnotationName* const detail =
        find_name(&NameTables::details, AnnotationNames::own_domain, given);
    return detail->message == given ? detail : nullptr;
}

std::uint32_t register_domain(std::string_view name) noexcept {
    try {
        return all_names().annotations.domain(name);
    } catch (const std::bad_alloc&) {
        return AnnotationNames::nvtx_domain;
    }
}

void begin_scope(std::uint32_t domain, const AnnotationName* name) noexcept {
    if (open_scopes++ == 0) {
        register_thread_end();
    }
    begin(domain, 0, name);
}

void end_scope(std::uint32_t domain) noexcept {
    open_scopes -= open_scopes == 0 ? 0 : 1;
    end(domain, 0);
}

std::uint64_t begin_range(const AnnotationName* name) noexcept {
    const std::uint64_t range = last_range.fetch_add(1, std::memory_order_relaxed) + 1;
    begin(name->domain, range, name);
    return range;
}

void end_range(std::uint64_t range) noexcept {
    if (range != 0) {
        end(0, range);
    }
}

void add_mark(const AnnotationName* name) noexcept {
    record_or_defer(
        [&](profiler::Recorder& recorder) {
            trace::Event event;
            event.type = trace::EventType::mark;
            event.name = recorded_id(*name, recorder);
            event.stack = recorder.capture_call_site();
            recorder.record(event);
        },
        [&] {
            early_lock.assert_held();
            add_early({name, 0, 0, profiler::thread_id(), true});
        });
}

void name_thread(std::uint32_t thread, const AnnotationName* name) noexcept {
    record_or_defer([&](profiler::Recorder& recorder) { recorder.name_thread(thread, name->text); },
                    [&] {
                        early_lock.assert_held();
                        EarlyThreadName* const end = early_thread_names + early_thread_name_count;
                        EarlyThreadName* const known = std::find_if(
                            early_thread_names, end, [thread](const EarlyThreadName& early) {
                                return early.thread == thread;
                            });
                        if (known < early_thread_names + max_early_notes) {
                            *known = {thread, name};
                            early_thread_name_count += known == end ? 1 : 0;
                        }
                    });
}

std::uint64_t begin_interval(const trace::IntervalFilter& filter) noexcept {
    const std::uint64_t id = last_interval.fetch_add(1, std::memory_order_relaxed) + 1;
    bool begun = false;
    record_or_defer(
        [&](profiler::Recorder& recorder) {
            begun = begin_recorded(recorder, {id, filter});
        },
        [&] {
            early_lock.assert_held();
            begun = early_interval_count < trace::Intervals::max_intervals;
            if (begun) {
                early_intervals[early_interval_count++] = {id, filter};
            }
        });
    return begun ? id : 0;
}

std::size_t copy_text(std::string_view text, char* to, std::size_t size) noexcept {
    if (text.size() < size) {
        std::memcpy(to, text.data(), text.size());
        to[text.size()] = '\0';
    }
    return text.size();
}

std::size_t end_interval(std::uint64_t interval, std::size_t max_sites, char* json,
                         std::size_t size) noexcept {
    std::size_t length = 0;
    const auto write = [&](const model::IntervalDocument& document) {
        length = copy_text(model::to_json(document), json, size);
        return length < size;
    };
    record_or_defer(
        [&](profiler::Recorder& recorder) {
            with_intervals(
                recorder, [&](trace::Intervals& intervals, const trace::Aggregator& aggregate) {
                    const trace::IntervalTotals* const totals = intervals.end(interval, max_sites);
                    if (totals == nullptr || write(model::interval_document(aggregate, *totals))) {
                        intervals.forget(interval);
                    }
                });
        },
        [&] {
            early_lock.assert_held();
            EarlyInterval* const end = early_intervals + early_interval_count;
            EarlyInterval* const found = std::find_if(
                early_intervals, end,
                [interval](const EarlyInterval& early) { return early.id == interval; });
            try {
                if (found != end && write({})) {  // CUDA was not used in it
                    std::copy(found + 1, end, found);
                    --early_interval_count;
                }
            } catch (const std::bad_alloc&) {
                length = 0;
            }
        });
    return length;
}

bool label_memory(std::uint64_t address, bool base_only, const AnnotationName* name,
                  const AnnotationName* detail) noexcept {
    const InsideMemlab inside;
    Session* session = inside.nested() ? nullptr : Session::current_or_late(false);
    if (session == nullptr || session->recorder() == nullptr) {
        return false;
    }
    // Of a block of the program's allocator the start is not known here.
    const bool cut = session->suballocators().any() && session->suballocators().cuts(address);
    const std::optional<PooledBlock> pooled = cut ? std::nullopt : find_pooled(*session, address);
    const std::uint64_t base = cut             ? address
                               : !pooled       ? driver_allocation(*session, address, base_only)
                               : pooled->block ? pooled->block->address
                                               : 0;
    if (base == 0 || (base_only && base != address)) {
        return false;
    }
    trace::Event event = make_event(trace::EventType::label, 0, base);
    event.name = recorded_id(*name, *session->recorder());
    event.api = detail == nullptr ? 0 : recorded_id(*detail, *session->recorder());
    session->recorder()->record(event);
    return true;
}

void record_early_annotations(Session& session) {
    const threads::LockGuard lock(early_lock);
    early_notes_recorded = true;
    for (std::size_t i = 0; i < early_thread_name_count && session.recorder() != nullptr; ++i) {
        session.recorder()->name_thread(early_thread_names[i].thread,
                                        early_thread_names[i].name->text);
    }
    early_thread_name_count = 0;
    for (std::size_t i = 0; i < early_note_count && session.recorder() != nullptr; ++i) {
        const EarlyNote& early = early_notes[i];
        trace::Event event =
            make_event(early.mark ? trace::EventType::mark : trace::EventType::scope_begin,
                       early.domain, early.range);
        event.thread = early.thread;
        event.name = recorded_id(*early.name, *session.recorder());
        session.recorder()->record(event);
    }
    early_note_count = 0;
    for (std::size_t i = 0; i < early_interval_count && session.recorder() != nullptr; ++i) {
        begin_recorded(*session.recorder(), early_intervals[i]);
    }
    early_interval_count = 0;
}

bool is_preloaded() {
    void* const program = dlopen(nullptr, RTLD_LAZY | RTLD_NOLOAD);
    return program != nullptr && is_own_export(libc_dlsym()(program, "cuMemAlloc_v2"));
}

void report_other_nvtx_tool(Session& session) {
    const char* const tool = std::getenv("NVTX_INJECTION64_PATH");
    if (tool == nullptr || *tool == '\0' || session.recorder() == nullptr) {
        return;
    }
    profiler::LoadedModule self;
    struct stat theirs {};
    struct stat ours {};
    const bool same =
        profiler::find_loaded_module(reinterpret_cast<std::uintptr_t>(&names), &self) &&
        stat(tool, &theirs) == 0 && stat(self.path.c_str(), &ours) == 0 &&
        theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino;
    if (!same) {
        session.recorder()->report_limitation(
            "NVTX ranges and marks go to " + std::string(tool) +
                " (NVTX_INJECTION64_PATH) and are not in this report; memlab.h's are",
            0);
    }
}

void forget_annotations_after_fork() {
    early_lock.reset_after_fork();
    early_note_count = 0;
    early_thread_name_count = 0;
    early_interval_count = 0;
    early_notes_recorded = false;
    open_scopes = 0;
    names.store(nullptr, std::memory_order_relaxed);
    recording.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace memlab::interpose
