#include "report/runs/exact_peaks.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <queue>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/read_ahead.hpp"
#include "report/runs/common_clock.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::report {

namespace {

constexpr std::array curves = {trace::CurveName::allocated, trace::CurveName::reserved};
using Bytes = std::array<std::uint64_t, curves.size()>;

/// Replays the log of one process into an aggregator, record by record.
class LogReplay {
  public:
    LogReplay(const std::string& log, std::uint64_t start_ns) : log_(log), start_ns_(start_ns) {}

    bool started() const { return log_.started(); }

    /// Applies the next record. False at the end.
    bool next() { return log_.next(state_); }

    /// Time of the latest record, on the common clock.
    std::uint64_t time_ns() const {
        std::uint64_t time = start_ns_;
        model::add_to(time, state_.duration_ns());
        return time;
    }

    Bytes usage(std::uint64_t device) const {
        Bytes bytes{};
        if (device < state_.devices().size() && state_.devices()[device] != nullptr) {
            for (std::size_t i = 0; i < bytes.size(); ++i) {
                bytes[i] = state_.devices()[device]->curve(curves[i]).current;
            }
        }
        return bytes;
    }

    /// True if no recorded event is missing and all were aggregated. Valid after next() returned
    /// false.
    bool complete() const {
        const trace::LogStatus status = log_.result().status;
        return (status == trace::LogStatus::complete || status == trace::LogStatus::cut_off) &&
               !log_.result().gap && state_.end().events_dropped == 0 &&
               !state_.integrity().incomplete;
    }

  private:
    LogCursor log_;
    std::uint64_t start_ns_;
    trace::Aggregator state_;
};

/// The memory of a process on a GPU.
struct Usage {
    Bytes current{};
    Bytes max{};           ///< over its values at the current time, if it changed
    bool changed = false;  ///< at the current time
};

/// A GPU whose peaks are computed.
struct GpuState {
    GpuUsage* result = nullptr;
    std::vector<Usage> usage;  ///< by index into GpuUsage::members
    Bytes sum{};               ///< of all `current`
    Bytes peak{};
    std::array<std::uint64_t, curves.size()> peak_ns{};
    bool incomplete = false;  ///< one of its logs is missing or not complete
};

/// A device of a process, and the GPU that it is.
struct Use {
    std::size_t gpu = 0;       ///< index into LogMerger::gpus_
    std::size_t member = 0;    ///< index into GpuUsage::members
    std::uint64_t device = 0;  ///< DeviceInfo::index in its own process
};

struct ProcessLog {
    std::size_t member = 0;
    std::string path;
    std::uint64_t start_ns = 0;  ///< on the common clock
    std::vector<Use> uses;
    std::unique_ptr<LogReplay> replay;
};

/// When a log has its next record, or its process starts.
struct NextRecord {
    std::uint64_t time_ns = 0;
    std::size_t log = 0;

    bool operator>(const NextRecord& other) const {
        return time_ns != other.time_ns ? time_ns > other.time_ns : log > other.log;
    }
};

class LogMerger {
  public:
    LogMerger(const RunCollection& run, std::vector<GpuUsage>& gpus) : run_(run) {
        for (GpuUsage& gpu : gpus) {
            if (!gpu.allocated.exact() || !gpu.reserved.exact()) {
                add(gpu);
            }
        }
    }

    void run() {
        find_logs();
        for (std::size_t i = 0; i < logs_.size(); ++i) {
            if (is_needed(logs_[i])) {
                queue_.push({logs_[i].start_ns, i});
            }
        }
        while (!queue_.empty()) {
            const std::uint64_t moment = queue_.top().time_ns;
            while (!queue_.empty() && queue_.top().time_ns == moment) {
                const std::size_t log = queue_.top().log;
                queue_.pop();
                if (!advance(log, moment)) {
                    discard(logs_[log]);
                }
            }
            update_peaks(moment);
        }
        for (const GpuState& each : gpus_) {
            if (!each.incomplete) {
                store_peaks(each);
            }
        }
    }

  private:
    void add(GpuUsage& gpu) {
        const std::size_t index = gpus_.size();
        gpus_.push_back({.result = &gpu, .usage = std::vector<Usage>(gpu.members.size())});
        for (std::size_t i = 0; i < gpu.members.size(); ++i) {
            const std::size_t member = gpu.members[i];
            auto log = std::find_if(logs_.begin(), logs_.end(),
                                    [&](const ProcessLog& each) { return each.member == member; });
            if (log == logs_.end()) {
                log = logs_.insert(log, ProcessLog{});
                log->member = member;
            }
            log->uses.push_back({index, i, gpu.devices[i]});
        }
    }

    /// Finds the logs and the common clock of their processes. GPUs with a missing log are
    /// discarded.
    void find_logs() {
        std::vector<ProcessStart> starts;
        for (ProcessLog& log : logs_) {
            const RunMember& member = run_.members[log.member];
            log.path = find_event_log(member.file, member.report);
            const auto first = read_process_info(log.path);
            const bool complete = member.report.log.stopped_because.empty() &&
                                  (member.from_log || member.report.process.ended != "running");
            if (!first || !complete) {
                discard(log);
                starts.emplace_back();
                continue;
            }
            // Processes that share a GPU share a machine, whatever their containers are called.
            starts.push_back({"", first->start_wall_ns, first->start_monotonic_ns});
        }
        const std::vector<std::uint64_t> common = common_starts(starts);
        for (std::size_t i = 0; i < logs_.size(); ++i) {
            logs_[i].start_ns = common[i];
        }
    }

    void discard(const ProcessLog& log) {
        for (const Use& use : log.uses) {
            gpus_[use.gpu].incomplete = true;
        }
    }

    /// True if a GPU of the process still needs its log.
    bool is_needed(const ProcessLog& log) const {
        return std::any_of(log.uses.begin(), log.uses.end(),
                           [this](const Use& use) { return !gpus_[use.gpu].incomplete; });
    }

    /// Applies all records of the log at time `moment` and queues the next one. False if the log
    /// cannot be read completely.
    bool advance(std::size_t index, std::uint64_t moment) {
        ProcessLog& log = logs_[index];
        if (log.replay == nullptr) {
            log.replay = std::make_unique<LogReplay>(log.path, log.start_ns);
            if (!log.replay->started() || !log.replay->next()) {
                return false;
            }
        }
        // The current record is of this time; those that follow may be, too.
        do {
            if (log.replay->time_ns() > moment) {
                queue_.push({log.replay->time_ns(), index});
                return true;
            }
            apply(log);
        } while (log.replay->next());
        if (!log.replay->complete()) {
            return false;
        }
        if (!run_.members[log.member].running) {
            log.replay.reset();
            release(log);
        }
        return true;
    }

    void apply(const ProcessLog& log) {
        for (const Use& use : log.uses) {
            set(use, log.replay->usage(use.device));
        }
    }
    void release(const ProcessLog& log) {
        for (const Use& use : log.uses) {
            set(use, Bytes{});
        }
    }

    void set(const Use& use, const Bytes& bytes) {
        GpuState& gpu = gpus_[use.gpu];
        Usage& usage = gpu.usage[use.member];
        if (usage.current == bytes) {
            return;
        }
        if (!usage.changed) {
            usage.changed = true;
            usage.max = {};
            changed_.emplace_back(use.gpu, use.member);
        }
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            usage.max[i] = std::max(usage.max[i], bytes[i]);
            gpu.sum[i] += bytes[i] - usage.current[i];
        }
        usage.current = bytes;
    }

    /// Called once all changes of a time are applied, since memory that one process frees may be
    /// allocated by another at the same nanosecond. The maximum of a single process within that
    /// time is added to what the others hold after it.
    void update_peaks(std::uint64_t moment) {
        for (const auto& [index, member] : changed_) {
            GpuState& gpu = gpus_[index];
            Usage& usage = gpu.usage[member];
            for (std::size_t i = 0; i < curves.size(); ++i) {
                const std::uint64_t combined = gpu.sum[i] - usage.current[i] + usage.max[i];
                if (combined > gpu.peak[i]) {
                    gpu.peak[i] = combined;
                    gpu.peak_ns[i] = moment;
                }
            }
            usage.changed = false;
        }
        changed_.clear();
    }

    void store_peaks(const GpuState& gpu) const {
        const std::array peaks = {&gpu.result->allocated, &gpu.result->reserved};
        for (std::size_t i = 0; i < peaks.size(); ++i) {
            CombinedPeak& peak = *peaks[i];
            peak.at_least = gpu.peak[i];
            peak.at_most = gpu.peak[i];
            peak.at_wall_ns = gpu.peak_ns[i];
            peak.from_logs = true;
        }
    }

    const RunCollection& run_;
    std::vector<GpuState> gpus_;
    std::vector<ProcessLog> logs_;
    std::priority_queue<NextRecord, std::vector<NextRecord>, std::greater<>> queue_;
    std::vector<std::pair<std::size_t, std::size_t>>
        changed_;  ///< GPU and member, at the current time
};

}  // namespace

void find_exact_peaks(const RunCollection& run, std::vector<GpuUsage>& gpus) {
    LogMerger(run, gpus).run();
}

}  // namespace memlab::report
