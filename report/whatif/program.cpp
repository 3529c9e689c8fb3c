#include "report/whatif/program.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/reading/read_ahead.hpp"
#include "report/reading/reader.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::report::whatif {

using trace::Event;
using trace::EventType;
using trace::MemoryKind;
using trace::Origin;

namespace {

bool is_in_program(MemoryKind kind) {
    return kind == MemoryKind::device || kind == MemoryKind::async_pool ||
           kind == MemoryKind::suballocation;
}

std::uint64_t subtract(std::uint64_t a, std::uint64_t b) {
    return a > b ? a - b : 0;
}

}  // namespace

void ProgramBuilder::note(StepKind kind, Building& to, std::uint32_t subject) {
    to.program.steps.push_back({kind, subject});
}

void ProgramBuilder::complete(Building& to, std::uint64_t address) {
    const auto found = to.pending.find(address);
    if (found == to.pending.end()) {
        ++to.program.inconsistencies;
        return;
    }
    note(StepKind::complete, to, to.pending.at(found));
    to.pending.erase(found);
}

void ProgramBuilder::allocate(Building& to, const Event& record) {
    if (to.program.allocations.size() >= std::numeric_limits<std::uint32_t>::max()) {
        ++to.program.inconsistencies;
        return;
    }
    // An address that is allocated again had been freed, even if the log has no free.
    if (const auto old = to.live.find(record.address); old != to.live.end()) {
        ++to.program.inconsistencies;
        Event missing = record;
        missing.type = EventType::free_requested;
        free(to, missing);
    }
    if (to.pending.find(record.address) != to.pending.end()) {
        complete(to, record.address);
    }
    const auto id = static_cast<std::uint32_t>(to.program.allocations.size());
    to.program.allocations.push_back({.requested = record.requested,
                                      .event = events_,
                                      .time_ns = record.time_ns,
                                      .stream = record.stream,
                                      .context = record.context,
                                      .thread = record.thread,
                                      .stack = record.stack,
                                      .kind = record.kind,
                                      .origin = record.origin});
    to.live.insert(record.address, {id, record.size});
    if (record.origin == Origin::pool) {
        ++to.program.recorded.pooled;
    } else {
        to.driver_served = model::saturating_add(to.driver_served, record.size);
    }
    to.any_streamless = to.any_streamless || record.kind != MemoryKind::async_pool;
    note(StepKind::allocate, to, id);
}

void ProgramBuilder::free(Building& to, const Event& record) {
    const auto found = to.live.find(record.address);
    if (found == to.live.end()) {
        ++to.program.inconsistencies;
        return;
    }
    const auto [id, size] = to.live.at(found);
    to.live.erase(found);
    note(StepKind::free, to, id);
    if (to.program.allocations.origin(id) == Origin::pool) {
        // Freed twice before its completion: completes the first block, which would stay pending.
        const auto before = to.pending.find(record.address);
        if (before == to.pending.end()) {
            to.pending.insert(record.address, id);
        } else {
            ++to.program.inconsistencies;
            note(StepKind::complete, to, to.pending.at(before));
            to.pending.at(before) = id;
        }
    } else {
        to.driver_served = subtract(to.driver_served, size);
        note(StepKind::complete, to, id);
    }
}

void ProgramBuilder::reserve(Building& to, const Event& record) {
    Recorded& recorded = to.program.recorded;
    to.reserved = model::saturating_add(to.reserved, record.size);
    std::uint64_t& here = to.reserved_in[record.context];
    here = model::saturating_add(here, record.size);
    recorded.reserved_peak = std::max(recorded.reserved_peak, to.reserved);
    ++recorded.segment_allocs;
    recorded.segments.push_back({record.address, record.size, record.context});
}

void ProgramBuilder::release(Building& to, const Event& record) {
    to.reserved = subtract(to.reserved, record.size);
    std::uint64_t& here = to.reserved_in[record.context];
    here = subtract(here, record.size);
    ++to.program.recorded.segment_frees;
}

void ProgramBuilder::on(const Event& record) {
    ++events_;
    if (record.type == EventType::mark || record.type == EventType::scope_end) {
        for (auto& [index, to] : devices_) {
            note(StepKind::mark, to, 0);
        }
        return;
    }
    if (record.type == EventType::scope_begin || record.type == EventType::label) {
        return;
    }
    Building& to = building(record.device);
    switch (record.type) {
        case EventType::alloc:
            if (is_in_program(record.kind)) {
                allocate(to, record);
            }
            break;
        case EventType::free_requested:
            if (is_in_program(record.kind)) {
                free(to, record);
            }
            break;
        case EventType::free_completed:
            if (is_in_program(record.kind)) {
                complete(to, record.address);
            }
            break;
        case EventType::segment_alloc:
        case EventType::segment_map:
            reserve(to, record);
            break;
        case EventType::segment_free:
        case EventType::segment_unmap:
            release(to, record);
            break;
        case EventType::empty_cache:
            note(StepKind::empty_cache, to, 0);
            break;
        default:
            break;  // decisions of the recorded pool
    }
}

void ProgramBuilder::on(const trace::OomEvent& record) {
    Building& to = building(record.device);
    ++to.program.recorded.failed;
    if (!is_in_program(record.kind) ||
        to.program.allocations.size() >= std::numeric_limits<std::uint32_t>::max()) {
        return;
    }
    const auto id = static_cast<std::uint32_t>(to.program.allocations.size());
    to.program.allocations.push_back({.requested = record.requested,
                                      .event = events_ + 1,
                                      .time_ns = record.time_ns,
                                      .stream = 0,
                                      .context = record.context,
                                      .thread = record.thread,
                                      .stack = record.stack,
                                      .kind = record.kind,
                                      .origin = Origin::driver});
    ++to.program.attempts;
    note(StepKind::attempt, to, id);
}

void ProgramBuilder::on(const trace::DeviceSample& record) {
    Building& to = building(record.device);
    to.program.outside_known = true;
    to.program.outside_bytes =
        std::max(to.program.outside_bytes,
                 subtract(record.used, model::saturating_add(to.reserved, to.driver_served)));
}

void ProgramBuilder::on(const trace::ContextLost& record) {
    const auto device = device_of_context_.find(record.context);
    if (device == device_of_context_.end()) {
        return;
    }
    for (auto& [index, to] : devices_) {
        if (index % trace::DeviceInfo::max_gpus == device->second) {
            context_lost(to, record.context);
        }
    }
}

void ProgramBuilder::context_lost(Building& to, std::uint32_t context) {
    const auto of_context = [&](const auto& in, auto allocation_of) {
        std::vector<std::uint64_t> addresses;
        for (auto slot = in.begin(); slot != in.end(); slot = in.next(slot)) {
            if (to.program.allocations.context(allocation_of(in.at(slot))) == context) {
                addresses.push_back(in.key_at(slot));
            }
        }
        return addresses;
    };
    for (const std::uint64_t address :
         of_context(to.live, [](const Building::Live& live) { return live.allocation; })) {
        Event freed;
        freed.address = address;
        free(to, freed);
    }
    for (const std::uint64_t address :
         of_context(to.pending, [](std::uint32_t id) { return id; })) {
        complete(to, address);
    }
    to.reserved = subtract(to.reserved, to.reserved_in[context]);
    to.reserved_in.erase(context);
    note(StepKind::context_lost, to, context);
}

void ProgramBuilder::on(const trace::ProcessInfo& record) {
    recording_.process = record;
}

void ProgramBuilder::on(const trace::OptionValue& record) {
    recording_.options.push_back(record);
}

void ProgramBuilder::on(const trace::DeviceInfo& record) {
    building(record.index).program.device = record;
}

void ProgramBuilder::on(const trace::ContextInfo& record) {
    device_of_context_[record.id] = record.device;
}

void ProgramBuilder::on(const trace::ModuleDef& record) {
    uses_pytorch_ = uses_pytorch_ || record.path.find("libc10_cuda") != std::string::npos;
}

Recording ProgramBuilder::finish(const trace::LogReadResult& result) {
    recording_.status = result.status;
    recording_.events = events_;
    for (auto& [index, building] : devices_) {
        if (building.program.allocations.empty()) {
            continue;
        }
        building.program.device.index = index;
        building.program.uses_pytorch = uses_pytorch_;
        building.program.streams_known = !building.any_streamless;
        recording_.programs.push_back(std::move(building.program));
    }
    devices_.clear();
    return std::move(recording_);
}

std::string not_a_log_error(const trace::LogReadResult& read, const std::string& path) {
    if (read.status == trace::LogStatus::other_version) {
        return log_message(read, path);
    }
    return "not an event log (" + log_message(read, path) +
           "); give the memlab.*.memlog next to the report";
}

namespace {

/// Builds programs of a log up to the first record that is missing, while it is aggregated.
class BuildWhileAggregated final : public trace::GenericSink<BuildWhileAggregated>,
                                   public LogFollower {
  public:
    struct Result {
        Recording recording;
        trace::LogReadResult read;
    };

    BuildWhileAggregated(trace::Aggregator& aggregator, Result& result)
        : aggregator_(aggregator), result_(result) {}

    void on_freed(const trace::Event& record) override {
        aggregator_.on_freed(record);
        if (!behind_gap_) {
            builder_.on_freed(record);
        }
    }

    void finish(const trace::LogReadResult& read) override {
        result_.read = read;
        result_.recording = builder_.finish(read);
        if (read.gap) {
            result_.recording.status = trace::LogStatus::cut_off;
        }
    }

  private:
    friend trace::GenericSink<BuildWhileAggregated>;

    template <typename Record>
    void take(const Record& record) {
        aggregator_.on(record);
        behind_gap_ = behind_gap_ || std::is_same_v<Record, trace::Checkpoint>;
        if (!behind_gap_) {
            builder_.on(record);
        }
    }

    trace::Aggregator& aggregator_;
    Result& result_;
    ProgramBuilder builder_;
    bool behind_gap_ = false;
};

/// `recording` as built of `read`, with what is to be said of it; or `error`.
Recording checked(Recording recording, const trace::LogReadResult& read, const std::string& path,
                  std::string* error) {
    if (!read.is_log()) {
        *error = not_a_log_error(read, path);
        return {};
    }
    if (recording.programs.empty()) {
        *error = "an event log without device allocations; there is nothing to try out";
        return {};
    }
    recording.warning = read.status == trace::LogStatus::damaged
                            ? "The " + log_damage(read, path) + "."
                            : describe_stretch(read, trace::LogPart::beginning);
    return recording;
}

}  // namespace

Recording read_recording(const std::string& path, std::string* error) {
    ProgramBuilder builder;
    const trace::LogReadResult read = read_log_ahead(path, builder, trace::LogPart::beginning);
    return checked(builder.finish(read), read, path, error);
}

Recording read_recording(const std::string& path, ReadResult* report, std::string* error) {
    BuildWhileAggregated::Result result;
    *report = read_report(path, [&](const std::string&, trace::Aggregator& aggregator) {
        return std::make_unique<BuildWhileAggregated>(aggregator, result);
    });
    if (!report->report) {
        *error = report->error;
        return {};
    }
    return checked(std::move(result.recording), result.read, path, error);
}

void prefer_allocators(std::vector<Program>& programs) {
    std::set<std::uint32_t> cut;
    for (const Program& program : programs) {
        if (!program.device.is_gpu()) {
            cut.insert(program.device.gpu);
        }
    }
    std::erase_if(programs, [&](const Program& program) {
        return program.device.is_gpu() && cut.count(program.device.index) != 0;
    });
}

}  // namespace memlab::report::whatif
