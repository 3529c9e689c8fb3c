// A recording in memory, and generators of random ones. Everything is a function of the seed: a
// failing test prints it, and the same seed gives the same records everywhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "trace/log_format.hpp"
#include "trace/log_writer.hpp"
#include "trace/record_codec.hpp"
#include "trace/record_sink.hpp"

namespace memlab::test {

using namespace memlab::trace;

using Records = std::vector<AnyRecord>;

/// A sink that stores all records.
class Recording final : public GenericSink<Recording> {
  public:
    void take(const LogStopped& record) { stopped = record; }
    void take(const auto& record) { records.emplace_back(record); }

    Records records;
    std::optional<LogStopped> stopped;  ///< only the writer makes this record
};

inline void feed(const AnyRecord& record, RecordSink& sink) {
    std::visit([&sink](const auto& each) { sink.on(each); }, record);
}

/// A free that completed immediately is passed by on_freed(), as the recorder does.
inline void feed(const Records& records, RecordSink& sink) {
    for (std::size_t i = 0; i < records.size(); ++i) {
        const auto* event = std::get_if<Event>(&records[i]);
        const auto* next = i + 1 < records.size() ? std::get_if<Event>(&records[i + 1]) : nullptr;
        if (event != nullptr && next != nullptr && event->type == EventType::free_requested &&
            *next == completed_at_once(*event)) {
            sink.on_freed(*event);
            ++i;
        } else {
            feed(records[i], sink);
        }
    }
}

/// The same to a log, where possible by on_short(); returns how many were.
inline std::size_t feed_short(const Records& records, LogWriter& log) {
    std::size_t shorts = 0;
    std::map<EventType, Event> last;
    const auto goes_on = [&last](const Event& event) {
        Event expected = last[event.type];
        expected.time_ns = event.time_ns;
        expected.address = event.address;
        expected.requested = event.requested;
        expected.size = event.requested;
        expected.stack = event.type == EventType::alloc ? event.stack : 0;
        expected.nn_modules = event.type == EventType::alloc ? event.nn_modules : 0;
        return event == expected;
    };
    for (std::size_t i = 0; i < records.size(); ++i) {
        const auto* event = std::get_if<Event>(&records[i]);
        const auto* next = i + 1 < records.size() ? std::get_if<Event>(&records[i + 1]) : nullptr;
        const bool freed = event != nullptr && next != nullptr &&
                           event->type == EventType::free_requested &&
                           *next == completed_at_once(*event);
        const bool known = event != nullptr && last.contains(event->type);
        if ((freed || (known && event->type == EventType::alloc)) && known && goes_on(*event) &&
            log.on_short(
                {event->time_ns, event->address, event->size, event->stack, event->nn_modules},
                freed)) {
            ++shorts;
        } else if (freed) {
            log.on_freed(*event);
        } else {
            feed(records[i], log);
        }
        if (event != nullptr) {
            last[event->type] = *event;
        }
        i += freed ? 1 : 0;
    }
    return shorts;
}

/// An empty error message or difference(). Compare with it instead of calling empty(), so that a
/// failing test prints the message.
inline const std::string nothing;

/// Empty (`nothing`) when equal, else the first difference.
inline std::string difference(const Records& got, const Records& expected) {
    for (std::size_t i = 0; i < got.size() && i < expected.size(); ++i) {
        if (got[i] != expected[i]) {
            return "record " + std::to_string(i) + " of " + std::to_string(expected.size()) +
                   " differs (alternative " + std::to_string(got[i].index()) + ", expected " +
                   std::to_string(expected[i].index()) + ")";
        }
    }
    return got.size() == expected.size() ? ""
                                         : std::to_string(got.size()) + " records, expected " +
                                               std::to_string(expected.size());
}

/// Whether `part` is a prefix of `whole`.
inline bool is_prefix(const Records& part, const Records& whole) {
    if (part.size() > whole.size()) {
        return false;
    }
    for (std::size_t i = 0; i < part.size(); ++i) {
        if (part[i] != whole[i]) {
            return false;
        }
    }
    return true;
}

class Random {
  public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    /// 0 <= result < bound
    std::uint64_t below(std::uint64_t bound) { return engine_() % bound; }
    bool one_in(std::uint64_t n) { return below(n) == 0; }
    /// Any number, small ones as likely as large ones.
    std::uint64_t any() { return engine_() >> below(64); }
    std::uint32_t any32() { return static_cast<std::uint32_t>(any()); }
    std::string bytes(std::uint64_t up_to) {
        std::string result(below(up_to + 1), '\0');
        for (char& c : result) {
            c = static_cast<char>(one_in(4) ? engine_() : 'a' + below(26));
        }
        return result;
    }
    template <typename T>
    T& pick(std::vector<T>& from) {
        return from[below(from.size())];
    }

  private:
    std::mt19937_64 engine_;
};

/// Records of every kind in MEMLAB_RECORD_KINDS: definitions in order and references to them, with
/// arbitrary values in all other fields: what a log must be able to store. A visitor of fields(),
/// so that a new kind of record is among them.
class WildRecords {
  public:
    explicit WildRecords(std::uint64_t seed) : random_(seed) {}

    AnyRecord next() {
        if (count_++ == 0) {
            return filled<ProcessInfo>();
        }
        if (random_.one_in(2)) {
            using Maker = std::optional<AnyRecord> (WildRecords::*)();
#define MEMLAB_MAKER(Record, name, tag) &WildRecords::make_one<Record>,
            static constexpr Maker makers[] = {MEMLAB_RECORD_KINDS(MEMLAB_MAKER)};
#undef MEMLAB_MAKER
            if (const auto record = (this->*makers[random_.below(std::size(makers))])()) {
                return *record;
            }
        }
        return event();
    }

    End end() {
        return {
            random_.any(), EndKind::quick_exit, random_.any(), random_.bytes(100),
            random_.one_in(2) ? End::unknown_code : static_cast<std::int32_t>(random_.below(256))};
    }

    static Records make(std::uint64_t seed, std::size_t count, bool with_end) {
        WildRecords wild(seed);
        Records records;
        for (std::size_t i = 0; i < count; ++i) {
            records.push_back(wild.next());
        }
        if (with_end) {
            records.emplace_back(wild.end());
        }
        return records;
    }

    // The visitor.
    void time(const char* /*name*/, std::uint64_t& value) {
        value = random_.any();
    }
    template <typename Integer>
    void number(const char* name, Integer& value) {
        // Threads come again.
        const bool small = std::string_view(name) == "thread" && random_.one_in(2);
        value = static_cast<Integer>(small ? random_.below(9) : random_.any());
    }
    void text(const char* name, std::string& value) {
        const std::string_view what = name;
        if (what == "build id") {
            value = hexadecimal();
        } else {
            value = random_.bytes(what == "text" && random_.one_in(50) ? 100000 : 60);
        }
    }
    void flag(const char* /*name*/, bool& value) {
        value = random_.one_in(2);
    }
    template <typename Enum>
    void choice(const char* /*name*/, Enum& value, Enum last) {
        value = static_cast<Enum>(random_.below(static_cast<std::uint64_t>(last) + 1));
    }
    void definition(const char* /*name*/, Definition what, std::uint32_t& id) {
        id = what == Definition::device ? static_cast<std::uint32_t>(random_.below(4))
                                        : counts_[index_of(what)] + 1;
        defined_ = what;
        defined_id_ = id;
    }
    void reference(const char* /*name*/, Definition what, std::uint32_t& id) {
        id = reference_to(what);
    }
    void subject(const char* /*name*/, Definition what, std::uint32_t& id) {
        if (what == Definition::device && !devices_.empty()) {
            id = random_.pick(devices_);
        } else if (what != Definition::device && counts_[index_of(what)] != 0) {
            id = 1 + static_cast<std::uint32_t>(random_.below(counts_[index_of(what)]));
        } else {
            complete_ = false;
        }
    }
    void correlation(const char* name, std::uint32_t& value) {
        number(name, value);
    }
    void period(const char* /*start*/, const char* /*duration*/, std::uint64_t& start,
                std::uint64_t& end) {
        start = random_.any();
        end = std::max(start, start + random_.any());
    }
    template <typename Item, typename Fields>
    void list(const char* /*name*/, std::vector<Item>& items, Fields fields) {
        items.resize(random_.below(std::is_same_v<Item, Frame> ? 50 : 6));
        for (Item& item : items) {
            fields(item, *this);
        }
    }
    void frame(Frame& frame) {
        frame = {reference_to(Definition::module), random_.any()};
        if (random_.one_in(4)) {
            const std::uint32_t python = reference_to(Definition::python_frame);
            if (python != 0) {
                frame = {0, 0, python};
            }
        }
    }

  private:
    static constexpr std::size_t index_of(Definition what) {
        return static_cast<std::size_t>(what);
    }

    template <typename Record>
    Record filled() {
        Record record;
        complete_ = true;
        defined_.reset();
        Record::fields(record, *this);
        settle(record);
        return record;
    }

    /// A record of this kind; none where it has no place: what is the first or the last of a
    /// recording, what the log's writer makes, and what needs a device or context before there is
    /// one.
    template <typename Record>
    std::optional<AnyRecord> make_one() {
        constexpr bool has_its_place =
            std::is_same_v<Record, ProcessInfo> || std::is_same_v<Record, LogStopped> ||
            std::is_same_v<Record, End> || std::is_same_v<Record, Checkpoint> ||
            std::is_same_v<Record, AggregateState>;
        if constexpr (has_its_place) {
            return {};
        } else {
            if (std::is_same_v<Record, ContextLost> && !random_.one_in(3)) {
                return {};  // some contexts live on
            }
            Record record = filled<Record>();
            if (!complete_) {
                return {};
            }
            if (defined_ == Definition::device) {
                if (devices_.empty()) {
                    last_.device = defined_id_;
                }
                devices_.push_back(defined_id_);
            } else if (defined_) {
                ++counts_[index_of(*defined_)];
            }
            return record;
        }
    }

    // What fields() does not say of a kind.
    template <typename Record>
    void settle(Record& /*record*/) {}
    void settle(ProcessInfo& process) {
        process.memlab_version = "0.1.0";
    }
    void settle(DeviceInfo& device) {
        device.allocator.clear();
        device.gpu = 0;
    }
    void settle(Work& work) {
        work.bytes = work.kind == WorkKind::kernel ? 0 : work.bytes;
    }

    AnyRecord event() {
        Event event = last_;
        if (last_.type == EventType::free_requested && random_.one_in(2)) {
            last_ = completed_at_once(event);
            return last_;
        }
        event.type = static_cast<EventType>(random_.below(event_type_count));
        if (devices_.empty()) {
            event.type = EventType::mark;
        }
        event.time_ns = random_.one_in(10) ? random_.any() : event.time_ns + random_.below(1000);
        event.address = random_.one_in(5) ? random_.any() : event.address + random_.below(1 << 20);
        event.requested = random_.one_in(3) ? random_.any() : event.requested;
        event.size = random_.one_in(2) ? event.requested : random_.any();
        if (random_.one_in(4)) {
            event.kind = static_cast<MemoryKind>(random_.below(memory_kind_count));
            event.origin = static_cast<Origin>(random_.below(2));
            event.device = devices_.empty() ? 0 : random_.pick(devices_);
            event.context = reference_to(Definition::context);
            event.thread = random_.any32();
            event.api = reference_to(Definition::string);
            event.name = reference_to(Definition::string);
            event.stream = random_.any();
            event.correlation = random_.any32();
            event.nn_modules = reference_to(Definition::nn_module_stack);
        }
        event.stack = random_.one_in(2) ? reference_to(Definition::stack) : event.stack;
        last_ = event;
        return event;
    }
    std::string hexadecimal() {
        std::string digits(2 * random_.below(21), '0');
        for (char& digit : digits) {
            digit = "0123456789abcdef"[random_.below(16)];
        }
        return digits;
    }
    /// 0, or a number that was defined.
    std::uint32_t reference_to(Definition what) {
        return static_cast<std::uint32_t>(
            random_.below(std::uint64_t{counts_[index_of(what)]} + 1));
    }

    Random random_;
    std::uint64_t count_ = 0;
    std::uint32_t counts_[7] = {};  ///< by Definition; devices are in devices_
    std::vector<std::uint32_t> devices_;
    bool complete_ = true;               ///< the record being made has all that it needs
    std::optional<Definition> defined_;  ///< by the record being made
    std::uint32_t defined_id_ = 0;
    Event last_;
};

/// The tensors of two threads: allocs and frees that mostly have a short form, and all that forbids
/// one.
class TensorRecords {
  public:
    static Records make(std::uint64_t seed, std::size_t events) {
        Random random(seed);
        constexpr std::uint32_t stacks = 300;
        Records records{DeviceInfo{.index = 0}, DeviceInfo{.index = 64}, ContextInfo{1, 0, true},
                        StringDef{1, "CUDACachingAllocator::malloc"},
                        StringDef{2, "CUDACachingAllocator::free"}};
        for (std::uint32_t i = 1; i <= stacks; ++i) {
            records.emplace_back(StackDef{i, false, {{0, i}}});
        }
        constexpr std::uint32_t nn_modules = 300;
        for (std::uint32_t i = 1; i <= nn_modules; ++i) {
            records.emplace_back(NnModuleStackDef{i, i / 2, i});
        }
        Event event{.kind = MemoryKind::suballocation,
                    .origin = Origin::pool,
                    .device = 64,
                    .context = 1,
                    .thread = 100};
        for (std::size_t i = 0; i < events; ++i) {
            const bool freed = random.one_in(2);
            event.type = freed ? EventType::free_requested : EventType::alloc;
            event.api = freed ? 2 : 1;
            event.stack = freed && !random.one_in(50)
                              ? 0
                              : static_cast<std::uint32_t>(random.below(stacks + 1));
            const std::uint64_t gaps[] = {1, 200, 40000, 5000000, std::uint64_t{1} << 33};
            event.time_ns += random.below(gaps[random.below(random.one_in(30) ? 5 : 3)]);
            const unsigned bits = random.one_in(40) ? 55 : random.one_in(10) ? 38 : 28;
            event.address = random.below(std::uint64_t{1} << bits) << 9;
            event.address += random.one_in(60) ? 256 : 0;
            event.requested = (1 + random.below(std::uint64_t{1} << (random.one_in(40) ? 40 : 16)))
                              << 9;
            event.requested += random.one_in(5) ? random.below(512) : 0;
            event.size = event.requested + (random.one_in(60) ? 512 : 0);
            event.nn_modules = freed || random.one_in(3)
                                   ? 0
                                   : static_cast<std::uint32_t>(random.below(nn_modules + 1));
            event.thread = random.one_in(40) ? 101 : event.thread;
            event.thread = random.one_in(40) ? 100 : event.thread;
            records.emplace_back(event);
            if (freed) {
                records.emplace_back(completed_at_once(event));
            }
            if (random.one_in(100)) {
                records.emplace_back(DeviceSample{.time_ns = event.time_ns, .device = 64});
            }
        }
        records.emplace_back(End{event.time_ns + 5, EndKind::exit, 0, ""});
        return records;
    }
};

/// A realistic program and pool: segments, blocks inside them, frees that complete later, driver
/// allocations of every kind, several threads, devices and contexts; and sometimes what only a
/// lossy recording has (frees of unknown memory, lost frees).
class PlausibleRecords {
  public:
    static Records make(std::uint64_t seed, std::size_t events, bool with_end = true) {
        PlausibleRecords maker(seed);
        maker.define();
        for (std::size_t i = 0; i < events; ++i) {
            maker.step();
        }
        if (with_end) {
            maker.records_.emplace_back(End{maker.now_ + 5, EndKind::exit, 0, ""});
        }
        return std::move(maker.records_);
    }

  private:
    explicit PlausibleRecords(std::uint64_t seed) : random_(seed) {}

    static constexpr std::uint32_t device_count = 2;
    static constexpr std::uint32_t context_count = 3;
    static constexpr std::uint32_t string_count = 6;
    static constexpr std::uint32_t stack_count = 12;
    static constexpr std::uint32_t nn_module_stack_count = 5;

    struct Block {
        Event alloc;
        bool pending = false;
    };
    struct Segment {
        std::uint64_t size = 0;
        std::uint32_t context = 0;
    };

    void define() {
        ProcessInfo process;
        process.pid = 4711;
        process.parent_pid = 1;
        process.executable = "/opt/app/train";
        process.arguments = {"train", "--batch", "16"};
        process.host = "node1";
        process.memlab_version = "0.1.0";
        process.start_wall_ns = 1767225599123456789;
        process.start_monotonic_ns = 55;
        process.ranks = {{"RANK", "3"}};
        records_.emplace_back(process);
        records_.emplace_back(OptionValue{"MEMLAB_OUTPUT", "out"});
        for (std::uint32_t i = 0; i < device_count; ++i) {
            records_.emplace_back(
                DeviceInfo{i, "Some GPU", "GPU-0", std::uint64_t{80} << 30, 13000});
        }
        for (std::uint32_t i = 1; i <= context_count; ++i) {
            records_.emplace_back(ContextInfo{i, device_of(i), i < context_count});
        }
        for (std::uint32_t i = 1; i <= string_count; ++i) {
            const std::string name = "name " + std::to_string(i);
            // Two are labels of what an nn.Module has.
            records_.emplace_back(StringDef{i, i == 5   ? "name 4.weight"
                                               : i == 6 ? "Adam.name 4.weight.exp_avg"
                                                        : name});
        }
        records_.emplace_back(ModuleDef{1, "/usr/lib/libx.so", "ab12", 4096, 4096, 1 << 20});
        for (std::uint32_t i = 1; i <= stack_count; ++i) {
            records_.emplace_back(PythonFrameDef{i, 1 + i % 2, 3, 10 * i, 5});
            records_.emplace_back(StackDef{i, i % 3 == 0, {{1, 64 * i}, {0, 0, i}, {0, 7}}});
        }
        for (std::uint32_t i = 1; i <= nn_module_stack_count; ++i) {
            records_.emplace_back(NnModuleStackDef{i, i / 2, 1 + i % 3});
        }
        records_.emplace_back(NnModuleName{1, 0, 1});
        records_.emplace_back(NnModuleName{3, 4, 0});
    }

    static std::uint32_t device_of(std::uint32_t context) { return context == 2 ? 1 : 0; }

    Event event(EventType type, std::uint32_t context) {
        Event result;
        result.type = type;
        result.time_ns = now_;
        result.context = context;
        result.device = device_of(context);
        result.thread = static_cast<std::uint32_t>(100 + random_.below(3));
        result.api = 1 + static_cast<std::uint32_t>(random_.below(2));
        result.stack = static_cast<std::uint32_t>(random_.below(stack_count + 1));
        return result;
    }

    void step() {
        now_ += random_.one_in(200) ? random_.below(100000000) : random_.below(3000);
        const auto context = 1 + static_cast<std::uint32_t>(random_.below(context_count));
        switch (random_.below(40)) {
            case 0:
                return grow(context);
            case 1:
                return shrink();
            case 2:
                records_.emplace_back(DeviceSample{
                    now_, device_of(context), random_.below(1ULL << 36), 1ULL << 36,
                    random_.one_in(3) ? random_.below(1 << 20) : 0, random_.one_in(2)});
                return;
            case 11: {  // a call that took or gave back memory
                LedgerEntry entry;
                entry.time_ns = now_;
                entry.device = device_of(context);
                entry.kind = static_cast<LedgerKind>(random_.below(ledger_kind_count));
                entry.api = 1 + static_cast<std::uint32_t>(random_.below(2));
                entry.stack = static_cast<std::uint32_t>(random_.below(stack_count + 1));
                entry.context = 1000 + context;
                entry.before = random_.one_in(10) ? 0 : random_.below(1ULL << 30);
                entry.after = random_.below(1ULL << 30);
                entry.ended = random_.one_in(20);
                entry.skipped = random_.one_in(3) ? random_.below(5) : 0;
                entry.skipped_returns = random_.below(3);
                entry.unchanged = random_.below(3);
                records_.emplace_back(entry);
                return;
            }
            case 3:
            case 4:
                note();
                return;
            case 9:
                records_.emplace_back(Missed{now_, 3 + static_cast<std::uint32_t>(random_.below(2)),
                                             1, random_.below(1000)});
                return;
            case 5: {
                OomEvent oom;
                oom.time_ns = now_;
                oom.device = device_of(context);
                oom.context = context;
                oom.api = 1;
                oom.stack = 2;
                oom.requested = 1ULL << 40;
                oom.error = 2;
                records_.emplace_back(oom);
                return;
            }
            case 6: {
                constexpr EventType without_address[] = {EventType::alloc_retry, EventType::sync,
                                                         EventType::empty_cache, EventType::tick,
                                                         EventType::reclaim};
                records_.emplace_back(event(without_address[random_.below(5)], context));
                return;
            }
            case 7:
                if (random_.one_in(10)) {
                    lose(context);
                }
                return;
            case 8: {  // unknown
                Event unknown = event(EventType::free_requested, context);
                unknown.address = 1 + random_.below(1000);
                records_.emplace_back(unknown);
                return;
            }
            case 10: {  // a kernel that has run
                Work work;
                work.name = static_cast<std::uint32_t>(random_.below(string_count + 1));
                work.device = device_of(context);
                work.stream = static_cast<std::uint32_t>(random_.below(3));
                work.end_ns = now_ - random_.below(900);
                work.start_ns = work.end_ns - random_.below(100);
                records_.emplace_back(work);
                return;
            }
            default:
                break;
        }
        if (random_.below(100) < (blocks_.size() > 60 ? 30U : 55U)) {
            allocate(context);
        } else {
            release();
        }
    }

    /// Annotations, including unmatched ends and labels of unknown memory.
    void note() {
        constexpr EventType types[] = {EventType::mark, EventType::scope_begin,
                                       EventType::scope_end, EventType::scope_end,
                                       EventType::label};
        Event note = event(types[random_.below(5)], 0);
        note.device = note.context = 0;
        note.name = 1 + static_cast<std::uint32_t>(random_.below(string_count));
        if (note.type == EventType::label) {
            auto at = blocks_.lower_bound(random_.one_in(2) ? 0 : next_segment_ / 2);
            note.address = at == blocks_.end() ? 4711 : at->first;
            note.api = static_cast<std::uint32_t>(random_.below(3));  // the detail
        } else if (note.type != EventType::mark) {
            note.requested = note.size = random_.below(2);
            note.address = random_.one_in(4) ? 1 + random_.below(4) : 0;
            note.stream =
                note.type == EventType::scope_end && note.address == 0 && random_.one_in(20)
                    ? ended_with_thread
                    : 0;
        }
        records_.emplace_back(note);
    }

    void grow(std::uint32_t context) {
        Event grown = event(EventType::segment_alloc, context);
        grown.size = random_.one_in(2) ? 2ULL << 20 : (2 + random_.below(10)) * (2ULL << 20);
        grown.address = next_segment_;
        grown.origin = Origin::pool;
        next_segment_ += grown.size + (random_.one_in(2) ? 0 : 4096);
        segments_[grown.address] = {grown.size, context};
        records_.emplace_back(grown);
    }

    void shrink() {
        if (segments_.empty()) {
            return;
        }
        auto at = segments_.begin();
        std::advance(at, static_cast<long>(random_.below(segments_.size())));
        if (!random_.one_in(20)) {  // rarely with blocks in it: their frees were lost
            for (const auto& [address, block] : blocks_) {
                if (address >= at->first && address < at->first + at->second.size) {
                    return;
                }
            }
        }
        Event freed = event(EventType::segment_free, at->second.context);
        freed.address = at->first;
        freed.size = at->second.size;
        freed.origin = Origin::pool;
        records_.emplace_back(freed);
        for (auto block = blocks_.begin(); block != blocks_.end();) {
            const bool inside = block->first >= at->first &&
                                block->first < at->first + at->second.size &&
                                block->second.alloc.origin == Origin::pool;
            block = inside ? blocks_.erase(block) : std::next(block);
        }
        segments_.erase(at);
    }

    void allocate(std::uint32_t context) {
        Event alloc = event(EventType::alloc, context);
        alloc.requested = 1 + random_.below(random_.one_in(3) ? 1 << 22 : 5000);
        alloc.nn_modules =
            static_cast<std::uint32_t>(alloc.requested % (nn_module_stack_count + 1));
        if (random_.one_in(3) || segments_.empty()) {
            alloc.kind = static_cast<MemoryKind>(random_.below(memory_kind_count));
            alloc.size = alloc.requested;
            alloc.address = next_direct_;
            next_direct_ += alloc.size;
        } else {
            auto at = segments_.begin();
            std::advance(at, static_cast<long>(random_.below(segments_.size())));
            alloc.origin = Origin::pool;
            alloc.context = at->second.context;
            alloc.device = device_of(alloc.context);
            alloc.size = (alloc.requested + 511) / 512 * 512;
            // Where it fits, from a random place on; over a live block once in a while.
            std::uint64_t place = at->first + random_.below(at->second.size / 512) * 512;
            const bool careless = random_.one_in(40);
            for (bool moved = true; moved && !careless;) {
                moved = false;
                for (const auto& [address, block] : blocks_) {
                    if (block.alloc.origin == Origin::pool && address < place + alloc.size &&
                        place < address + block.alloc.size) {
                        place = address + block.alloc.size;
                        moved = true;
                    }
                }
            }
            if (place + alloc.size > at->first + at->second.size && !random_.one_in(30)) {
                return;
            }
            alloc.address = place;
        }
        blocks_[alloc.address] = {alloc, false};
        records_.emplace_back(alloc);
    }

    void release() {
        if (blocks_.empty()) {
            return;
        }
        auto at = blocks_.begin();
        std::advance(at, static_cast<long>(random_.below(blocks_.size())));
        Event freed = at->second.alloc;
        freed.time_ns = now_;
        freed.thread = static_cast<std::uint32_t>(100 + random_.below(3));
        // A garbage collector's, once in a while.
        freed.name =
            random_.one_in(4) ? 1 + static_cast<std::uint32_t>(random_.below(string_count)) : 0;
        freed.type = at->second.pending ? EventType::free_completed : EventType::free_requested;
        records_.emplace_back(freed);
        if (freed.origin == Origin::pool && !at->second.pending) {
            at->second.pending = true;
            if (random_.one_in(2)) {
                return;
            }
            freed.type = EventType::free_completed;
            records_.emplace_back(freed);
        }
        blocks_.erase(at);
    }

    void lose(std::uint32_t context) {
        records_.emplace_back(ContextLost{now_, context});
        std::erase_if(blocks_,
                      [&](const auto& entry) { return entry.second.alloc.context == context; });
        std::erase_if(segments_,
                      [&](const auto& entry) { return entry.second.context == context; });
    }

    Random random_;
    Records records_;
    std::uint64_t now_ = 1000;
    std::uint64_t next_segment_ = 0x7f0000000000;
    std::uint64_t next_direct_ = 0x500000000000;
    std::map<std::uint64_t, Block> blocks_;
    std::map<std::uint64_t, Segment> segments_;
};

}  // namespace memlab::test
