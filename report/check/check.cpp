#include "report/check/check.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "report/device_label.hpp"
#include "trace/event.hpp"

namespace memlab::report::check {

namespace {

/// The key of the figures of `device` (none: of the first GPU); empty for a process without a GPU.
BaselineKey baseline_key(const Process& process, const std::optional<std::uint64_t>& device) {
    for (const report::DeviceSummary& each : process.summary.devices) {
        if (!device || report::is_on(each.device->index, *device)) {
            return {each.device->name, static_cast<std::uint64_t>(each.device->driver_version)};
        }
    }
    return {};
}

MeasuredProcess measured(const Process& process, std::vector<std::string> excluded_kinds = {}) {
    return {std::move(excluded_kinds), process.summary, *process.resolver, *process.suppressions};
}

/// The kinds of memory that have their own limit of `metric`.
std::vector<std::string> limited_kinds(const std::vector<Limit>& limits, Metric metric) {
    std::vector<std::string> kinds;
    for (const Limit& limit : limits) {
        if (limit.metric == metric && limit.subject.kind == Subject::Kind::kind &&
            std::find(kinds.begin(), kinds.end(), limit.subject.text) == kinds.end()) {
            kinds.push_back(limit.subject.text);
        }
    }
    return kinds;
}

/// Whether the lack makes that figure uncertain.
bool concerns(report::Lack::Kind kind, Metric metric, const Subject& subject) {
    using Kind = report::Lack::Kind;
    switch (kind) {
        case Kind::gap:    // sums and peaks are exact
        case Kind::audit:  // measured with what it concerns
            return false;
        case Kind::bypassed:
            return metric != Metric::bypass;
        case Kind::scopes:
            return metric == Metric::growth || subject.kind == Subject::Kind::scope;
        case Kind::steps:
            return metric == Metric::growth;
        default:
            return true;
    }
}

/// Whether the lack may have made the figure too high: memory that was held when the recording
/// stopped may have been freed later, and shares are of sums that are not complete.
bool may_raise(report::Lack::Kind kind, Metric metric, const Subject& subject) {
    using Kind = report::Lack::Kind;
    switch (metric) {
        case Metric::leaks:
        case Metric::leak_count:
            return subject.kind != Subject::Kind::scope &&
                   (unfinished_kinds().contains(kind) || kind == Kind::damaged ||
                    kind == Kind::unseen || kind == Kind::host_memory);
        case Metric::fragmentation:
        case Metric::unexplained:
            return concerns(kind, metric, subject);
        default:
            return false;
    }
}

/// "1 of 4 ranks is missing: 2; copy the files of all ranks, or add --allow ranks ...".
std::string problem_of(const report::Lack& lack) {
    const report::LackInfo& about = info(lack.kind);
    std::string text = lack.text;
    if (text.ends_with('.')) {
        text.pop_back();
    }
    return text + "; " + std::string(about.advice) + ", or add --allow " + std::string(about.name) +
           " to judge by what there is";
}

class Checker {
  public:
    Checker(const std::vector<Process>& processes, const Options& options)
        : processes_(processes), options_(options) {
        for (const Process& process : processes) {
            std::set<BaselineKey> keys;
            for (const report::DeviceSummary& each : process.summary.devices) {
                keys.insert(
                    {each.device->name, static_cast<std::uint64_t>(each.device->driver_version)});
            }
            for (const BaselineKey& key : keys) {
                ++process_counts_[key];
            }
        }
    }

    /// `excluded_kinds`: MeasuredProcess::excluded_kinds.
    void apply(const Limit& limit, const std::vector<std::string>& excluded_kinds) {
        if (processes_.empty()) {
            problem("there is no recording to check");
            return;
        }
        if (is_of_run(limit.metric)) {
            apply_to_ranks(limit);
            return;
        }
        std::size_t applied = 0;
        std::string absent;
        for (std::size_t p = 0; p < processes_.size(); ++p) {
            Measured found =
                measure(measured(processes_[p], excluded_kinds), limit.metric, limit.subject);
            const std::string what = name_of(limit.metric, limit.subject) + ": ";
            if (found.values.empty()) {
                if (found.unknowable) {
                    problem(prefix(p) + what + found.absent);
                    ++applied;
                } else if (absent.empty()) {
                    absent =
                        (processes_.size() == 1 ? prefix(p) : std::string()) + what + found.absent;
                }
            }
            for (Measurement& value : found.values) {
                ++applied;
                Row row{p, limit.metric, limit.subject, limit, std::move(value), {}, {}, {}};
                judge(row);
                const bool uncertain =
                    row.verdict == Verdict::kept
                        ? is_unfinished(p) || is_lacking(p, limit.metric, limit.subject)
                        : row.verdict == Verdict::exceeded &&
                              may_be_too_high(p, limit.metric, limit.subject);
                if (uncertain) {
                    row.verdict = Verdict::unknown;  // report_lacks() says why
                } else if (row.verdict == Verdict::kept && !found.unproven.empty()) {
                    row.verdict = Verdict::unknown;
                    problem(prefix(p) + what + found.unproven);
                }
                out_.rows.push_back(std::move(row));
            }
        }
        if (applied == 0) {
            problem(absent + " (limited by " + limit.origin + ")");
        }
    }

    /// What a recording lacks proves no limit: a problem, where it concerns one. Where that is
    /// allowed, the recording is judged by what it has: a note.
    void report_lacks(const std::vector<Limit>& limits) {
        for (const report::Lack& lack : options_.lacks) {
            report_lack("", lack);
        }
        for (std::size_t p = 0; p < processes_.size(); ++p) {
            const Process& process = processes_[p];
            if (is_unfinished(p)) {
                problem(process.name + " " + process.unfinished +
                        "; record it to its end, or add --allow-unfinished to judge it by what "
                        "there is");
            } else if (!process.unfinished.empty()) {
                add_unique(out_.notes,
                           process.name + " " + process.unfinished + ": judged by what there is.");
            }
            for (const report::Lack& lack : process.lacks) {
                const bool concerned =
                    std::any_of(limits.begin(), limits.end(), [&](const Limit& limit) {
                        return concerns(lack.kind, limit.metric, limit.subject);
                    });
                if (concerned && unfinished_kinds().count(lack.kind) == 0) {
                    report_lack(process.name + ": ", lack);
                }
            }
        }
    }

    /// Adds a row without a limit where the metric has none.
    void show(Metric metric) {
        for (std::size_t p = 0; p < processes_.size(); ++p) {
            for (Measurement& value : measure(measured(processes_[p]), metric, Subject()).values) {
                const bool there =
                    std::any_of(out_.rows.begin(), out_.rows.end(), [&](const Row& row) {
                        return row.process == p && row.metric == metric &&
                               row.subject == Subject() && row.measured.device == value.device;
                    });
                if (!there && is_shown(processes_[p], metric, value)) {
                    out_.rows.push_back(
                        {p, metric, Subject(), {}, std::move(value), {}, {}, Verdict::shown});
                }
            }
        }
    }

    Outcome finish() {
        std::stable_sort(out_.rows.begin(), out_.rows.end(), [](const Row& a, const Row& b) {
            const auto rank = [](const Row& row) {
                return std::make_tuple(is_of_run(row.metric), row.process, !row.measured.device,
                                       row.measured.device.value_or(0), row.subject.kind,
                                       row.metric);
            };
            return rank(a) < rank(b);
        });
        return std::move(out_);
    }

  private:
    /// A row of the first rank's: its name is the same in every run.
    void apply_to_ranks(const Limit& limit) {
        const std::vector<report::RankRow>& ranks = options_.ranks;
        const std::string name = name_of(limit.metric, limit.subject);
        const report::Imbalance peaks = report::imbalance_of(ranks);
        if (limit.bound.relative()) {
            return problem(
                "the limit of " + name + " (" + limit.origin +
                ") is above a baseline, which has no figure of a run; give a share (10%)");
        }
        if (ranks.size() < 2 || !peaks.ratio) {
            return problem(name +
                           ": there are no two ranks with GPU memory to compare; give the folder "
                           "of a run with ranks, or leave this limit out (" +
                           limit.origin + ")");
        }
        Measurement value;
        value.figure = Figure::real(*peaks.ratio - 1);
        value.note = report::imbalance_text(peaks);
        Row row{
            ranks.front().member, limit.metric, limit.subject, limit, std::move(value), {}, {}, {}};
        judge(row);
        const bool proven = std::none_of(ranks.begin(), ranks.end(), [&](const auto& rank) {
            return is_unfinished(rank.member) ||
                   is_lacking(rank.member, limit.metric, limit.subject);
        });
        // Where it is exceeded, too: the mean may be larger. report_lacks() says why.
        row.verdict = proven ? row.verdict : Verdict::unknown;
        out_.rows.push_back(std::move(row));
    }

    bool is_allowed(const report::Lack& lack) const {
        return options_.allowed_lacks.count(lack.kind) != 0;
    }

    /// Memory that is not in the allocated peak: where there is some, and it is worth telling.
    static bool is_shown(const Process& process, Metric metric, const Measurement& value) {
        if (metric != Metric::peak_managed && metric != Metric::peak_pinned) {
            return true;
        }
        return value.figure > Figure() &&
               std::any_of(process.summary.devices.begin(), process.summary.devices.end(),
                           [&value](const report::DeviceSummary& each) {
                               return each.device->index == value.device &&
                                      report::is_worth_telling(*each.device,
                                                               value.figure.as_whole());
                           });
    }

    bool is_unfinished(std::size_t p) const {
        const std::vector<report::Lack>& lacks = processes_[p].lacks;
        return !processes_[p].unfinished.empty() &&
               std::any_of(lacks.begin(), lacks.end(), [this](const report::Lack& lack) {
                   return unfinished_kinds().count(lack.kind) != 0 && !is_allowed(lack);
               });
    }

    /// Whether the process, or the run as a whole, lacks what the figure needs.
    bool is_lacking(std::size_t p, Metric metric, const Subject& subject) const {
        const auto lacking = [&](const report::Lack& lack) {
            return concerns(lack.kind, metric, subject) && !is_allowed(lack);
        };
        const std::vector<report::Lack>& own = processes_[p].lacks;
        return std::any_of(own.begin(), own.end(), lacking);
    }

    bool may_be_too_high(std::size_t p, Metric metric, const Subject& subject) const {
        const std::vector<report::Lack>& own = processes_[p].lacks;
        return std::any_of(own.begin(), own.end(), [&](const report::Lack& lack) {
            return may_raise(lack.kind, metric, subject) && !is_allowed(lack);
        });
    }

    void report_lack(const std::string& subject, const report::Lack& lack) {
        if (is_allowed(lack)) {
            add_unique(out_.notes, subject + lack.text + " Judged by what there is.");
        } else {
            problem(subject + problem_of(lack));
        }
    }

    /// "train.py: ", or "" where there is only one process.
    std::string prefix(std::size_t p) const {
        return processes_.size() == 1 ? std::string() : processes_[p].name + ": ";
    }

    void problem(const std::string& what) { add_unique(out_.problems, what); }

    static void add_unique(std::vector<std::string>& list, const std::string& what) {
        if (std::find(list.begin(), list.end(), what) == list.end()) {
            list.push_back(what);
        }
    }

    void judge(Row& row) {
        const Limit& limit = *row.limit;
        const Unit unit = info(row.metric).unit;
        if (limit.bound.relative()) {
            if (options_.update) {
                row.verdict = Verdict::recorded;
                return;
            }
            row.baseline = find_baseline(row);
            if (!row.baseline) {
                row.verdict =
                    options_.missing_baseline_passes ? Verdict::no_baseline : Verdict::unknown;
                return;
            }
        }
        row.allowed = allowed(limit.bound, unit, row.baseline.value_or(Figure()));
        row.verdict = row.measured.figure > *row.allowed ? Verdict::exceeded : Verdict::kept;
    }

    std::optional<Figure> find_baseline(const Row& row) {
        const BaselineKey key = baseline_key(processes_[row.process], row.measured.device);
        std::string missing;
        if (options_.baseline == nullptr) {
            missing = "the limit of " + name_of(row.metric, row.subject) + " (" +
                      row.limit->origin +
                      ") is relative to a baseline, and none was given; add "
                      "--baseline FILE";
        } else if (!options_.baseline->contains(key)) {
            missing = options_.baseline_name + " has no baseline for " + key_text(key) +
                      "; record one on this machine with --update";
        } else {
            const std::vector<std::string> names = options_.baseline->processes(key);
            const bool only_one = names.size() == 1 && process_counts_[key] == 1;
            const auto found = options_.baseline->find(
                key, only_one ? std::string() : processes_[row.process].name, row.measured.device,
                row.metric, row.subject);
            if (found) {
                return found;
            }
            missing = options_.baseline_name + " has no " + name_of(row.metric, row.subject) +
                      (only_one ? std::string() : " of " + processes_[row.process].name) + " for " +
                      key_text(key) + "; record it with --update";
        }
        add_unique(options_.missing_baseline_passes && options_.baseline != nullptr ? out_.notes
                                                                                    : out_.problems,
                   missing);
        return std::nullopt;
    }

    const std::vector<Process>& processes_;
    const Options& options_;
    std::map<BaselineKey, std::size_t> process_counts_;
    Outcome out_;
};

}  // namespace

const char* name_of(Verdict verdict) {
    static constexpr const char* names[] = {"ok",       "EXCEEDED",    "no limit",
                                            "recorded", "no baseline", "UNKNOWN"};
    return trace::name_in<Verdict::unknown>(names, verdict, "");
}

std::size_t Outcome::count(Verdict verdict) const {
    return static_cast<std::size_t>(std::count_if(
        rows.begin(), rows.end(), [&](const Row& row) { return row.verdict == verdict; }));
}

int Outcome::exit_code() const {
    if (count(Verdict::exceeded) != 0) {
        return 1;
    }
    return problems.empty() ? 0 : 2;
}

Outcome check(const std::vector<Process>& processes, const std::vector<Limit>& limits,
              const Options& options) {
    Checker checker(processes, options);
    checker.report_lacks(limits);
    for (const Limit& limit : limits) {
        checker.apply(limit, limited_kinds(limits, limit.metric));
    }
    checker.show(Metric::peak_allocated);
    checker.show(Metric::peak_reserved);
    // Not in these: a program may have nothing else.
    checker.show(Metric::peak_managed);
    checker.show(Metric::peak_pinned);
    return checker.finish();
}

const std::set<report::Lack::Kind>& unfinished_kinds() {
    using Kind = report::Lack::Kind;
    static const std::set<Kind> kinds = {Kind::running, Kind::cut_off, Kind::stopped};
    return kinds;
}

std::string baseline_problem(const std::vector<Process>& processes,
                             const std::vector<report::Lack>& lacks,
                             const std::set<report::Lack::Kind>& allowed) {
    const auto find = [&allowed](const std::vector<report::Lack>& list) {
        return std::find_if(list.begin(), list.end(), [&](const report::Lack& lack) {
            return lack.kind != report::Lack::Kind::gap && allowed.count(lack.kind) == 0;
        });
    };
    if (const auto found = find(lacks); found != lacks.end()) {
        return "as a baseline: " + problem_of(*found);
    }
    for (const Process& process : processes) {
        const auto found = find(process.lacks);
        if (found == process.lacks.end()) {
            continue;
        }
        return unfinished_kinds().count(found->kind) != 0
                   ? process.file + ": as a baseline " + process.unfinished +
                         "; take one of a whole run, or add --allow-unfinished"
                   : process.file + ": as a baseline: " + problem_of(*found);
    }
    return {};
}

std::vector<BaselineFigure> baseline_figures(const std::vector<Process>& processes,
                                             const std::vector<Limit>& limits) {
    std::vector<std::pair<Metric, Subject>> wanted;
    for (const MetricInfo& metric : metrics()) {
        wanted.emplace_back(metric.metric, Subject());
    }
    for (const Limit& limit : limits) {
        const std::pair<Metric, Subject> one(limit.metric, limit.subject);
        if (std::find(wanted.begin(), wanted.end(), one) == wanted.end()) {
            wanted.push_back(one);
        }
    }
    std::vector<BaselineFigure> figures;
    for (const Process& process : processes) {
        if (process.summary.devices.empty()) {
            continue;
        }
        for (const auto& [metric, subject] : wanted) {
            if (is_of_run(metric)) {
                continue;
            }
            const Measured found =
                measure(measured(process, limited_kinds(limits, metric)), metric, subject);
            for (const Measurement& value : found.values) {
                figures.push_back({baseline_key(process, value.device), process.name, value.device,
                                   metric, subject, value.figure});
            }
        }
    }
    return figures;
}

}  // namespace memlab::report::check
