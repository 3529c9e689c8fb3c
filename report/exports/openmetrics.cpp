// Exports the figures of a run as OpenMetrics text, which Prometheus' textfile collector (node
// exporter) reads, too. All are gauges: the final values of a finished run.
#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/rank_variables.hpp"
#include "report/device_label.hpp"
#include "report/exports/formats.hpp"
#include "report/exports/output.hpp"
#include "report/lacks.hpp"
#include "report/runs/process_matching.hpp"
#include "report/summary/ledger.hpp"
#include "report/summary/summary.hpp"
#include "report/text/names.hpp"

namespace memlab::report::exports {

using model::Curve;
using model::Device;
using model::Report;
using report::LedgerAt;

namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

constexpr std::array<std::pair<Curve, const char*>, model::curve_count> curves = {
    {{Curve::requested, "requested"},
     {Curve::allocated, "allocated"},
     {Curve::active, "active"},
     {Curve::reserved, "reserved"},
     {Curve::device_used, "device_used"}}};

class Metrics {
  public:
    Metrics(const std::vector<MetricsProcess>& processes, std::optional<std::uint64_t> device,
            model::ByteSink& sink)
        : device_(device), out_(sink) {
        for (const MetricsProcess& each : processes) {
            members_.push_back({each.report, each.lacks, labels_of(*each.report)});
        }
    }

    Result write() {
        run();
        memory();
        ledger();
        troubles();
        out_ << "# EOF\n";
        return {out_.finish(), ""};
    }

  private:
    struct Member {
        const Report* report;
        const std::vector<report::Lack>& lacks;
        Labels labels;  ///< of each of its values
    };

    /// What no two processes share: exports of several that end up in one folder stay apart.
    static Labels labels_of(const Report& report) {
        const std::string executable = report::base_name(report.process.executable);
        Labels labels = {{"executable", executable},
                         {"pid", std::to_string(report.process.pid)},
                         {"host", report.process.host}};
        if (const std::string script = report::program_name(report.process); script != executable) {
            labels.emplace_back("script", script);
        }
        for (const char* rank : model::rank_variables) {
            if (const auto at = report.process.ranks.find(rank); at != report.process.ranks.end()) {
                labels.emplace_back("rank", at->second);
                break;
            }
        }
        return labels;
    }

    void family(const char* name, const char* unit, const char* help) {
        name_ = name;
        out_ << "# HELP " << name << ' ' << help << '\n';
        out_ << "# TYPE " << name << " gauge\n";
        if (*unit != '\0') {
            out_ << "# UNIT " << name << ' ' << unit << '\n';
        }
    }

    void labels(const Labels& of) {
        for (const auto& [name, value] : of) {
            out_ << (first_ ? "{" : ",") << name << "=\"";
            first_ = false;
            for (const char c : clean_name(value)) {
                if (c == '\\' || c == '"') {
                    out_ << '\\';
                }
                out_ << c;
            }
            out_ << '"';
        }
    }

    template <typename Value>
    void value(const Labels& own, Value value) {
        out_ << name_;
        first_ = true;
        labels(member_->labels);
        labels(own);
        out_ << "} ";
        char digits[32];
        const auto end = std::to_chars(digits, digits + sizeof digits, value);
        out_ << std::string_view(digits, static_cast<std::size_t>(end.ptr - digits)) << '\n';
    }

    static double seconds(std::uint64_t nanoseconds) {
        return static_cast<double>(nanoseconds) / 1e9;
    }

    /// `use` gives the values of the process.
    void for_processes(const std::function<void(const Report&)>& use) {
        for (const Member& member : members_) {
            member_ = &member;
            use(*member.report);
        }
    }

    static Labels labels_of(const Device& device) {
        Labels labels = {{"device", std::to_string(device.gpu())}, {"uuid", device.uuid}};
        if (!device.is_gpu()) {
            labels.emplace_back("allocator", device.allocator);
        }
        return labels;
    }

    bool wants(const Device& device) const {
        return !device_ || report::is_on(device.index, *device_);
    }

    void for_devices(const std::function<void(const Device&, const Labels&)>& use) {
        for_processes([&](const Report& report) { for_devices(report, use); });
    }

    void for_devices(const Report& report,
                     const std::function<void(const Device&, const Labels&)>& use) {
        for (const Device& device : report.devices) {
            if (device.used() && wants(device)) {
                use(device, labels_of(device));
            }
        }
    }

    void run() {
        family("memlab_run_info", "", "The process that was recorded; always 1.");
        for_processes([this](const Report& report) {
            value({{"ended", end_word(report.process)}, {"memlab_version", report.memlab_version}},
                  1);
        });
        family("memlab_start_time_seconds", "seconds", "When the process started, in Unix time.");
        for_processes(
            [this](const Report& report) { value({}, seconds(report.process.start_wall_ns)); });
        family("memlab_duration_seconds", "seconds", "How long the process was recorded.");
        for_processes(
            [this](const Report& report) { value({}, seconds(report.process.duration_ns)); });
    }

    /// A family of one sample for each curve of each device.
    void curve_family(const char* name, const char* help,
                      std::uint64_t model::CurveSummary::*member) {
        family(name, "bytes", help);
        for_devices([&](const Device& device, const Labels& own) {
            for (const auto& [curve, label] : curves) {
                if (const auto& figures = device.curves.at(static_cast<std::size_t>(curve))) {
                    Labels with = own;
                    with.emplace_back("curve", label);
                    value(with, (*figures).*member);
                }
            }
        });
    }

    void kind_family(const char* name, const char* unit, const char* help,
                     std::uint64_t model::KindTotals::*member) {
        family(name, unit, help);
        for_devices([&](const Device& device, const Labels& own) {
            for (const auto& [kind, totals] : device.kinds) {
                Labels with = own;
                with.emplace_back("kind", kind);
                value(with, totals.*member);
            }
        });
    }

    void memory() {
        family("memlab_device_memory_bytes", "bytes", "Memory of the GPU.");
        for_devices(
            [this](const Device& device, const Labels& own) { value(own, device.total_bytes); });
        curve_family("memlab_peak_bytes", "Peak of each curve.", &model::CurveSummary::peak_bytes);
        curve_family("memlab_end_bytes", "Each curve at the end.",
                     &model::CurveSummary::at_end_bytes);
        kind_family("memlab_allocations", "", "Allocations made, by kind of memory.",
                    &model::KindTotals::count);
        kind_family("memlab_allocated_bytes", "bytes",
                    "Bytes of all allocations made, by kind of memory.", &model::KindTotals::bytes);
        kind_family("memlab_kind_peak_bytes", "bytes",
                    "Most bytes held at once, by kind of memory.", &model::KindTotals::peak_bytes);
        kind_family("memlab_live_allocations", "", "Allocations never freed, by kind of memory.",
                    &model::KindTotals::live_count);
        kind_family("memlab_live_bytes", "bytes", "Bytes never freed, by kind of memory.",
                    &model::KindTotals::live_bytes);
        family("memlab_fragmentation_ratio", "ratio",
               "Of memlab's pool: cached at the peak, external, internal.");
        for_devices([this](const Device& device, const Labels& own) {
            const model::Fragmentation& figures = device.fragmentation;
            const std::array<std::pair<const char*, std::optional<double>>, 3> all = {
                {{"at_peak", figures.at_peak},
                 {"external", figures.external},
                 {"internal", figures.internal}}};
            for (const auto& [figure, ratio] : all) {
                if (ratio) {
                    Labels with = own;
                    with.emplace_back("figure", figure);
                    value(with, *ratio);
                }
            }
        });
    }

    /// Also of a GPU on which nothing was allocated: a context takes memory there.
    void ledger() {
        const auto has_ledger = [this](const Device& device) {
            return device.ledger.has_value() && wants(device);
        };
        if (std::none_of(members_.begin(), members_.end(), [&](const Member& member) {
                return std::any_of(member.report->devices.begin(), member.report->devices.end(),
                                   has_ledger);
            })) {
            return;
        }
        family("memlab_ledger_bytes", "bytes",
               "What the device's used memory is made of, at its sampled peak and end.");
        for_processes([&](const Report& report) {
            report::Resolver no_names(report, nullptr);
            for (const Device& device : report.devices) {
                if (has_ledger(device)) {
                    ledger(device, "peak", report::ledger_page(device, no_names, LedgerAt::peak));
                    ledger(device, "end", report::ledger_page(device, no_names, LedgerAt::end));
                }
            }
        });
    }

    void ledger(const Device& device, const char* moment,
                const std::optional<report::LedgerPage>& page) {
        const auto group = [&](const std::string& name, std::uint64_t bytes) {
            Labels with = labels_of(device);
            with.insert(with.end(), {{"moment", moment}, {"group", name}});
            value(with, bytes);
        };
        for (const report::LedgerGroup& each : page->groups) {
            group(each.kind, each.bytes);
        }
        group("rest", page->rest);
    }

    void troubles() {
        family("memlab_out_of_memory_failures", "", "Allocations that failed for lack of memory.");
        for_processes([this](const Report& report) { value({}, report.oom_count); });
        if (std::any_of(members_.begin(), members_.end(),
                        [](const Member& member) { return member.report->coverage.audited; })) {
            family("memlab_bypassed_bytes", "bytes",
                   "Bytes allocated past memlab, found by the audit.");
            for_processes([this](const Report& report) {
                if (report.coverage.audited) {
                    value({}, report.coverage.bypassed_bytes);
                }
            });
        }
        family("memlab_missed", "", "What memlab could not see or serve.");
        for_processes([this](const Report& report) {
            std::uint64_t missed = 0;
            for (const model::Missed& each : report.missed) {
                missed += each.count;
            }
            value({}, missed);
        });
        family("memlab_log_events_dropped", "", "Events missing from the log.");
        for_processes([this](const Report& report) { value({}, report.log.dropped); });
        family("memlab_complete", "",
               "1: nothing is missing in the recording and its run, 0: memlab_lack says what is.");
        for_processes([this](const Report&) { value({}, member_->lacks.empty() ? 1 : 0); });
        family("memlab_lack", "",
               "1 for each thing that the recording, or the run that it is part of, lacks.");
        for_processes([this](const Report&) {
            std::set<std::string_view> names;
            for (const report::Lack& lack : member_->lacks) {
                names.insert(info(lack.kind).name);
            }
            for (const std::string_view name : names) {
                value({{"name", std::string(name)}}, 1);
            }
        });
    }

    const std::optional<std::uint64_t> device_;
    Output out_;
    std::vector<Member> members_;
    const Member* member_ = nullptr;  ///< whose values are written
    const char* name_ = "";
    bool first_ = true;
};

}  // namespace

Result write_openmetrics(const Input& input, model::ByteSink& sink) {
    return write_openmetrics_of_run({{&input.recording.report, input.recording.lacks}},
                                    input.device, sink);
}

Result write_openmetrics_of_run(const std::vector<MetricsProcess>& processes,
                                std::optional<std::uint64_t> device, model::ByteSink& sink) {
    return Metrics(processes, device, sink).write();
}

}  // namespace memlab::report::exports
