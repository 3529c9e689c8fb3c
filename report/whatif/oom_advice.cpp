#include "report/whatif/oom_advice.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

#include "model/bounded_sum.hpp"
#include "report/parallel.hpp"
#include "report/reading/reader.hpp"
#include "report/summary/alike_failures.hpp"
#include "report/text/units.hpp"

namespace memlab::report::whatif {

namespace {

constexpr std::size_t max_settings = 3;
constexpr std::uint64_t limit_unit = std::uint64_t{1} << 20;

std::uint64_t reduced(std::uint64_t from, std::uint64_t what) {
    return from - std::min(from, what);
}

std::uint64_t kind_bytes(const model::Oom& oom, std::string_view kind) {
    const auto found = oom.kinds.find(kind);
    return found == oom.kinds.end() ? 0 : found->second;
}

/// The program and its allocation that failed; null: it is of none.
const Program* find_attempt(const Recording& recording, const model::Oom& oom,
                            std::uint32_t* allocation) {
    for (const Program& program : recording.programs) {
        if (program.device.index != oom.device) {
            continue;
        }
        for (const Step step : program.steps) {
            if (step.kind != StepKind::attempt) {
                continue;
            }
            const Allocation failed = program.allocations[step.subject];
            // The driver's own pools serve the rest of a program.
            if (failed.kind != trace::MemoryKind::async_pool && failed.time_ns == oom.time_ns &&
                failed.requested == oom.requested_bytes && failed.thread == oom.thread) {
                *allocation = step.subject;
                return &program;
            }
        }
    }
    return nullptr;
}

class Adviser {
  public:
    Adviser(const Recording& recording, const model::Report& report, const model::Oom& oom,
            const ReadPoolSettings& read_pool)
        : recording_(recording), report_(report), oom_(oom), read_pool_(read_pool) {}

    std::optional<std::vector<std::string>> advise() {
        program_ = find_attempt(recording_, oom_, &failed_);
        std::optional<Policy> recorded =
            program_ == nullptr ? std::nullopt
                                : recorded_settings(*program_, recording_.options, read_pool_);
        if (!recorded) {
            return std::nullopt;
        }
        recorded_ = std::move(*recorded);
        own_ = own_bytes();
        capacity_ = model::saturating_add(own_, free_bytes());
        if (try_policy(recorded_, capacity_) != Served::no) {
            return std::nullopt;  // something was in the way that the replay does not know
        }
        try_settings();
        try_limits();
        try_without_others();
        return std::move(sentences_);
    }

  private:
    Served try_policy(const Policy& policy, std::uint64_t capacity) const {
        return serves(*program_, *policy.make(capacity, *program_), failed_);
    }

    /// What the program's allocator had from the driver at the failure, and what the driver served.
    std::uint64_t own_bytes() const {
        if (!program_->device.is_gpu()) {
            // Below a limit of its own it had room for what it once reserved.
            std::uint64_t reserved = oom_.current.reserved;
            for (const model::Device& device : report_.devices) {
                const model::CurveSummary& curve = device.curve(model::Curve::reserved);
                if (oom_.refused_by == "allocator" && device.index == oom_.device &&
                    curve.peak_time_ns <= oom_.time_ns) {
                    reserved = std::max(reserved, curve.peak_bytes);
                }
            }
            return reserved;
        }
        return model::saturating_add(
            model::saturating_add(oom_.pool.reserved,
                                  reduced(kind_bytes(oom_, "device"), oom_.pool.allocated)),
            kind_bytes(oom_, "async_pool"));
    }

    std::uint64_t used_bytes() const {
        return reduced(oom_.device_total_bytes, oom_.device_free_bytes);
    }

    std::uint64_t free_bytes() const {
        if (oom_.refused_by == "allocator") {
            return 0;
        }
        std::uint64_t free = oom_.device_free_bytes;
        if (const std::optional<std::uint64_t> limit = limit_bytes()) {
            free = std::min(free, reduced(*limit, used_bytes()));
        }
        for (const model::GroupLimit& group : oom_.group_limits) {
            free = std::min(
                free, reduced(group.limit_bytes.value_or(unlimited_capacity), group.used_bytes));
        }
        return free;
    }

    std::optional<std::uint64_t> limit_bytes() const {
        for (const model::Device& device : report_.devices) {
            if (device.index == oom_.device % trace::DeviceInfo::max_gpus && device.limit_bytes) {
                return device.limit_bytes;
            }
        }
        return std::nullopt;
    }

    void try_settings() {
        const std::vector<Policy> policies =
            other_settings(*program_, read_pool_, oom_.requested_bytes);
        std::vector<Served> served(policies.size(), Served::not_reached);
        report::for_each_in_parallel(policies.size(), [&](std::size_t i) {
            served[i] = try_policy(policies[i], capacity_);
        });
        for (std::size_t i = 0; i < policies.size() && sentences_.size() < max_settings; ++i) {
            if (served[i] == Served::yes) {
                sentences_.push_back(setting_text(policies[i], recording_.options) +
                                     (sentences_.empty() ? " serves it within the same " +
                                                               report::format_bytes(capacity_)
                                                         : " does so, too") +
                                     refused_later(policies[i]) + ".");
            }
        }
    }

    /// What the setting refuses that the recorded settings serve in the same memory; else empty.
    std::string refused_later(const Policy& policy) const {
        const auto first_refused = [&](const Policy& with) {
            return run(*program_, *with.make(capacity_, *program_)).failure;
        };
        const std::optional<Failure> refused = first_refused(policy);
        if (!refused) {
            return {};
        }
        const std::optional<Failure> recorded = first_refused(recorded_);
        if (recorded && recorded->allocation <= refused->allocation) {
            return {};
        }
        const Allocation other = program_->allocations[refused->allocation];
        return ", but then not " + report::format_bytes(other.requested) + " at " +
               report::format_duration(other.time_ns) + ", which the recording served";
    }

    /// What the program needs with the recorded settings when nothing limits it; none: the replay
    /// does not get there.
    std::optional<std::uint64_t> needed_bytes() const {
        const std::unique_ptr<Model> model = recorded_.make(unlimited_capacity, *program_);
        if (serves(*program_, *model, failed_) != Served::yes) {
            return std::nullopt;
        }
        const std::uint64_t needed = round_up(model->meter().reserved_peak(), device_page);
        return try_policy(recorded_, needed) == Served::yes ? std::optional(needed) : std::nullopt;
    }

    void try_limits() {
        const bool by_limit = oom_.refused_by == "memlab_limit";
        const bool by_group = oom_.refused_by == "cgroup" && !oom_.group_limits.empty();
        if (!by_limit && !by_group) {
            return;
        }
        const std::optional<std::uint64_t> needed = needed_bytes();
        if (!needed) {
            return;
        }
        const std::uint64_t all = by_limit ? used_bytes() : oom_.group_limits.front().used_bytes;
        const std::uint64_t limit =
            round_up(model::saturating_add(*needed, reduced(all, own_)), limit_unit);
        if (limit > oom_.device_total_bytes && by_limit) {
            return;
        }
        sentences_.push_back(
            (by_limit ? "MEMLAB_LIMIT=" + std::to_string(limit / limit_unit) + "MiB"
                      : "A limit of " + report::format_bytes(limit) + " for the cgroup " +
                            oom_.group_limits.front().group +
                            " (nvidia-smi memory-limits --set, by who runs the container)") +
            " is enough to serve it.");
    }

    void try_without_others() {
        if (!oom_.others || oom_.others->bytes == 0 || oom_.refused_by != "driver") {
            return;
        }
        const std::uint64_t theirs =
            std::min(oom_.others->bytes, reduced(used_bytes(), oom_.current.reserved));
        if (try_policy(recorded_, model::saturating_add(capacity_, theirs)) == Served::yes) {
            sentences_.push_back("Without the " + report::format_bytes(theirs) +
                                 " of other processes on the GPU (nvidia-smi lists them) it is "
                                 "served.");
        }
    }

    const Recording& recording_;
    const model::Report& report_;
    const model::Oom& oom_;
    const ReadPoolSettings& read_pool_;
    const Program* program_ = nullptr;
    std::uint32_t failed_ = 0;
    Policy recorded_;
    std::uint64_t own_ = 0;
    std::uint64_t capacity_ = 0;
    std::vector<std::string> sentences_;
};

}  // namespace

std::optional<std::vector<std::string>> advise_on_oom(const Recording& recording,
                                                      const model::Report& report,
                                                      const model::Oom& oom,
                                                      const ReadPoolSettings& read_pool) {
    return Adviser(recording, report, oom, read_pool).advise();
}

void advise_on_ooms(const std::string& log, const PoolSettingsOf& settings, Summary& summary) {
    if (summary.ooms.empty() || log.empty() || !settings) {
        return;
    }
    std::string error;
    Recording recording = read_recording(log, &error);
    if (!error.empty()) {
        return;
    }
    prefer_allocators(recording.programs);
    // The pool's own figures at a failure are read of a log only.
    const ReadResult derived = summary.report->from_log ? ReadResult() : read_report(log);
    const model::Report& report = derived.report ? *derived.report : *summary.report;
    const ReadPoolSettings read_pool = settings(recording.options);
    constexpr std::size_t max_kinds = 4;  // each takes several replays
    std::size_t kinds = 0;
    for (const AlikeFailures& alike : group_failures(summary)) {
        OomSummary& first = summary.ooms[alike.ooms.front()];
        if (first.oom->kind != "pinned" && kinds++ < max_kinds) {
            const auto same =
                std::find_if(report.ooms.begin(), report.ooms.end(), [&](const model::Oom& each) {
                    return each.time_ns == first.oom->time_ns && each.device == first.oom->device &&
                           each.requested_bytes == first.oom->requested_bytes;
                });
            if (same != report.ooms.end()) {
                first.advice = advise_on_oom(recording, report, *same, read_pool);
            }
        }
    }
}

}  // namespace memlab::report::whatif
