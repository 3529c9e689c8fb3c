#include "report/reading/validate.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "report/reading/schema_fields.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

using JsonValue = nlohmann::json;
__extension__ using WideSum = unsigned __int128;

constexpr std::size_t max_problems = 5;
constexpr std::size_t max_rows = trace::Timeline::max_buckets;
constexpr std::size_t max_ooms = model::Report::max_ooms;
constexpr std::size_t max_marks = model::Report::max_marks;
constexpr std::size_t max_bypassed = model::Coverage::max_bypassed;

std::string number(WideSum value) {
    return value > ~std::uint64_t{0} ? std::string("more than 2^64")
                                     : std::to_string(static_cast<std::uint64_t>(value));
}

class Validator {
  public:
    /// `root`: the text that it was read from; null where it was not.
    Validator(const model::Report& report, const JsonValue* root) : report_(report), root_(root) {}

    Validation run() {
        tables();
        for (std::size_t i = 0; i < report_.sites.size(); ++i) {
            site(i);
        }
        for (const model::Device& each : report_.devices) {
            device(each);
        }
        for (std::size_t i = 0; i < report_.scopes.size(); ++i) {
            const model::Scope& scope = report_.scopes[i];
            const std::string where = "scopes[" + std::to_string(i) + "]";
            holders(scope.escaped, where + ".escaped");
            at_most(scope.max_escaped_bytes, scope.escaped.bytes, where + ".escaped.most_bytes",
                    "its bytes");
        }
        for (std::size_t i = 0; i < report_.ooms.size(); ++i) {
            holders(report_.ooms[i].holders, "ooms[" + std::to_string(i) + "].holders");
        }
        coverage();
        out_.what = "report of " + base_name(report_.process.executable) + " (pid " +
                    std::to_string(report_.process.pid) + "), " +
                    format_plural(report_.sites.size(), "site");
        return std::move(out_);
    }

  private:
    void problem(const std::string& what) {
        if (out_.problems.size() < max_problems) {
            out_.problems.push_back(what);
        } else {
            ++out_.more;
        }
    }

    void equal(WideSum a, WideSum b, const std::string& what, const std::string& other) {
        if (a != b) {
            problem(what + " is " + number(a) + ", but " + other + " " + number(b));
        }
    }

    void at_most(WideSum a, WideSum b, const std::string& what, const std::string& other) {
        if (a > b) {
            problem(what + " is " + number(a) + ", more than " + other + ", " + number(b));
        }
    }

    /// Report does not keep it, since it is the site's position.
    void site_id(std::size_t i, const std::string& where) {
        if (root_ == nullptr) {
            return;
        }
        const JsonValue& site = root_->at("sites").at(i);
        const auto found = site.find("id");
        if (found == site.end() || !found->is_number_unsigned() ||
            found->get<std::uint64_t>() != i) {
            problem(where + ".id is not " + std::to_string(i));
        }
    }

    void tables() {
        if (report_.stacks.empty() || !report_.stacks.front().frames.empty()) {
            problem("stacks[0] is not the empty one");
        }
        if (report_.modules.empty() || !report_.modules.front().path.empty()) {
            problem("modules[0] is not the unknown one");
        }
        at_most(report_.ooms.size(), max_ooms, "the number of ooms", "there may be");
        at_most(report_.ooms.size(), report_.oom_count, "the number of ooms", "oom_count");
        at_most(report_.marks.size(), max_marks, "the number of marks", "there may be");
        at_most(report_.marks.size(), report_.mark_count, "the number of marks", "mark_count");
        if (report_.ooms.size() < max_ooms) {
            equal(report_.oom_count, report_.ooms.size(), "oom_count", "the number of ooms is");
        }
        if (report_.marks.size() < max_marks) {
            equal(report_.mark_count, report_.marks.size(), "mark_count", "the number of marks is");
        }
        std::uint64_t previous = 0;
        for (std::size_t i = 0; i < report_.devices.size(); ++i) {
            if (i != 0 && report_.devices[i].index <= previous) {
                problem("devices are not in the order of their indexes");
            }
            previous = report_.devices[i].index;
        }
    }

    void site(std::size_t i) {
        const model::Site& site = report_.sites[i];
        const std::string where = "sites[" + std::to_string(i) + "]";
        site_id(i, where);
        at_most(site.live_count, site.count, where + ".live_count", "its count");
        at_most(site.live_bytes, site.peak_bytes, where + ".live_bytes", "its peak_bytes");
        at_most(site.peak_bytes, site.bytes, where + ".peak_bytes", "its bytes");
        at_most(site.temporaries, site.count, where + ".temporaries", "its count");
        at_most(site.freed_elsewhere, site.count, where + ".freed_elsewhere", "its count");
        if (site.collected) {
            const model::Collected& collected = *site.collected;
            const std::string of = where + ".collected";
            const std::uint64_t freed = site.count - std::min(site.count, site.live_count);
            at_most(collected.count, freed, of + ".count", "what was freed of it");
            at_most(collected.bytes, site.bytes - std::min(site.bytes, site.live_bytes),
                    of + ".bytes", "what was freed of it");
            at_most(collected.at_peak_count, std::min(collected.count, site.at_peak_count),
                    of + ".at_peak_count", "its count, and that of the site");
            at_most(collected.at_peak_bytes, std::min(collected.bytes, site.at_peak_bytes),
                    of + ".at_peak_bytes", "its bytes, and those of the site");
        }
        if (site.lifetime) {
            at_most(site.lifetime->min, site.lifetime->median, where + ".lifetime_ns.min",
                    "median");
            at_most(site.lifetime->median, site.lifetime->max, where + ".lifetime_ns.median",
                    "max");
        }
        if (std::none_of(
                report_.devices.begin(), report_.devices.end(),
                [&](const model::Device& device) { return device.index == site.device; })) {
            problem(where + ".device is " + std::to_string(site.device) +
                    ", which is not among the devices");
        }
        at_most(site.at_peak_bytes, site.peak_bytes, where + ".at_peak_bytes", "its peak_bytes");
        at_most(site.requested_bytes, site.bytes, where + ".requested_bytes", "its bytes");
        if (model::is_in_curves(site.kind)) {
            Sums& at_peak = at_peak_[site.device];
            at_peak.count += site.at_peak_count;
            at_peak.bytes += site.at_peak_bytes;
        }
        Sums& sums = sums_[{site.device, site.kind}];
        sums.peak_bytes += site.peak_bytes;
        sums.count += site.count;
        sums.bytes += site.bytes;
        sums.live_count += site.live_count;
        sums.live_bytes += site.live_bytes;
    }

    void holders(const model::Holders& holders, const std::string& where) {
        WideSum count = holders.other_count;
        WideSum bytes = holders.other_bytes;
        for (const model::Holders::Share& share : holders.sites) {
            count += share.count;
            bytes += share.bytes;
        }
        equal(holders.count, count, where + ".count", "its parts are");
        equal(holders.bytes, bytes, where + ".bytes", "its parts are");
    }

    void device(const model::Device& device) {
        const std::string where =
            "devices[" + std::to_string(&device - report_.devices.data()) + "]";
        const model::CurveSummary& allocated = device.curve(model::Curve::allocated);
        equal(device.at_peak.bytes, allocated.peak_bytes, where + ".at_peak.bytes",
              "the allocated peak is");
        equal(device.live.bytes, allocated.at_end_bytes, where + ".live.bytes",
              "allocated ends at");
        const Sums& at_peak = at_peak_[device.index];
        equal(device.at_peak.bytes, at_peak.bytes, where + ".at_peak.bytes", "the sites have");
        equal(device.at_peak.count, at_peak.count, where + ".at_peak.count", "the sites have");
        equal(device.at_peak.time_ns, allocated.peak_time_ns, where + ".at_peak.time_ns",
              "the allocated peak was at");
        holders(device.at_peak, where + ".at_peak");
        holders(device.live, where + ".live");
        for (const model::Holders::Share& share : device.at_peak.sites) {
            if (report_.sites[share.site].at_peak_bytes != share.bytes) {
                problem("sites[" + std::to_string(share.site) + "].at_peak_bytes is not " +
                        std::to_string(share.bytes));
            }
        }
        for (const model::Holders::Share& share : device.live.sites) {
            equal(share.bytes, report_.sites[share.site].live_bytes,
                  where + ".live of site " + std::to_string(share.site), "the site has");
        }
        for (const auto& [kind, totals] : device.kinds) {
            const std::string path = std::string(where).append(".kinds.").append(kind);
            const Sums& sums = sums_[{device.index, kind}];
            equal(totals.count, sums.count, path + ".count", "its sites have");
            equal(totals.bytes, sums.bytes, path + ".bytes", "its sites have");
            equal(totals.live_count, sums.live_count, path + ".live_count", "its sites have");
            equal(totals.live_bytes, sums.live_bytes, path + ".live_bytes", "its sites have");
            at_most(totals.live_bytes, totals.peak_bytes, path + ".live_bytes", "its peak_bytes");
            at_most(totals.peak_bytes, sums.peak_bytes, path + ".peak_bytes", "its sites' peaks");
        }
        memory_stats(device.memory_stats, where + ".memory_stats");
        timeline(device, where);
        if (device.ledger) {
            ledger(*device.ledger, where + ".ledger");
        }
        if (device.kind_curves) {
            for (const auto& [kind, curve] : *device.kind_curves) {
                const auto totals = device.kinds.find(kind);
                kind_curve(curve,
                           totals == device.kinds.end() ? model::KindTotals() : totals->second,
                           std::string(where).append(".kind_curves.").append(kind));
            }
        }
    }

    void kind_curve(const model::KindCurve& of_kind, const model::KindTotals& totals,
                    const std::string& where) {
        equal(of_kind.curve.peak_bytes, totals.peak_bytes, where + ".peak_bytes",
              "the kind's peak is");
        equal(of_kind.curve.at_end_bytes, totals.live_bytes, where + ".at_end_bytes",
              "of the kind there are");
        within(of_kind.curve.peak_time_ns, where + ".peak_time_ns");
        equal(of_kind.at_peak.bytes, of_kind.curve.peak_bytes, where + ".at_peak.bytes",
              "the peak is");
        equal(of_kind.live.bytes, of_kind.curve.at_end_bytes, where + ".live.bytes", "it ends at");
        holders(of_kind.at_peak, where + ".at_peak");
        holders(of_kind.live, where + ".live");
        at_most(of_kind.rows.size(), max_rows, where + "'s number of rows", "there may be");
        std::uint64_t highest = 0;
        std::uint64_t last = 0;
        for (const model::KindCurve::Row& row : of_kind.rows) {
            highest = std::max(highest, row.max);
            last = row.last;
        }
        equal(highest, of_kind.curve.peak_bytes, where + ".rows' max_bytes", "the peak is");
        equal(last, of_kind.curve.at_end_bytes, where + ".rows' last_bytes", "it ends at");
    }

    void ledger(const model::Ledger& ledger, const std::string& where) {
        within(ledger.latest.time_ns, where + ".latest.time_ns");
        at_most(ledger.latest.used, ledger.peak.used, where + ".latest.used_bytes", "the peak's");
        for (std::size_t i = 0; i < ledger.rows.size(); ++i) {
            const model::Ledger::Row& row = ledger.rows[i];
            const std::string path = where + ".rows[" + std::to_string(i) + "]";
            at_most(row.at_peak_bytes, row.max_bytes, path + ".at_peak_bytes", "its max_bytes");
            at_most(row.bytes, row.max_bytes, path + ".bytes", "its max_bytes");
        }
    }

    void within(std::uint64_t time_ns, const std::string& what) {
        at_most(time_ns, report_.process.duration_ns, what, "process.duration_ns");
    }

    /// Statistics named as in PyTorch ("active_bytes.all.current"): current is allocated minus
    /// freed, and "all" is the sum of the two pools.
    void memory_stats(const model::Named<std::uint64_t>& stats, const std::string& where) {
        const auto figure = [&stats](const std::string& name) {
            const auto found = stats.find(name);
            return found != stats.end() ? found->second : std::uint64_t{0};
        };
        for (const auto& [name, value] : stats) {
            std::string what = where;
            what.append("[").append(name).append("]");
            const std::string of = name.substr(0, name.rfind('.'));
            if (name == of + ".current") {
                equal(WideSum{figure(name)} + figure(of + ".freed"), figure(of + ".allocated"),
                      what + " and what was freed", "allocated is");
                at_most(figure(name), figure(of + ".peak"), what, "the peak");
            }
            const std::string pools = of.substr(0, of.rfind('.'));
            if (of == pools + ".all" && name != of + ".peak") {
                const std::string member = name.substr(of.size());
                const auto of_pool = [&](const char* pool) {
                    std::string full = pools;
                    return full.append(pool).append(member);
                };
                const auto in = [&](const char* pool) { return figure(of_pool(pool)); };
                // An allocator of the program's does not tell which is in which.
                if (stats.find(of_pool(".small_pool")) != stats.end()) {
                    equal(figure(name), WideSum{in(".large_pool")} + in(".small_pool"), what,
                          "its pools have");
                }
            }
        }
    }

    void timeline(const model::Device& device, const std::string& where) {
        at_most(device.timeline.rows.size(), max_rows, where + ".timeline's number of rows",
                "there may be");
        for (std::size_t c = 0; c < model::curve_count; ++c) {
            const std::string curve = where + ".timeline's " + model::curve_names.at(c);
            std::uint64_t highest = 0;
            std::uint64_t last = 0;
            for (const model::TimelineRow& row : device.timeline.rows) {
                const auto& values = row.curves.at(c);
                if (!values) {
                    continue;
                }
                last = values->last;
                highest = std::max(highest, values->max);
                if (values->min > values->last || values->last > values->max) {
                    problem(curve + " is not between its extremes at " +
                            std::to_string(row.begin_ns) + " ns");
                    break;
                }
            }
            if (const auto& summary = device.curves.at(c)) {
                equal(highest, summary->peak_bytes, curve + "_max", "the peak is");
                equal(last, summary->at_end_bytes, curve + "_last", "it ends at");
                within(summary->peak_time_ns,
                       where + ".curves." + model::curve_names.at(c) + ".peak_time_ns");
                at_most(summary->at_end_bytes, summary->peak_bytes,
                        where + ".curves." + model::curve_names.at(c) + ".at_end_bytes",
                        "its peak_bytes");
            }
        }
    }

    void coverage() {
        const model::Coverage& coverage = report_.coverage;
        WideSum count = 0;
        WideSum bytes = 0;
        for (const model::Coverage::Bypassed& each : coverage.bypassed) {
            count += each.count;
            bytes += each.bytes;
        }
        if (coverage.bypassed.size() < max_bypassed) {
            equal(coverage.bypassed_count, count, "coverage.bypassed_count", "its parts are");
            equal(coverage.bypassed_bytes, bytes, "coverage.bypassed_bytes", "its parts are");
        }
    }

    struct Sums {
        WideSum count = 0;
        WideSum bytes = 0;
        WideSum live_count = 0;
        WideSum live_bytes = 0;
        WideSum peak_bytes = 0;
    };

    const model::Report& report_;
    const JsonValue* const root_;
    std::map<std::pair<std::uint64_t, std::string>, Sums> sums_;
    std::map<std::uint64_t, Sums> at_peak_;  ///< by device
    Validation out_;
};

/// Parses a report and removes what is added after the process has ended.
JsonValue parse_as_recorded(std::string_view text) {
    JsonValue root = JsonValue::parse(text);
    if (root["process"].value("ended", "") == "cut off") {
        if (const auto recorded = root["process"].find("recorded_ns");
            recorded != root["process"].end()) {
            root["process"]["duration_ns"] = *recorded;
            root["process"].erase("recorded_ns");
        }
        root["process"].erase("signal");
        root["process"].erase("exit_code");
    }
    for (JsonValue& frame : root["frames"]) {
        frame.erase("source");
    }
    return root;
}

bool is_newer(const Schema& schema) {
    return schema.is_object() && schema.value("$comment", "") == SchemaMember::newer;
}
bool holds_newer(const Schema& schema) {
    return is_newer(schema) ||
           (schema.is_structured() && std::any_of(schema.begin(), schema.end(), holds_newer));
}

/// Removes from `expected` what `written` lacks as a report of an older recorder.
void leave_out_newer(const Schema& schema, const JsonValue& written, JsonValue& expected) {
    if (!holds_newer(schema)) {
        return;
    }
    if (written.is_array() && expected.is_array() && schema.contains("items")) {
        for (std::size_t i = 0; i < std::min(written.size(), expected.size()); ++i) {
            leave_out_newer(schema.at("items"), written[i], expected[i]);
        }
    }
    if (!written.is_object() || !expected.is_object()) {
        return;
    }
    if (const auto named = schema.find("additionalProperties"); named != schema.end()) {
        for (const auto& [name, member] : written.items()) {
            if (expected.contains(name)) {
                leave_out_newer(*named, member, expected[name]);
            }
        }
    }
    const auto members = schema.find("properties");
    if (members == schema.end()) {
        return;
    }
    for (const auto& [name, member] : members->items()) {
        if (written.contains(name) && expected.contains(name)) {
            leave_out_newer(member, written[name], expected[name]);
        } else if (!written.contains(name) && is_newer(member)) {
            expected.erase(name);
        }
    }
}

}  // namespace

Validation validate(const DeriveResult& recording) {
    Validation out;
    if (!recording.error.empty()) {
        out.problems.push_back(recording.error);
        return out;
    }
    const ReadResult& read = recording.model;
    if (!read.report) {
        out.problems.push_back(read.error);
        return out;
    }
    const auto add_wrong = [&out, &read] {
        for (const Lack& lack : find_lacks(*read.report)) {
            if (lack.kind == Lack::Kind::order || lack.kind == Lack::Kind::overflow) {
                out.problems.push_back(lack.text);  // no recorder writes such
            } else if (lack.kind != Lack::Kind::damaged) {
                out.lacks.push_back(lack);
            }
        }
    };
    if (!recording.from_log) {
        const JsonValue root = JsonValue::parse(recording.json);
        out = Validator(*read.report, &root).run();
    } else {
        out = Validator(*read.report, nullptr).run();
        out.what = "log with " + format_plural(recording.records, "record") + ", " + out.what;
        if (read.report->process.recording) {
            out.what += ", of a process that still runs";
        } else if (read.report->process.ended == "cut off") {
            out.what += ", without an end";
        }
        if (!recording.leftover.empty()) {
            out.problems.push_back(recording.leftover);
        }
        if (!recording.warning.empty()) {
            out.problems.insert(
                out.problems.begin(),
                recording.warning + " memlab-report recover keeps what comes before");
        }
    }
    add_wrong();
    return out;
}

std::string find_difference(std::string_view json_text, std::string_view derived) {
    const JsonValue written = parse_as_recorded(json_text);
    JsonValue expected = parse_as_recorded(derived);
    leave_out_newer(SchemaFields::of<model::Report>(), written, expected);
    if (expected["log"].value("dropped", std::uint64_t{0}) != 0 ||
        written["log"].value("dropped", std::uint64_t{0}) != 0) {
        return {};
    }
    const JsonValue patch = JsonValue::diff(expected, written);
    if (patch.empty()) {
        return {};
    }
    return patch.front().value("path", "");
}

}  // namespace memlab::report
