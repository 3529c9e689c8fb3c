// Exports the figures of a run as OpenMetrics text, which Prometheus' textfile collector (node
// exporter) reads, too. All are gauges: the final values of a finished run.
#include <array>
#include <charconv>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "report/export/formats.hpp"
#include "report/export/output.hpp"
#include "report/summary/ledger.hpp"
#include "report/text/names.hpp"
#include "trace/json/rank_variables.hpp"

namespace memlab::exports {

using report::Curve;
using report::Device;

namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;

constexpr std::array<std::pair<Curve, const char*>, report::curve_count> curves = {
    {{Curve::requested, "requested"},
     {Curve::allocated, "allocated"},
     {Curve::active, "active"},
     {Curve::reserved, "reserved"},
     {Curve::device_used, "device_used"}}};

class Metrics {
  public:
    Metrics(const Input& input, report::ByteSink& sink)
        : input_(input), report_(input.recording.report), out_(sink) {
        common_.emplace_back("executable", report::base_name(report_.process.executable));
        for (const char* rank : report::rank_variables) {
            if (const auto at = report_.process.ranks.find(rank);
                at != report_.process.ranks.end()) {
                common_.emplace_back("rank", at->second);
                break;
            }
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
        labels(common_);
        labels(own);
        out_ << "} ";
        char digits[32];
        const auto end = std::to_chars(digits, digits + sizeof digits, value);
        out_ << std::string_view(digits, static_cast<std::size_t>(end.ptr - digits)) << '\n';
    }

    static double seconds(std::uint64_t nanoseconds) {
        return static_cast<double>(nanoseconds) / 1e9;
    }

    static Labels labels_of(const Device& device) {
        Labels labels = {{"device", std::to_string(device.gpu())}, {"uuid", device.uuid}};
        if (!device.is_gpu()) {
            labels.emplace_back("allocator", device.allocator);
        }
        return labels;
    }

    void for_devices(const std::function<void(const Device&, const Labels&)>& use) {
        for (const Device& device : report_.devices) {
            if (device.used() && input_.wants(device.index)) {
                use(device, labels_of(device));
            }
        }
    }

    void run() {
        family("memlab_run_info", "", "The process that was recorded; always 1.");
        value({{"pid", std::to_string(report_.process.pid)},
               {"host", report_.process.host},
               {"ended", report_.process.ended},
               {"memlab_version", report_.memlab_version}},
              1);
        family("memlab_start_time_seconds", "seconds", "When the process started, in Unix time.");
        value({}, seconds(report_.process.start_wall_ns));
        family("memlab_duration_seconds", "seconds", "How long the process was recorded.");
        value({}, seconds(report_.process.duration_ns));
    }

    /// A family of one sample for each curve of each device.
    void curve_family(const char* name, const char* help,
                      std::uint64_t report::CurveSummary::*member) {
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
                     std::uint64_t report::KindTotals::*member) {
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
        curve_family("memlab_peak_bytes", "Peak of each curve.", &report::CurveSummary::peak_bytes);
        curve_family("memlab_end_bytes", "Each curve at the end.",
                     &report::CurveSummary::at_end_bytes);
        kind_family("memlab_allocations", "", "Allocations made, by kind of memory.",
                    &report::KindTotals::count);
        kind_family("memlab_allocated_bytes", "bytes",
                    "Bytes of all allocations made, by kind of memory.",
                    &report::KindTotals::bytes);
        kind_family("memlab_live_allocations", "", "Allocations never freed, by kind of memory.",
                    &report::KindTotals::live_count);
        kind_family("memlab_live_bytes", "bytes", "Bytes never freed, by kind of memory.",
                    &report::KindTotals::live_bytes);
        family("memlab_fragmentation_ratio", "ratio",
               "Of memlab's pool: cached at the peak, external, internal.");
        for_devices([this](const Device& device, const Labels& own) {
            const report::Fragmentation& figures = device.fragmentation;
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
        constexpr std::array<std::pair<const char*, report::LedgerAt>, 2> moments = {
            {{"peak", report::LedgerAt::peak}, {"end", report::LedgerAt::end}}};
        bool first = true;
        for (const Device& device : report_.devices) {
            if (!device.ledger || !input_.wants(device.index)) {
                continue;
            }
            if (first) {
                family("memlab_ledger_bytes", "bytes",
                       "What the device's used memory is made of, at its sampled peak and end.");
                first = false;
            }
            for (const auto& [moment, at] : moments) {
                const auto page = report::ledger_page(device, input_.resolver, at);
                const auto group = [&, moment = moment](const std::string& name, auto bytes) {
                    Labels with = labels_of(device);
                    with.insert(with.end(), {{"moment", moment}, {"group", name}});
                    value(with, bytes);
                };
                for (const report::LedgerGroup& each : page->groups) {
                    group(each.kind, each.bytes);
                }
                group("rest", page->rest);
            }
        }
    }

    void troubles() {
        family("memlab_out_of_memory_failures", "", "Allocations that failed for lack of memory.");
        value({}, report_.oom_count);
        if (report_.coverage.audited) {
            family("memlab_bypassed_bytes", "bytes",
                   "Bytes allocated past memlab, found by the audit.");
            value({}, report_.coverage.bypassed_bytes);
        }
        family("memlab_missed", "", "What memlab could not see or serve.");
        std::uint64_t missed = 0;
        for (const report::Missed& each : report_.missed) {
            missed += each.count;
        }
        value({}, missed);
        family("memlab_log_events_dropped", "", "Events missing from the log.");
        value({}, report_.log.dropped);
    }

    const Input& input_;
    const report::Report& report_;
    Output out_;
    Labels common_;
    const char* name_ = "";
    bool first_ = true;
};

}  // namespace

Result write_openmetrics(const Input& input, report::ByteSink& sink) {
    return Metrics(input, sink).write();
}

}  // namespace memlab::exports
