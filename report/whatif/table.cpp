#include "report/whatif/table.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <string_view>
#include <utility>

#include "model/parse_size.hpp"
#include "report/parallel.hpp"
#include "report/text/units.hpp"
#include "report/whatif/async_model.hpp"
#include "report/whatif/plain_model.hpp"
#include "report/whatif/pool_model.hpp"
#include "report/whatif/pool_settings.hpp"
#include "report/whatif/pytorch_model.hpp"
#include "report/whatif/rmm_model.hpp"

namespace memlab::report::whatif {

namespace {

constexpr std::uint64_t no_threshold = std::numeric_limits<std::uint64_t>::max();

/// Above any device: keeps the numbers of a hostile log in range.
constexpr std::uint64_t max_device_bytes = std::uint64_t{1} << 50;

/// The forms of a --policy.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> known_policies = {
    {{"lower-bound", "peak of live memory: no allocator needs less"},
     {"offline", "a packing with all lifetimes known in advance"},
     {"pool", "memlab's pool as it was recorded"},
     {"pool:OPTION=VALUE,...", "the same with other options, see below"},
     {"pytorch", "PyTorch's caching allocator"},
     {"pytorch:SETTING:VALUE,...", "the same with settings of PYTORCH_ALLOC_CONF"},
     {"rmm", "RMM's pool_memory_resource"},
     {"rmm:SETTING=SIZE,...", "the same with initial=SIZE|half or maximum=SIZE"},
     {"async", "cudaMallocAsync"},
     {"async:threshold=SIZE|max", "the same with this release threshold"},
     {"plain", "cudaMalloc and cudaFree, no cache"}}};

std::string policy_names() {
    std::string names;
    for (const auto& [name, what] : known_policies) {
        names.append(names.empty() ? "" : ", ").append(name);
    }
    return names;
}

/// "name=value,name=value". Commas inside brackets are part of a value.
bool for_each_setting(std::string_view text, std::string* problem,
                      const std::function<bool(std::string_view, std::string_view)>& use) {
    while (!text.empty()) {
        std::size_t end = 0;
        int depth = 0;
        for (; end < text.size() && (text[end] != ',' || depth > 0); ++end) {
            depth += text[end] == '[' ? 1 : text[end] == ']' ? -1 : 0;
        }
        const std::string_view setting = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        const std::size_t equals = setting.find('=');
        if (equals == std::string_view::npos) {
            *problem = "settings are name=value, not " + std::string(setting);
            return false;
        }
        if (!use(setting.substr(0, equals), setting.substr(equals + 1))) {
            return false;
        }
    }
    return true;
}

/// Shortens MEMLAB_BACKEND=vmm to backend=vmm, to keep the table narrow.
std::string short_names(std::string_view settings) {
    constexpr std::string_view prefix = "MEMLAB_";
    std::string text(settings);
    for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at)) {
        text.erase(at, prefix.size());
        for (; at < text.size() && text[at] != '='; ++at) {
            if (text[at] >= 'A' && text[at] <= 'Z') {
                text[at] = static_cast<char>(text[at] - 'A' + 'a');
            }
        }
    }
    return text;
}

bool read_pool(std::string_view settings, const ReadPoolSettings& read, Policy* policy,
               std::string* problem) {
    PoolSettings list;
    allocator::PoolOptions options;
    const auto use = [&](std::string_view name, std::string_view value) {
        list.emplace_back(name, value);
        return true;
    };
    bool one_stream = false;
    if (!for_each_setting(settings, problem, use) || !read(list, &options, &one_stream, problem)) {
        return false;
    }
    *problem = allocator::problem_with(options);
    if (!problem->empty()) {
        return false;
    }
    policy->ours = true;
    policy->options = options;
    policy->one_stream = one_stream;
    policy->frees_in_stream_order = one_stream;
    policy->label =
        settings.empty() ? "memlab pool, as recorded" : "memlab " + short_names(settings);
    policy->how = std::string(settings);
    const bool as_recorded = settings.empty();
    policy->make = [options, one_stream, as_recorded](std::uint64_t capacity,
                                                      const Program& program) {
        return std::make_unique<PoolModel>(
            capacity, options, one_stream,
            as_recorded ? program.recorded.segments : std::vector<RecordedSegment>());
    };
    return true;
}

bool read_pytorch(std::string_view settings, Policy* policy, std::string* problem) {
    PyTorchSettings parsed;
    if (!parse_pytorch_settings(settings, &parsed, problem)) {
        return false;
    }
    policy->pytorch = true;
    policy->label = settings.empty() ? "PyTorch" : "PyTorch " + std::string(settings);
    policy->per_stream = true;
    policy->how = std::string(settings);
    policy->make = [parsed](std::uint64_t capacity, const Program&) {
        PyTorchSettings with_limit = parsed;
        if (parsed.garbage_collection_threshold > 0) {
            with_limit.allowed = capacity;
        }
        return std::make_unique<PyTorchModel>(capacity, with_limit);
    };
    return true;
}

bool read_rmm(std::string_view settings, Policy* policy, std::string* problem) {
    RmmSettings parsed;
    bool half = false;
    const auto use = [&](std::string_view name, std::string_view value) {
        const std::optional<std::uint64_t> bytes = model::parse_size(value);
        if (name == "initial" && value == "half") {
            half = true;
            return true;
        }
        if ((name != "initial" && name != "maximum") || !bytes) {
            *problem = "rmm takes initial=SIZE, initial=half and maximum=SIZE, not " +
                       std::string(name) + "=" + std::string(value);
            return false;
        }
        if (name == "initial") {
            parsed.initial = *bytes;
        } else {
            parsed.maximum = *bytes;
        }
        return true;
    };
    if (!for_each_setting(settings, problem, use)) {
        return false;
    }
    if (parsed.maximum && parsed.initial > *parsed.maximum) {
        *problem = "rmm's initial size exceeds its maximum";
        return false;
    }
    policy->label = settings.empty() ? "RMM pool" : "RMM pool " + std::string(settings);
    policy->per_stream = true;
    policy->make = [parsed, half](std::uint64_t capacity, const Program&) {
        RmmSettings with_half = parsed;
        if (half) {
            with_half.initial = capacity / 2 / device_page * device_page;
        }
        return std::make_unique<RmmModel>(capacity, with_half);
    };
    return true;
}

bool read_async(std::string_view settings, Policy* policy, std::string* problem) {
    std::uint64_t threshold = 0;
    const auto use = [&](std::string_view name, std::string_view value) {
        if (name == "threshold" && value == "max") {
            threshold = no_threshold;
            return true;
        }
        const std::optional<std::uint64_t> bytes = model::parse_size(value);
        if (name != "threshold" || !bytes) {
            *problem = "async takes threshold=SIZE or threshold=max, not " + std::string(name) +
                       "=" + std::string(value);
            return false;
        }
        threshold = *bytes;
        return true;
    };
    if (!for_each_setting(settings, problem, use)) {
        return false;
    }
    policy->label =
        settings.empty() ? "cudaMallocAsync" : "cudaMallocAsync " + std::string(settings);
    policy->per_stream = true;
    policy->releases_at_marks = threshold != no_threshold;
    policy->make = [threshold](std::uint64_t capacity, const Program&) {
        return std::make_unique<AsyncModel>(capacity, threshold);
    };
    return true;
}

std::uint64_t available_bytes(const Program& program, std::optional<std::uint64_t> limit) {
    const std::uint64_t total =
        std::min(limit.value_or(program.device.total_bytes), max_device_bytes);
    return total - std::min(total, program.outside_bytes);
}

/// The row with the lowest reserved peak among those that `takes` accepts; of rows within 2 % of it
/// the one with the least time in the driver.
std::optional<std::size_t> best_row(const std::vector<Row>& rows,
                                    const std::function<bool(const Row&)>& takes) {
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (const Row& row : rows) {
        if (takes(row)) {
            least = std::min(least, row.outcome.reserved_peak);
        }
    }
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (!takes(rows[i]) || rows[i].outcome.reserved_peak > least + least / 50) {
            continue;
        }
        if (!best || rows[i].outcome.calls.time_ns < rows[*best].outcome.calls.time_ns) {
            best = i;
        }
    }
    return best;
}

/// Whether the pool got and gave back what it did in the recording.
bool repeats_recording(const Program& program, const Outcome& outcome) {
    const Recorded& recorded = program.recorded;
    return !outcome.failure && outcome.attempts_served == 0 &&
           outcome.reserved_peak == recorded.reserved_peak &&
           outcome.calls.allocs + outcome.calls.maps == recorded.segment_allocs &&
           outcome.calls.frees + outcome.calls.unmaps == recorded.segment_frees;
}

/// What an allocator would have done with the allocations that failed.
std::string about_attempts(const Table& table, const Outcome& outcome) {
    const std::uint64_t attempts = table.program->attempts;
    if (attempts == 0) {
        return "";
    }
    const bool one = attempts == 1;
    if (outcome.attempts_served == attempts) {
        return one ? ", and serves the allocation that failed"
                   : ", and serves all " + report::format_count(attempts) +
                         " allocations that failed";
    }
    if (outcome.attempts_served != 0) {
        return ", and serves " + report::format_count(outcome.attempts_served) + " of the " +
               report::format_count(attempts) + " allocations that failed: none serves more";
    }
    const bool elsewhere = std::any_of(table.rows.begin(), table.rows.end(), [](const Row& row) {
        return row.policy.kind == PolicyKind::allocator && row.outcome.attempts_served != 0;
    });
    const std::string failed =
        one ? "the allocation that failed"
            : "any of the " + report::format_count(attempts) + " allocations that failed";
    return elsewhere ? ", but it does not serve " + failed +
                           ": what does is out of memory where the recording was not"
                     : ", but none of these serves " + failed;
}

/// The rows of allocators that run the program, out of those that `takes` accepts: those that serve
/// most of what failed, and of these the ones that do not spend more than 5 % of the run in the
/// driver and more than ten times as long as the fastest one.
class UsableRows {
  public:
    UsableRows(const Table& table, std::function<bool(const Row&)> takes)
        : takes_(std::move(takes)) {
        for (const Row& row : table.rows) {
            if (runs(row)) {
                most_served_ = std::max(most_served_, row.outcome.attempts_served);
            }
        }
        double min_time = std::numeric_limits<double>::max();
        for (const Row& row : table.rows) {
            if (serves_most(row)) {
                min_time = std::min(min_time, row.outcome.calls.time_ns);
            }
        }
        max_time_ = std::max(0.05 * static_cast<double>(table.duration_ns), 10 * min_time);
    }

    bool serves_most(const Row& row) const {
        return runs(row) && row.outcome.attempts_served == most_served_;
    }
    bool usable(const Row& row) const {
        return serves_most(row) && row.outcome.calls.time_ns <= max_time_;
    }
    std::uint64_t most_served() const { return most_served_; }

  private:
    bool runs(const Row& row) const {
        return row.policy.kind == PolicyKind::allocator && row.fits() && takes_(row);
    }

    std::function<bool(const Row&)> takes_;
    std::uint64_t most_served_ = 0;
    double max_time_ = 0;
};

Choice choose(const Table& table) {
    // What an option can do goes before what changes the program, unless only that serves anything
    // of what failed. Of PyTorch's own cache the options are its.
    const bool of_pytorch = table.program->device.allocator == trace::DeviceInfo::pytorch;
    const auto settable = [&](const Row& row) {
        return (row.policy.ours && !of_pytorch) ||
               (row.policy.pytorch && table.program->uses_pytorch);
    };
    const UsableRows all(table, [](const Row&) { return true; });
    const UsableRows by_option(table, settable);
    const UsableRows own(table, [](const Row& row) { return row.policy.ours; });
    const bool option_serves = by_option.most_served() != 0 || all.most_served() == 0;
    const auto usable_by = [&table](const UsableRows& rows) {
        return best_row(table.rows, [&](const Row& row) { return rows.usable(row); });
    };
    Choice choice;
    choice.ours = usable_by(own);
    choice.least = usable_by(all);
    if (option_serves) {
        choice.row = usable_by(by_option);
    }
    if (!choice.row) {
        choice.row = choice.least ? choice.least : best_row(table.rows, [&](const Row& row) {
            return all.serves_most(row);
        });
    }
    using report::format_bytes;
    if (!choice.row) {
        choice.why = "nothing fits: the program holds " + format_bytes(table.bound.rounded) +
                     " at once, but only " + format_bytes(table.capacity) + " are available";
        if (table.bound.rounded <= table.capacity) {
            choice.why += "; only an allocator that knew all lifetimes in advance could serve it";
        }
        return choice;
    }
    // memlab's pool unless another is clearly better: it needs no change of the program.
    const Row& least = table.rows[*choice.row];
    if (choice.ours && !of_pytorch &&
        table.rows[*choice.ours].outcome.attempts_served >= least.outcome.attempts_served &&
        table.rows[*choice.ours].outcome.reserved_peak <=
            least.outcome.reserved_peak + least.outcome.reserved_peak / 50) {
        choice.row = choice.ours;
    }
    const Outcome& chosen = table.rows[*choice.row].outcome;
    choice.why = "reserves " + format_bytes(chosen.reserved_peak) + " at most, " +
                 report::format_percent(chosen.reserved_peak, table.bound.rounded) +
                 " of what the program holds at once" + about_attempts(table, chosen);
    if (!all.usable(table.rows[*choice.row]) && !by_option.usable(table.rows[*choice.row])) {
        choice.why += ", but spends " +
                      report::format_duration(static_cast<std::uint64_t>(chosen.calls.time_ns)) +
                      " in the driver's calls, in a run of " +
                      report::format_duration(table.duration_ns);
    }
    return choice;
}

}  // namespace

std::vector<std::string> default_policies() {
    return {"lower-bound",
            "offline",
            "pool",
            "pool:MEMLAB_BACKEND=classic",
            "pool:MEMLAB_FRAGMENTED_ROUNDING_MB=16",
            "pool:MEMLAB_FRAGMENTED_ROUNDING_MB=0",
            "pool:MEMLAB_LARGE_ROUNDING_MB=8",
            "pool:MEMLAB_ROUNDUP_POWER2_DIVISIONS=4",
            "pool:MEMLAB_BACKEND=vmm",
            "pytorch",
            "pytorch:max_split_size_mb:128",
            "pytorch:expandable_segments:True",
            "rmm",
            "async",
            "async:threshold=max",
            "plain"};
}

bool same_pool(const Policy& a, const Policy& b) {
    return a.ours && b.ours && a.options == b.options && a.one_stream == b.one_stream;
}

std::string policy_help() {
    std::string text;
    for (const auto& [name, what] : known_policies) {
        text.append("  ").append(name).append(27 - name.size(), ' ');
        text.append(what).append("\n");
    }
    return text;
}

bool read_policy(std::string_view text, const ReadPoolSettings& read_pool_settings, Policy* policy,
                 std::string* problem) {
    const std::size_t colon = text.find(':');
    const std::string_view name = text.substr(0, colon);
    const std::string_view settings =
        colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
    policy->name = text;
    if (name == "pool") {
        return read_pool(settings, read_pool_settings, policy, problem);
    }
    if (name == "pytorch") {
        return read_pytorch(settings, policy, problem);
    }
    if (name == "rmm") {
        return read_rmm(settings, policy, problem);
    }
    if (name == "async") {
        return read_async(settings, policy, problem);
    }
    if (colon == std::string_view::npos) {
        if (name == "plain") {
            policy->label = "plain CUDA";
            policy->make = [](std::uint64_t capacity, const Program&) {
                return std::make_unique<PlainModel>(capacity);
            };
            return true;
        }
        if (name == "lower-bound" || name == "offline") {
            policy->kind = name == "offline" ? PolicyKind::offline : PolicyKind::lower_bound;
            policy->label = name == "offline" ? "offline packing" : "held at once";
            return true;
        }
    }
    *problem = "no policy " + std::string(text) + "; there are " + policy_names();
    return false;
}

Table tabulate(const Program& program, const std::vector<Policy>& policies,
               std::optional<std::uint64_t> limit, const RowObserver& begins) {
    Table table;
    table.program = &program;
    table.bound = lower_bound(program);
    table.capacity = available_bytes(program, limit);
    table.limited = limit.has_value();
    if (!program.allocations.empty()) {
        table.duration_ns =
            program.allocations.back().time_ns - program.allocations.front().time_ns;
    }
    table.rows.resize(policies.size());
    std::mutex observing;
    std::size_t begun = 0;
    report::for_each_in_parallel(policies.size(), [&](std::size_t i) {
        if (begins) {
            const std::lock_guard lock(observing);
            begins(begun++);
        }
        const Policy& policy = policies[i];
        Row& row = table.rows[i];
        row.policy = policy;
        row.capacity = table.capacity;
        switch (policy.kind) {
            case PolicyKind::allocator:
                row.outcome = run(program, *policy.make(table.capacity, program));
                if (policy.is_recorded_pool()) {
                    table.is_as_recorded = repeats_recording(program, row.outcome);
                    row.policy.label = table.is_as_recorded ? "memlab pool, as recorded"
                                                            : "memlab pool, same settings";
                }
                break;
            case PolicyKind::lower_bound:
                row.outcome.reserved_peak = table.bound.rounded;
                break;
            case PolicyKind::offline:
                row.packing = pack_offline(program);
                row.outcome.reserved_peak = row.packing.bytes;
                break;
        }
    });
    table.choice = choose(table);
    table.notes = make_notes(program, table);
    return table;
}

}  // namespace memlab::report::whatif
