#include "model/report_builder.hpp"

#include <algorithm>

#include "model/oom_explanation.hpp"
#include "model/utf8.hpp"

namespace memlab::model {
namespace {

static_assert(Report::max_threads == trace::Aggregator::max_thread_names);
static_assert(Report::max_ooms == trace::Aggregator::max_ooms);
static_assert(Report::max_marks == trace::Aggregator::max_marks);
static_assert(Report::max_scopes == trace::ScopeStats::max_scopes);
static_assert(Report::max_steps == trace::StepStats::max_kinds);
static_assert(Report::max_labels == trace::LabelStats::max_names);
static_assert(max_site_labels == trace::LabelStats::max_of_site);
static_assert(Coverage::max_bypassed == trace::Aggregator::max_bypasses);
static_assert(Ledger::max_communicators == trace::Ledger::max_communicators);

const char* name_of(trace::Ended ended) {
    static constexpr const char* names[] = {"exit", "quick_exit", "cut off"};
    return trace::name_in<trace::Ended::cut_off>(names, ended, "cut off");
}

const char* name_of(trace::Figures figures) {
    static constexpr const char* names[] = {"", "complete", "at least"};
    return trace::name_in<trace::Figures::at_least>(names, figures, "");
}

Process process(const trace::Aggregator& from, Moment moment) {
    const trace::ProcessInfo& info = from.process();
    Process out;
    out.pid = info.pid;
    out.parent_pid = info.parent_pid;
    out.executable = valid_utf8(info.executable);
    for (const std::string& argument : info.arguments) {
        out.arguments.push_back(valid_utf8(argument));
    }
    out.host = valid_utf8(info.host);
    out.start_wall_ns = info.start_wall_ns;
    out.duration_ns = from.duration_ns();
    out.ended = moment == Moment::running ? "running" : name_of(from.ended());
    if (moment != Moment::running && from.end().exit_code != trace::End::unknown_code) {
        out.exit_code = from.end().exit_code;
    }
    out.started_late = info.started_late;
    // The first of a name counts; they are compared as recorded.
    for (auto rank = info.ranks.begin(); rank != info.ranks.end(); ++rank) {
        const auto same = [rank](const auto& other) { return other.first == rank->first; };
        if (std::find_if(info.ranks.begin(), rank, same) == rank) {
            out.ranks.add(valid_utf8(rank->first), valid_utf8(rank->second));
        }
    }
    return out;
}

}  // namespace

CurveValues curve_values(const std::array<std::uint64_t, 4>& current) {
    return {current[0], current[1], current[2], current[3]};
}

Holders holders(const trace::Composition& from) {
    Holders out;
    out.count = from.count;
    out.bytes = from.bytes;
    out.sites.reserve(from.sites.size());
    for (const trace::Holder& holder : from.sites) {
        out.sites.push_back({holder.site, holder.count, holder.bytes});
    }
    out.other_sites = from.other_sites;
    out.other_count = from.other_count;
    out.other_bytes = from.other_bytes;
    return out;
}

std::optional<std::uint64_t> limit(std::uint64_t bytes) {
    return bytes == 0 ? std::nullopt : std::optional(bytes);
}

std::string ReportBuilder::text(std::uint32_t id) const {
    return valid_utf8(from_.string(id));
}

std::unique_ptr<Report> ReportBuilder::without_tables() const {
    auto out = std::make_unique<Report>();
    out->memlab_version = valid_utf8(from_.process().memlab_version);
    out->process = process(from_, moment_);
    for (const trace::OptionValue& option : from_.options()) {
        out->options.add(valid_utf8(option.name), valid_utf8(option.value));
    }
    out->oom_count = from_.oom_count();
    out->mark_count = from_.mark_count();
    const trace::UnbalancedScopes& unbalanced = from_.scopes().unbalanced();
    out->unbalanced_scopes = {unbalanced.ends_without_begin, unbalanced.ended_with_thread,
                              unbalanced.too_many_open, from_.scopes().open_count()};
    // Always there, so that "nothing was found" differs from "nothing was checked".
    Coverage& coverage = out->coverage;
    coverage.because = trace::Coverage::not_wanted;
    if (from_.coverage().has_value()) {
        const trace::Coverage& recorded = *from_.coverage();
        coverage.audited = recorded.audited;
        coverage.because = text(recorded.because);
        coverage.cupti = text(recorded.cupti);
        coverage.driver_count = recorded.count;
        coverage.driver_bytes = recorded.bytes;
        coverage.lost_records = recorded.lost;
    }
    coverage.bypassed_count = from_.bypassed_count();
    coverage.bypassed_bytes = from_.bypassed_bytes();
    const trace::Integrity& integrity = from_.integrity();
    out->integrity = {integrity.unmatched_frees,
                      integrity.unmatched_segment_frees,
                      integrity.overwritten_allocations,
                      integrity.overwritten_segments,
                      integrity.incomplete,
                      integrity.earlier_times,
                      integrity.overflowed};
    out->log = {from_.event_count(), from_.end().events_dropped,
                valid_utf8(from_.end().log_stopped_because), from_.log_stopped_ns(), damage_};
    const trace::StepStats& steps = from_.step_stats();
    if (steps.kinds_left_out() != 0 ||
        from_.scopes().path_count() + from_.scopes().family_count() >= Report::max_steps ||
        from_.mark_count() > Report::max_marks) {
        out->step_kinds_left_out = steps.kinds_left_out();
    }
    return out;
}

void ReportBuilder::each(EntryTaker<Context>& to) const {
    for (const trace::ContextTotals& context : from_.contexts()) {
        to.take({context.info.id, context.info.device, context.info.primary,
                 context.lost ? std::optional(context.lost_time_ns) : std::nullopt});
    }
}

void ReportBuilder::each(EntryTaker<Thread>& to) const {
    for (const auto& [thread, name] : from_.thread_names()) {
        to.take({thread, text(name)});
    }
}

void ReportBuilder::each(EntryTaker<Site>& to) const {
    const std::vector<trace::SiteLabel> labels = from_.labels().by_site();
    auto label = labels.begin();
    to.expect(from_.sites().size());
    for (std::uint32_t i = 0; i < from_.sites().size(); ++i) {
        const trace::Site& site = from_.sites()[i];
        const trace::Holder at_peak = from_.held_at_peak(i);
        Site out;
        out.device = site.device;
        out.kind = trace::name_of(site.kind);
        out.api = text(site.api);
        out.stack = site.stack;
        out.count = site.count;
        out.requested_bytes = site.requested_bytes;
        out.bytes = site.bytes;
        out.peak_bytes = site.peak_bytes;
        out.peak_time_ns = site.peak_time_ns;
        out.at_peak_count = at_peak.count;
        out.at_peak_bytes = at_peak.bytes;
        out.live_count = site.live_count;
        out.live_bytes = site.live_bytes;
        out.temporaries = site.temporaries;
        out.freed_elsewhere = site.freed_elsewhere;
        out.segment_count = site.segment_count;
        out.segment_bytes = site.segment_bytes;
        if (!site.lifetimes.empty()) {
            out.lifetime =
                Lifetime{site.lifetimes.min(), site.lifetimes.median(), site.lifetimes.max()};
        }
        if (const trace::Collected collected = from_.collected(i); collected.count != 0) {
            out.collected = Collected{collected.count, collected.bytes, collected.at_peak_count,
                                      collected.at_peak_bytes};
        }
        for (; label != labels.end() && label->site <= i; ++label) {
            if (label->site == i) {
                out.labels.push_back({valid_utf8(label_name(from_, label->name)), label->count,
                                      label->live_count, label->live_bytes, text(label->detail)});
            }
        }
        to.take(std::move(out));
    }
}

void ReportBuilder::each(EntryTaker<Stack>& to) const {
    to.expect(from_.stacks().size());
    for (const trace::StackFrames& stack : from_.stacks()) {
        to.take({{stack.frames.begin(), stack.frames.end()}, stack.truncated});
    }
}

void ReportBuilder::each(EntryTaker<Frame>& to) const {
    to.expect(from_.frames().size());
    for (const trace::Frame& frame : from_.frames()) {
        to.take({frame.module, frame.address, frame.python});
    }
}

/// The first one is "no Python frame"; where it is the only one there is no table.
void ReportBuilder::each(EntryTaker<PythonFrame>& to) const {
    if (from_.python_frames().size() == 1) {
        return;
    }
    for (const trace::PythonFrameDef& frame : from_.python_frames()) {
        to.take({text(frame.function), text(frame.file), frame.line, frame.first_line});
    }
}

void ReportBuilder::each(EntryTaker<Module>& to) const {
    for (const trace::ModuleDef& module : from_.modules()) {
        to.take({valid_utf8(module.path), valid_utf8(module.build_id), module.bias, module.start,
                 module.end});
    }
}

void ReportBuilder::each(EntryTaker<Missed>& to) const {
    for (const trace::MissedTotals& missed : from_.missed()) {
        to.take({text(missed.reason), missed.count, missed.bytes, missed.first_time_ns,
                 name_of(missed.figures)});
    }
}

void ReportBuilder::each(EntryTaker<Coverage::Bypassed>& to) const {
    for (const trace::BypassTotals& bypass : from_.bypasses()) {
        to.take({bypass.device, trace::name_of(bypass.kind), text(bypass.api), bypass.stack,
                 bypass.count, bypass.bytes, bypass.first_time_ns});
    }
}

// What the compiler makes of a report's members, once (report.hpp says why).
Report::Report() = default;
Report::Report(const Report& other) = default;
Report::Report(Report&& other) noexcept = default;
Report& Report::operator=(const Report& other) = default;
Report& Report::operator=(Report&& other) noexcept = default;
Report::~Report() = default;

}  // namespace memlab::model
