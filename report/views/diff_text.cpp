// Text and JSON output of a comparison of two recordings.
#include <nlohmann/json.hpp>

#include "report/summary/json_object.hpp"
#include "report/summary/json_values.hpp"
#include "report/text/names.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/views/diff.hpp"
#include "report/views/diff_tables.hpp"

namespace memlab::report {

namespace {

class DiffText {
  public:
    explicit DiffText(const DiffOptions& options)
        : options_(options), page_(options.style), tables_(options, page_) {}

    std::string write(const DiffSide& before, const DiffSide& after, const Diff& diff) {
        side("before", before);
        side("after", after);
        for (const DeviceDiff& device : diff.devices) {
            page_.heading(page_.clean(device.label) + ": " + page_.clean(device.name));
            tables_.totals(device.totals);
            tables_.sites(device, "");
        }
        if (diff.devices.empty()) {
            page_.line("");
            page_.line("  Neither allocated GPU memory.");
        }
        tables_.scopes(diff, "what one entry adds at its peak");
        page_.warnings(diff.notes);
        return page_.take();
    }

  private:
    void side(const char* name, const DiffSide& side) {
        const model::Process& process = side.report.process;
        const std::string who = "  " + page_.clean(base_name(process.executable)) + " (pid " +
                                std::to_string(process.pid) + ")";
        const std::size_t width = page_.remaining_width(10 + display_width(who));
        const std::string text =
            shorten_begin(page_.clean(side.file), width, options_.style.ascii) + page_.dim(who);
        tables_.side(name, text);
    }

    const DiffOptions& options_;
    Page page_;
    DiffTables tables_;
};

ordered_json side_json(const DiffSide& side) {
    return {{"file", side.file},
            {"executable", side.report.process.executable},
            {"pid", side.report.process.pid},
            {"lacks", lacks_json(side.lacks())}};
}

ordered_json device_json(const DeviceDiff& device, const DiffOptions& options) {
    ordered_json out = {
        {"index", device.index}, {"name", device.name}, {"totals", ordered_json::object()}};
    if (device.index_before) {
        out["index_before"] = *device.index_before;
    }
    for (const DiffTotal& total : device.totals) {
        out["totals"][total.member] = JsonObject::of(total.change);
    }
    out.update(JsonObject::of(FirstSites(device, options)));
    return out;
}

}  // namespace

std::string render_diff_text(const DiffSide& before, const DiffSide& after, const Diff& diff,
                             const DiffOptions& options) {
    return DiffText(options).write(before, after, diff);
}

std::string render_diff_json(const DiffSide& before, const DiffSide& after, const Diff& diff,
                             const DiffOptions& options) {
    ordered_json out = {{"format", "memlab-diff"},         {"version", 1},
                        {"before", side_json(before)},     {"after", side_json(after)},
                        {"sort", order_name(options)},     {"filter", text_or_null(options.filter)},
                        {"devices", ordered_json::array()}};
    for (const DeviceDiff& device : diff.devices) {
        out["devices"].push_back(device_json(device, options));
    }
    out.update(JsonObject::of<ScopeChanges>(diff));
    out["notes"] = diff.notes;
    return json_text(out) + "\n";
}

}  // namespace memlab::report
