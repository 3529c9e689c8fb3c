#include "report/check/measure.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "report/check/place_sums.hpp"
#include "report/steps.hpp"
#include "report/summary/filter.hpp"
#include "report/summary/framework_findings.hpp"
#include "report/summary/ledger.hpp"
#include "report/text/units.hpp"
#include "report/views/site_stats.hpp"

namespace memlab::report::check {

namespace {

using namespace memlab::report;

class Measurer {
  public:
    Measurer(const MeasuredProcess& process, Metric metric, const Subject& subject)
        : process_(process),
          summary_(process.summary),
          report_(*process.summary.report),
          resolver_(process.resolver),
          metric_(metric),
          subject_(subject) {
        if (const bool nn = subject.kind == Subject::Kind::nn_module;
            nn || subject.kind == Subject::Kind::site) {  // valid: see subject_problem()
            filter_.add((nn ? "nn_module=" : "") + subject.text);
        }
    }

    Measured run() {
        switch (metric_) {
            case Metric::growth:
                growth();
                break;
            case Metric::bypass:
                bypass();
                break;
            case Metric::ooms:
                ooms();
                break;
            case Metric::contexts:
            case Metric::modules:
            case Metric::unexplained:
                ledger();
                break;
            default:
                switch (subject_.kind) {
                    case Subject::Kind::all:
                    case Subject::Kind::kind:
                        measure_devices();
                        break;
                    case Subject::Kind::site:
                    case Subject::Kind::nn_module:
                        measure_site();
                        break;
                    case Subject::Kind::scope:
                        measure_scope();
                        break;
                }
        }
        return std::move(out_);
    }

  private:
    // ---- whole process -------------------------------------------------------------------------

    void measure_devices() {
        for (const DeviceSummary& summary : summary_.devices) {
            Measurement value;
            value.device = summary.device->index;
            if (measure_device(summary, value)) {
                out_.values.push_back(std::move(value));
            }
        }
        if (out_.values.empty()) {
            out_.absent = metric_ == Metric::fragmentation && !summary_.devices.empty()
                              ? "no memory went through memlab's pool; leave this limit out, or "
                                "record with MEMLAB_POOL=on"
                              : "no GPU memory was recorded; check what was run";
        }
    }

    bool measure_device(const DeviceSummary& summary, Measurement& value) {
        const model::Device& device = *summary.device;
        if (metric_ == Metric::leaks || metric_ == Metric::leak_count) {
            leaks(summary, value);
            return true;
        }
        if (const std::string kind = metric_ == Metric::peak_managed  ? "managed"
                                     : metric_ == Metric::peak_pinned ? "pinned"
                                                                      : subject_.text;
            !kind.empty()) {
            measure_kind(device, kind, value);
            return device.is_gpu() || !subject_.text.empty();
        }
        switch (metric_) {
            case Metric::peak_allocated:
                value.figure = Figure::whole(device.curve(model::Curve::allocated).peak_bytes);
                value.responsible = largest_holders(summary.at_peak);
                return true;
            case Metric::peak_reserved:
                value.figure = Figure::whole(device.curve(model::Curve::reserved).peak_bytes);
                return true;
            case Metric::allocations: {
                for (const auto& [kind, totals] : device.kinds) {
                    value.figure =
                        value.figure + Figure::whole(model::is_in_curves(kind) ? totals.count : 0);
                }
                PlaceSums places;
                for (const model::Site& site : report_.sites) {
                    if (site.device == device.index && model::is_in_curves(site.kind)) {
                        places.add(resolver_.place(site.stack), site.kind,
                                   Figure::whole(site.count));
                    }
                }
                value.responsible = places.largest();
                return true;
            }
            default:  // fragmentation
                if (device.fragmentation.at_peak) {
                    value.figure = Figure::real(*device.fragmentation.at_peak);
                }
                return device.fragmentation.at_peak.has_value();
        }
    }

    Figure live_figure(std::uint64_t bytes, std::uint64_t count) const {
        return Figure::whole(metric_ == Metric::leaks ? bytes : count);
    }

    bool is_counted(const std::string& kind) const {
        return subject_.kind == Subject::Kind::kind
                   ? kind == subject_.text
                   : std::find(process_.excluded_kinds.begin(), process_.excluded_kinds.end(),
                               kind) == process_.excluded_kinds.end();
    }

    void measure_kind(const model::Device& device, const std::string& wanted, Measurement& value) {
        const bool of_peak = metric_ != Metric::allocations;
        const auto amount = [of_peak](const auto& of) {
            return of_peak ? of.peak_bytes : of.count;
        };
        const auto totals = device.kinds.find(wanted);
        value.figure = Figure::whole(totals == device.kinds.end() ? 0 : amount(totals->second));
        const bool has_curve = device.kind_curves && device.kind_curves->contains(wanted);
        const ViewedMemory at_peak =
            of_peak && has_curve ? ViewedMemory(device, wanted) : ViewedMemory(device);
        PlaceSums places;
        for (std::size_t i = 0; i < report_.sites.size(); ++i) {
            const model::Site& site = report_.sites[i];
            if (site.device == device.index && site.kind == wanted) {
                places.add(
                    resolver_.place(site.stack), site.kind,
                    Figure::whole(at_peak.kind().empty() ? amount(site)
                                                         : at_peak.stats(site, i).peak_bytes));
            }
        }
        value.responsible = places.largest();
    }

    /// The device in whose figure a leak of the site is; none: it is in no figure. What PyTorch
    /// allocated in its cache counts on the GPU, in place of the cache's segments.
    std::optional<std::uint64_t> leaks_on(const model::Site& site) const {
        if (is_segment_seen_inside(report_, site)) {
            return std::nullopt;
        }
        if (is_selected(site.device)) {
            return site.device;
        }
        for (const model::Device& device : report_.devices) {
            if (device.index == site.device && is_frameworks_cache(device) &&
                is_selected(device.gpu())) {
                return device.gpu();
            }
        }
        return std::nullopt;
    }

    /// Live memory of every kind, without suppressed sites.
    void leaks(const DeviceSummary& summary, Measurement& value) {
        PlaceSums places;
        Figure suppressed;
        for (const model::Site& site : report_.sites) {
            if (site.live_count == 0 || !is_counted(site.kind) ||
                leaks_on(site) != summary.device->index) {
                continue;
            }
            const Figure live = live_figure(site.live_bytes, site.live_count);
            const auto& frames = resolver_.frames(site.stack);
            if (find_suppression(process_.suppressions, report_, site, frames, LeakKind::at_end) !=
                nullptr) {
                suppressed = suppressed + live;
            } else {
                value.figure = value.figure + live;
                places.add(resolver_.place(site.stack), site.kind, live);
            }
        }
        if (suppressed > Figure()) {
            value.note = "without " + figure_text(suppressed, info(metric_).unit) +
                         " that may stay (memlab-report leaks says why)";
        }
        for (const std::string& kind : process_.excluded_kinds) {
            if (subject_.kind == Subject::Kind::all) {
                value.note += (value.note.empty() ? "" : ", ") + std::string("without ") + kind +
                              " memory, which has a limit of its own";
            }
        }
        value.responsible = places.largest();
    }

    // ---- sites ---------------------------------------------------------------------------------

    bool is_chosen(const std::string& kind, std::size_t stack) const {
        return filter_.empty() || filter_.matches(kind, resolver_.frames(stack));
    }

    bool is_selected(std::uint64_t device) const {
        return std::any_of(summary_.devices.begin(), summary_.devices.end(),
                           [&](const auto& each) { return each.device->index == device; });
    }

    void measure_site() {
        std::map<std::uint64_t, std::pair<Figure, PlaceSums>> devices;
        const std::vector<bool> chosen = filter_.sites(report_, resolver_);
        const bool every_kind = metric_ == Metric::leaks || metric_ == Metric::leak_count;
        const bool of_nn_module = subject_.kind == Subject::Kind::nn_module;
        const std::vector<bool> named = filter_.nn_modules(report_);
        if (of_nn_module && std::find(named.begin(), named.end(), true) != named.end()) {
            for (const DeviceSummary& each : summary_.devices) {
                devices[each.device->index];  // where it has nothing, too
            }
        }
        std::string skipped_kind;
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            const model::Site& site = report_.sites[i];
            std::optional<std::uint64_t> device;
            if (every_kind || of_nn_module) {
                device = leaks_on(site);
            } else if (is_selected(site.device)) {
                device = site.device;
            }
            if (!chosen[i] || !device) {
                continue;
            }
            if (!every_kind && !model::is_in_curves(site.kind)) {
                skipped_kind = site.kind;
                continue;
            }
            const std::uint64_t amount = metric_ == Metric::peak_allocated
                                             ? of_nn_module ? site.at_peak_bytes : site.peak_bytes
                                         : metric_ == Metric::leaks      ? site.live_bytes
                                         : metric_ == Metric::leak_count ? site.live_count
                                                                         : site.count;
            auto& [sum, places] = devices[*device];
            sum = sum + Figure::whole(amount);
            places.add(resolver_.place(site.stack), site.kind, Figure::whole(amount));
        }
        for (const auto& [device, found] : devices) {
            Measurement value;
            value.device = device;
            value.figure = found.first;
            value.responsible = found.second.largest();
            if (metric_ == Metric::peak_allocated) {
                value.note = of_nn_module ? "its part of what was held at the peak"
                                          : "the sum of its call sites' own peaks";
            }
            out_.values.push_back(std::move(value));
        }
        if (out_.values.empty() && !skipped_kind.empty()) {
            const std::string metric(info(metric_).name);
            out_.absent = "\"" + subject_.text + "\" matches " + skipped_kind + " memory, which " +
                          metric + " does not count; limit it by its kind (" + metric +
                          "@kind:" + skipped_kind + ")";
            return;
        }
        set_absent_if_empty(of_nn_module ? "nn.Module is named" : "call stack matches",
                            of_nn_module ? " nn-modules" : " sites");
    }

    // ---- scopes --------------------------------------------------------------------------------

    void measure_scope() {
        const model::Scope* worst = nullptr;
        Figure max_figure;
        for (std::size_t i = 0; i < report_.scopes.size(); ++i) {
            const model::Scope& scope = report_.scopes[i];
            if (!is_path_named(scope_path(report_, i), subject_.text)) {
                continue;
            }
            const Figure figure = Figure::whole(metric_ == Metric::peak_allocated ? scope.peak_bytes
                                                : metric_ == Metric::leaks ? scope.max_escaped_bytes
                                                                           : scope.allocated_count);
            if (worst == nullptr || figure > max_figure) {
                worst = &scope;
                max_figure = figure;
            }
        }
        if (worst != nullptr) {
            Measurement value{{}, max_figure, {}, {}};
            if (metric_ == Metric::leaks) {
                value.note = "the maximum of a single entry";
                PlaceSums places;
                for (const model::Holders::Share& share : worst->escaped.sites) {
                    const model::Site& site = report_.sites.at(share.site);
                    places.add(resolver_.place(site.stack), site.kind, Figure::whole(share.bytes));
                }
                value.responsible = places.largest();
            }
            out_.values.push_back(std::move(value));
        }
        set_absent_if_empty("scope is named", "");
    }

    void set_absent_if_empty(const std::string& what, const std::string& command) {
        if (out_.values.empty()) {
            out_.absent = "no " + what + " \"" + subject_.text + "\"; memlab-report" + command +
                          " lists them";
        }
    }

    // ---- growth --------------------------------------------------------------------------------

    bool may_grow(const model::Site& site) const {
        return find_suppression(process_.suppressions, report_, site, resolver_.frames(site.stack),
                                LeakKind::growing) != nullptr;
    }

    /// The growth of the subject by one kind of step.
    Measurement measure_growth(const model::Steps& steps) {
        const bool whole = subject_.kind != Subject::Kind::site;
        Measurement value;
        PlaceSums places;
        Figure of_sites;
        Figure suppressed;
        for (const model::Steps::Growing& growing : steps.growing) {
            const model::Site& site = report_.sites.at(growing.site);
            if (!is_chosen(site.kind, site.stack)) {
                continue;
            }
            const Figure rate = Figure::real(std::max(growing.trend.bytes_per_step, 0.0));
            if (whole && may_grow(site)) {
                suppressed = suppressed + rate;
            } else {
                of_sites = of_sites + rate;
                places.add(resolver_.place(site.stack), site.kind, rate);
            }
        }
        value.note =
            steps.verdict + " over " + format_plural(steps.steps, "step") + " of " + steps.name;
        if (steps.verdict != "growing") {
            return value;
        }
        value.responsible = places.largest();
        value.figure = of_sites;
        if (whole && suppressed == Figure()) {
            value.figure = Figure::real(std::max(steps.trend.bytes_per_step, 0.0));
        } else if (whole) {
            // The slopes of sites do not add up exactly to that of the whole. When not every
            // growing site is listed, the remainder of the whole may hide one.
            if (steps.growing.size() < steps.growing_site_count || steps.sites_left_out != 0) {
                const Figure all = Figure::real(std::max(steps.trend.bytes_per_step, 0.0));
                value.figure = std::max(value.figure, std::max(all - suppressed, Figure()));
            }
            value.note += ", without " + figure_text(suppressed, info(metric_).unit) +
                          " that may grow (--suppressions)";
        }
        return value;
    }

    void growth() {
        bool too_few = false;
        for (const model::Steps& steps : report_.steps) {
            const bool right_kind =
                subject_.kind != Subject::Kind::scope ||
                (steps.kind != "mark" && (is_path_named(steps.name, subject_.text) ||
                                          is_path_named(subject_.text, steps.name)));
            if (!right_kind || (subject_.kind == Subject::Kind::site && !steps.by_site)) {
                continue;
            }
            if (steps.verdict == "too few steps") {
                too_few = true;
                continue;
            }
            Measurement value = measure_growth(steps);
            if (out_.values.empty()) {
                out_.values.push_back(std::move(value));
            } else if (value.figure > out_.values.front().figure) {
                out_.values.front() = std::move(value);
            }
        }
        if (out_.values.empty()) {
            out_.absent = too_few
                              ? "there were too few steps for a verdict; run more of them"
                              : "there are no steps to tell growth by: none are marked, and none "
                                "are found in an event log; mark them (memlab_mark, "
                                "memlab_scope_begin or NVTX: docs/scopes.md)";
        }
    }

    // ---- counted per process -------------------------------------------------------------------

    void bypass() {
        const model::Coverage& coverage = report_.coverage;
        if (!coverage.audited && coverage.bypassed_count == 0) {
            out_.absent =
                "not audited: " +
                (coverage.because.empty() ? std::string("the audit was off.") : coverage.because) +
                " Record with MEMLAB_AUDIT=on";
            out_.unknowable = true;
            return;
        }
        Measurement value;
        PlaceSums places;
        Figure sum;
        for (const BypassSummary& bypass : summary_.bypasses) {
            if (is_chosen(bypass.bypassed->kind, bypass.bypassed->stack)) {
                const Figure bytes = Figure::whole(bypass.bypassed->bytes);
                sum = sum + bytes;
                places.add(bypass.place, bypass.bypassed->kind, bytes);
            }
        }
        value.figure =
            subject_.kind == Subject::Kind::all ? Figure::whole(coverage.bypassed_bytes) : sum;
        value.responsible = places.largest();
        out_.values.push_back(std::move(value));
        if (!coverage.audited || coverage.lost_records != 0) {
            out_.unproven =
                "the audit is not whole; " +
                (coverage.lost_records != 0 ? std::string("CUPTI lost records") : coverage.because);
        }
    }

    void ooms() {
        Measurement value{{}, Figure::whole(report_.oom_count), {}, {}};
        PlaceSums places;
        for (const OomSummary& oom : summary_.ooms) {
            places.add(oom.place, oom.oom->kind, Figure::whole(1));
        }
        value.responsible = places.largest();
        out_.values.push_back(std::move(value));
    }

    // ---- the ledger ----------------------------------------------------------------------------

    void ledger() {
        for (const model::Device& device : report_.devices) {
            const auto page = ledger_page(device, resolver_, LedgerAt::peak);
            if (!page) {
                continue;
            }
            Measurement value;
            value.device = device.index;
            if (metric_ == Metric::unexplained) {
                value.figure = Figure::real(page->used == 0 ? 0
                                                            : static_cast<double>(page->rest) /
                                                                  static_cast<double>(page->used));
            }
            PlaceSums places;
            for (const LedgerGroup& group : page->groups) {
                const bool contexts = metric_ == Metric::contexts && group.kind == "context";
                const bool code = metric_ == Metric::modules &&
                                  (group.kind == "module" || group.kind == "kernel");
                for (const LedgerLine& line : group.lines) {
                    const Figure part = Figure::whole(contexts ? 1 : code ? line.bytes : 0);
                    value.figure = value.figure + part;
                    places.add(line.place, "", part);
                }
            }
            value.responsible = places.largest();
            out_.values.push_back(std::move(value));
        }
        if (out_.values.empty()) {
            out_.absent = "no ledger was kept; record with MEMLAB_LEDGER=auto";
            out_.unknowable = true;
        }
    }

    MeasuredProcess process_;
    const Summary& summary_;
    const model::Report& report_;
    Resolver& resolver_;
    Metric metric_;
    const Subject& subject_;
    Filter filter_;
    Measured out_;
};

}  // namespace

Measured measure(const MeasuredProcess& process, Metric metric, const Subject& subject) {
    return Measurer(process, metric, subject).run();
}

}  // namespace memlab::report::check
