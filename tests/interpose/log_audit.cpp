// log_audit FILE.memlog [--traffic]: an independent judge of a recording.
//
// It replays the event log with books of its own, written as plainly as possible and sharing
// nothing with the Aggregator or the Pool, and prints one JSON object: what was allocated, freed,
// lost with its context and is live, by kind; the pool's segments; and every contradiction it
// found:
//   - a block that overlaps another one that is live or not yet safe to reuse,
//   - a pool block outside of every segment, a segment given back with blocks in it,
//   - a free of something that is not live, a completion without a request,
//   - time running backwards.
// With --traffic it also lists all device memory that went from and to the driver, for comparison
// with an independent witness.
//
// Exit code: 0 without contradictions, 1 with some, 2 when the file cannot be read.
#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trace/reading/log_reader.hpp"
#include "trace/record_sink.hpp"

namespace {

using memlab::trace::Event;
using memlab::trace::EventType;
using memlab::trace::MemoryKind;
using memlab::trace::Origin;
using Json = nlohmann::ordered_json;

struct Sum {
    std::uint64_t count = 0;
    std::uint64_t requested = 0;
    std::uint64_t bytes = 0;

    void add(std::uint64_t requested_bytes, std::uint64_t served_bytes) {
        ++count;
        requested += requested_bytes;
        bytes += served_bytes;
    }
    Json json() const { return {{"count", count}, {"requested", requested}, {"bytes", bytes}}; }
};

struct Totals {
    Sum allocs;
    Sum frees;
    Sum lost;
    Sum pool_allocs;
};

/// What one allocation holds.
struct Block {
    std::uint64_t requested = 0;
    std::uint64_t size = 0;
    std::uint32_t context = 0;
    MemoryKind kind = MemoryKind::device;
    Origin origin = Origin::driver;
    bool pending = false;  ///< freed, but not yet safe to reuse
};

struct Segment {
    std::uint64_t size = 0;
    std::uint32_t context = 0;
};

/// The number of an allocator of the program's, from 1.
std::uint32_t allocator_of(std::uint32_t device) {
    return device / memlab::trace::DeviceInfo::max_gpus;
}

/// Kinds whose addresses are device addresses share one space; handles and host addresses do not,
/// nor do the blocks of two allocators of the program's.
int space_of(MemoryKind kind, std::uint32_t device) {
    switch (kind) {
        case MemoryKind::device:
        case MemoryKind::managed:
        case MemoryKind::async_pool:
            return 0;
        default:
            return 1 + static_cast<int>(kind) +
                   (kind == MemoryKind::suballocation ? static_cast<int>(allocator_of(device)) : 0);
    }
}

/// In this space two live ranges never overlap. Pinned ranges may be registered in pieces, graph
/// nodes may share memory, handles are no ranges.
bool is_exclusive(int space) {
    return space == 0 || space >= space_of(MemoryKind::suballocation, 0);
}

class Audit final : public memlab::trace::RecordSink {
  public:
    using memlab::trace::RecordSink::on;
    void on(const memlab::trace::ProcessInfo& record) override {
        result_["pid"] = record.pid;
        result_["executable"] = record.executable;
        result_["started_late"] = record.started_late;
    }
    void on(const memlab::trace::DeviceInfo&) override { ++devices_; }
    void on(const memlab::trace::ContextInfo&) override { ++contexts_; }
    void on(const memlab::trace::ContextLost& record) override {
        check_time(record.time_ns);
        ++contexts_lost_;
        for (auto it = blocks_.begin(); it != blocks_.end();) {
            if (it->second.context != record.context) {
                ++it;
                continue;
            }
            if (!it->second.pending) {
                totals_of(it->second.kind).lost.add(it->second.requested, it->second.size);
            }
            it = blocks_.erase(it);
        }
        for (auto& [allocator, segments] : allocators_segments_) {
            std::erase_if(segments, [&](const auto& segment) {
                return segment.second.context == record.context;
            });
        }
        for (auto it = pool_segments_.begin(); it != pool_segments_.end();) {
            if (it->second.context == record.context) {
                segments_lost_.add(it->second.size, it->second.size);
                it = pool_segments_.erase(it);
            } else {
                ++it;
            }
        }
    }
    void on(const memlab::trace::ThreadInfo& record) override {
        result_["thread_names"][std::to_string(record.thread)] = text(record.name);
    }
    void on(const memlab::trace::StringDef& record) override {
        if (strings_.size() < record.id + std::size_t{1}) {
            strings_.resize(record.id + std::size_t{1});
        }
        strings_[record.id] = record.text;
    }
    void on(const memlab::trace::StackDef& record) override {
        ++stacks_;
        deepest_stack_ = std::max(deepest_stack_, record.frames.size());
    }
    void on(const memlab::trace::OomEvent& record) override {
        check_time(record.time_ns);
        ++ooms_;
    }
    void on(const memlab::trace::DeviceSample& record) override { check_time(record.time_ns); }
    void on(const memlab::trace::Missed& record) override {
        missed_.push_back(Json{
            {"reason", text(record.reason)}, {"count", record.count}, {"bytes", record.bytes}});
    }
    void on(const memlab::trace::Work& record) override {
        Json& count = work_[memlab::trace::name_of(record.kind)];
        count = count.is_null() ? std::uint64_t{1} : count.get<std::uint64_t>() + 1;
    }
    void on(const memlab::trace::Bypass& record) override {
        check_time(record.time_ns);
        bypassed_.add(record.bytes, record.bytes);
    }
    void on(const memlab::trace::Coverage& record) override { check_time(record.time_ns); }
    void on(const memlab::trace::LogStopped& record) override {
        check_time(record.time_ns);
        dropped_ = record.events_dropped;
        stopped_because_ = record.reason;
    }
    void on(const memlab::trace::End& record) override {
        ended_ = record.kind == memlab::trace::EndKind::exit ? "exit" : "quick_exit";
        dropped_ = record.events_dropped;
    }

    void on(const Event& event) override {
        check_time(event.time_ns);
        ++events_;
        switch (event.type) {
            case EventType::alloc:
                alloc(event);
                break;
            case EventType::free_requested:
                free_requested(event);
                break;
            case EventType::free_completed:
                free_completed(event);
                break;
            case EventType::segment_alloc:
                segment_alloc(event);
                break;
            case EventType::segment_map:
                segment_map(event);
                break;
            case EventType::segment_unmap:
                segment_unmap(event);
                break;
            case EventType::segment_free:
                segment_free(event);
                break;
            case EventType::mark:
                marks_.push_back(text(event.name));
                break;
            default:
                break;
        }
    }

    Json finish(const memlab::trace::LogReadResult& read, bool with_traffic) {
        constexpr std::array statuses = {"complete", "cut_off", "damaged", "not_a_log"};
        Json result = result_;
        result["status"] = statuses[static_cast<std::size_t>(read.status)];
        result["message"] = read.message;
        result["ended"] = ended_;
        result["events"] = events_;
        result["dropped"] = dropped_;
        result["log_stopped"] = stopped_because_;
        result["devices"] = devices_;
        result["contexts"] = contexts_;
        result["contexts_lost"] = contexts_lost_;
        result["ooms"] = ooms_;
        result["stacks"] = stacks_;
        result["deepest_stack"] = deepest_stack_;
        result["marks"] = marks_;
        result["missed"] = missed_;
        result["work"] = work_;
        result["bypassed"] = bypassed_.json();
        std::map<MemoryKind, Sum> live;
        std::uint64_t pending = 0;
        for (const auto& [key, block] : blocks_) {
            if (block.pending) {
                ++pending;
            } else {
                live[block.kind].add(block.requested, block.size);
            }
        }
        result["pending_frees"] = pending;
        result["kinds"] = Json::object();
        for (int i = 0; i < memlab::trace::memory_kind_count; ++i) {
            const auto kind = static_cast<MemoryKind>(i);
            const Totals& totals = totals_of(kind);
            if (totals.allocs.count == 0) {
                continue;
            }
            result["kinds"][memlab::trace::name_of(kind)] = {
                {"allocs", totals.allocs.json()},
                {"frees", totals.frees.json()},
                {"lost", totals.lost.json()},
                {"live", live[kind].json()},
                {"by_pool", totals.pool_allocs.json()}};
        }
        Sum live_segments;
        for (const auto& [address, segment] : pool_segments_) {
            live_segments.add(segment.size, segment.size);
        }
        result["segments"] = {{"allocs", segment_allocs_.json()},
                              {"frees", segment_frees_.json()},
                              {"lost", segments_lost_.json()},
                              {"live", live_segments.json()}};
        if (with_traffic) {
            result["traffic"] = traffic_;
        }
        result["contradictions"] = contradictions_;
        return result;
    }

    bool sound() const { return contradictions_.empty(); }

  private:
    using Key = std::pair<int, std::uint64_t>;  // space and address

    Totals& totals_of(MemoryKind kind) { return totals_[static_cast<std::size_t>(kind)]; }

    std::string text(std::uint32_t id) const {
        return id < strings_.size() ? strings_[id] : std::string("?");
    }

    void contradict(const char* what, const Event& event) {
        if (contradictions_.size() >= 20) {
            return;
        }
        char line[256];
        std::snprintf(line, sizeof line,
                      "event %" PRIu64 " (%s of %s at 0x%" PRIx64 ", %" PRIu64 " bytes): %s",
                      events_, memlab::trace::name_of(event.type),
                      memlab::trace::name_of(event.kind), event.address, event.size, what);
        contradictions_.emplace_back(line);
    }

    void check_time(std::uint64_t time_ns) {
        if (time_ns < last_time_ && contradictions_.size() < 20) {
            contradictions_.emplace_back("time runs backwards");
        }
        last_time_ = time_ns;
    }

    using Segments = std::map<std::uint64_t, Segment>;

    /// The pool's, or those that the program's allocators cut: these are counted as what the driver
    /// handed out.
    Segments& segments_of(const Event& event) {
        return event.kind == MemoryKind::suballocation
                   ? allocators_segments_[allocator_of(event.device)]
                   : pool_segments_;
    }

    bool in_a_segment(const Event& event) {
        const Segments& segments = segments_of(event);
        auto it = segments.upper_bound(event.address);
        if (it == segments.begin()) {
            return false;
        }
        --it;
        return event.address + event.size <= it->first + it->second.size;
    }

    void note_traffic(const char* what, std::uint64_t address, std::uint64_t bytes) {
        traffic_.push_back(Json::array({what, address, bytes}));
    }

    void alloc(const Event& event) {
        const int space = space_of(event.kind, event.device);
        if (is_exclusive(space)) {
            const auto next = blocks_.lower_bound({space, event.address});
            if (next != blocks_.end() && next->first.first == space &&
                next->first.second < event.address + event.size) {
                contradict("overlaps the block behind it", event);
            }
            if (next != blocks_.begin()) {
                const auto& [key, block] = *std::prev(next);
                if (key.first == space && key.second + block.size > event.address) {
                    contradict(block.pending ? "overlaps a block that is not yet safe to reuse"
                                             : "overlaps a live block",
                               event);
                }
            }
        }
        if (event.size < event.requested) {
            contradict("is served by fewer bytes than were asked for", event);
        }
        if (event.origin == Origin::pool && !in_a_segment(event)) {
            contradict("comes from the pool but lies in none of its segments", event);
        }
        if (event.origin == Origin::driver && event.kind == MemoryKind::device) {
            note_traffic("alloc", event.address, event.requested);
        }
        blocks_[{space, event.address}] =
            Block{event.requested, event.size, event.context, event.kind, event.origin, false};
        Totals& totals = totals_of(event.kind);
        totals.allocs.add(event.requested, event.size);
        if (event.origin == Origin::pool) {
            totals.pool_allocs.add(event.requested, event.size);
        }
    }

    void free_requested(const Event& event) {
        const auto it = blocks_.find({space_of(event.kind, event.device), event.address});
        if (it == blocks_.end() || it->second.pending) {
            contradict("nothing live begins there", event);
            return;
        }
        Block& block = it->second;
        if (event.origin != block.origin) {
            contradict("is freed by another origin than it was allocated by", event);
        }
        totals_of(block.kind).frees.add(block.requested, block.size);
        if (block.origin == Origin::pool) {
            block.pending = true;
            return;
        }
        if (block.kind == MemoryKind::device) {
            note_traffic("free", event.address, block.requested);
        }
        blocks_.erase(it);
    }

    void free_completed(const Event& event) {
        const auto it = blocks_.find({space_of(event.kind, event.device), event.address});
        if (it == blocks_.end() || !it->second.pending) {
            contradict("no free of it was requested", event);
            return;
        }
        blocks_.erase(it);
    }

    void segment_alloc(const Event& event) {
        segments_of(event)[event.address] = Segment{event.size, event.context};
        if (event.kind != MemoryKind::suballocation) {
            segment_allocs_.add(event.size, event.size);
            note_traffic("alloc", event.address, event.size);
        }
    }

    void segment_free(const Event& event) {
        Segments& segments = segments_of(event);
        const auto it = segments.find(event.address);
        if (it == segments.end()) {
            contradict("no segment begins there", event);
            return;
        }
        const auto block = blocks_.lower_bound({space_of(event.kind, event.device), event.address});
        if (block != blocks_.end() && block->first.first == space_of(event.kind, event.device) &&
            block->first.second < event.address + it->second.size) {
            contradict("a block still lies in the segment", event);
        }
        if (event.kind != MemoryKind::suballocation) {
            segment_frees_.add(it->second.size, it->second.size);
            note_traffic("free", event.address, it->second.size);
        }
        segments.erase(it);
    }

    // Pages of an expandable range: neighbours are one segment.
    void segment_map(const Event& event) {
        Segments& segments = segments_of(event);
        if (event.kind != MemoryKind::suballocation) {
            segment_allocs_.add(event.size, event.size);
        }
        std::uint64_t begin = event.address;
        std::uint64_t end = event.address + event.size;
        const auto above = segments.lower_bound(begin);
        if (above != segments.end() && above->first < end) {
            contradict("has memory already", event);
            return;
        }
        if (above != segments.end() && above->first == end) {
            end += above->second.size;
            segments.erase(above);
        }
        const auto next = segments.lower_bound(begin);
        if (next != segments.begin()) {
            const auto below = std::prev(next);
            if (below->first + below->second.size == begin) {
                begin = below->first;
                segments.erase(below);
            }
        }
        segments[begin] = Segment{end - begin, event.context};
    }

    void segment_unmap(const Event& event) {
        Segments& segments = segments_of(event);
        const auto above = segments.upper_bound(event.address);
        const auto holder = above == segments.begin() ? segments.end() : std::prev(above);
        const std::uint64_t end = event.address + event.size;
        if (holder == segments.end() || end > holder->first + holder->second.size) {
            contradict("has no memory there", event);
            return;
        }
        const auto block = blocks_.lower_bound({space_of(event.kind, event.device), event.address});
        if (block != blocks_.end() && block->first.first == space_of(event.kind, event.device) &&
            block->first.second < end) {
            contradict("a block still lies in the pages", event);
        }
        if (event.kind != MemoryKind::suballocation) {
            segment_frees_.add(event.size, event.size);
        }
        const std::uint64_t begin = holder->first;
        const std::uint64_t whole_end = begin + holder->second.size;
        segments.erase(holder);
        if (begin < event.address) {
            segments[begin] = Segment{event.address - begin, event.context};
        }
        if (end < whole_end) {
            segments[end] = Segment{whole_end - end, event.context};
        }
    }

    Json result_ = Json::object();
    std::map<Key, Block> blocks_;
    Segments pool_segments_;
    std::map<std::uint32_t, Segments> allocators_segments_;
    std::array<Totals, memlab::trace::memory_kind_count> totals_{};
    Sum segment_allocs_;
    Sum segment_frees_;
    Sum segments_lost_;
    std::vector<std::string> strings_;
    std::vector<std::string> marks_;
    std::vector<std::string> contradictions_;
    Json missed_ = Json::array();
    Json work_ = Json::object();
    Sum bypassed_;
    Json traffic_ = Json::array();
    std::string ended_ = "cut off";
    std::uint64_t events_ = 0;
    std::uint64_t dropped_ = 0;
    std::string stopped_because_;
    std::uint64_t last_time_ = 0;
    std::uint64_t devices_ = 0;
    std::uint64_t contexts_ = 0;
    std::uint64_t contexts_lost_ = 0;
    std::uint64_t ooms_ = 0;
    std::uint64_t stacks_ = 0;
    std::size_t deepest_stack_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
    const bool with_traffic = argc == 3 && std::strcmp(argv[2], "--traffic") == 0;
    if (argc < 2 || (argc == 3 && !with_traffic) || argc > 3) {
        std::fprintf(stderr, "usage: %s FILE.memlog [--traffic]\n", argv[0]);
        return 2;
    }
    Audit audit;
    const memlab::trace::LogReadResult read = memlab::trace::read_log(argv[1], audit);
    // Names are the program's own and need not be UTF-8; the report replaces what is not.
    const std::string text =
        audit.finish(read, with_traffic).dump(1, ' ', false, Json::error_handler_t::replace);
    std::printf("%s\n", text.c_str());
    if (!read.is_log()) {
        return 2;
    }
    return audit.sound() && read.status != memlab::trace::LogStatus::damaged ? 0 : 1;
}
