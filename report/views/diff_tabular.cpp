// A comparison as Markdown, for the comment of a pull request, and as CSV, for spreadsheets. Text
// of a recording is escaped: it cannot end a cell or become markup.
#include <algorithm>
#include <string_view>
#include <utility>

#include "report/summary/place_text.hpp"
#include "report/text/markup.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"
#include "report/views/diff_calls.hpp"

namespace memlab::report {

namespace {

constexpr bool counts_allocations(Order order) {
    return order == Order::count || order == Order::temporaries;
}

std::string change_text(const Change& change, bool bytes) {
    return bytes ? format_change(change) : format_count_change(change);
}

std::string figure_text(std::uint64_t value, bool bytes) {
    return bytes ? format_bytes(value) : format_count(value);
}

class Markdown {
  public:
    explicit Markdown(const DiffOptions& options) : options_(options) {}

    void title(const std::string& before, const std::string& after) {
        out_ += "### memlab: " + escaped_markdown(base_name(before)) + " → " +
                escaped_markdown(base_name(after)) + "\n";
    }

    void totals(const std::string& title, const std::vector<DiffTotal>& totals) {
        out_ += "\n**" + escaped_markdown(title) +
                "**\n\n| | before | after | change | |\n|---|--:|--:|--:|--:|\n";
        for (const DiffTotal& total : totals) {
            const bool grew = total.change.after > total.change.before;
            const std::string change = change_text(total.change, total.bytes);
            out_ += "| " + std::string(total.name) + ", " + total.meaning + " | " +
                    figure_text(total.change.before, total.bytes) + " | " +
                    figure_text(total.change.after, total.bytes) + " | " +
                    (grew ? "**" + change + "**" : change) + " | " +
                    escaped_markdown(format_change_percent(total.change)) + " |\n";
        }
    }

    void sites(const SiteChanges& changes) {
        if (changes.sites.empty()) {
            out_ += "\nNo call site changed.\n";
            return;
        }
        const bool bytes = !counts_allocations(options_.order);
        out_ += std::string("\n<details><summary>By ") +
                (options_.by == SitesBy::nn_module ? "nn.Module" : "call site") + ", " +
                order_names().at(static_cast<std::size_t>(options_.order)) +
                "</summary>\n\n| change | | before | after | where |\n|--:|--:|--:|--:|---|\n";
        std::vector<std::string> places;
        for (std::size_t i = 0; i < changes.sites.size() && i < options_.top; ++i) {
            const SiteDiff& site = changes.sites[i];
            places.push_back(!site.nn_module.empty()
                                 ? site.nn_module
                                 : describe_place(site.place, site.kind, site.api, unlimited_width,
                                                  {plain_style(), options_.working_directory,
                                                   options_.templates}));
        }
        DiffOptions plain = options_;
        plain.style = plain_style();
        const CallTexts calls(plain);
        const auto telling = calls.telling_calls(changes, places);
        for (std::size_t i = 0; i < places.size(); ++i) {
            const SiteDiff& site = changes.sites[i];
            const Change change{sort_value(site.before, options_.order),
                                sort_value(site.after, options_.order)};
            out_ += "| " + change_text(change, bytes) + " | " +
                    escaped_markdown(format_change_percent(change)) + " | " +
                    figure_text(change.before, bytes) + " | " + figure_text(change.after, bytes) +
                    " | " + escaped_markdown(places[i] + calls.telling_text(site, telling[i])) +
                    " |\n";
        }
        if (changes.sites.size() > options_.top) {
            out_ += "\n" + format_plural(changes.sites.size() - options_.top, "other") +
                    " changed, " + format_count(changes.unchanged) + " did not.\n";
        }
        out_ += "\n</details>\n";
    }

    void notes(const std::vector<std::string>& notes) {
        for (const std::string& note : notes) {
            out_ += "\n- " + escaped_markdown(note);
        }
        out_ += notes.empty() ? "" : "\n";
    }

    std::string take() { return std::move(out_); }

  private:
    static Style plain_style() { return {}; }

    const DiffOptions& options_;
    std::string out_;
};

void add_csv_rows(const std::string& device, const SiteChanges& changes, std::string& out) {
    for (const SiteDiff& site : changes.sites) {
        const Place& place = site.place;
        out += csv_field(device) + "," + csv_field(place.function) + "," + csv_field(place.file) +
               "," + (place.line > 0 ? std::to_string(place.line) : "") + "," +
               csv_field(base_name(place.module)) + "," + csv_field(site.kind);
        for (const auto figure :
             {&SiteStats::peak_bytes, &SiteStats::peak_count, &SiteStats::bytes, &SiteStats::count,
              &SiteStats::live_bytes, &SiteStats::live_count, &SiteStats::temporaries}) {
            out += "," + std::to_string(site.before.*figure) + "," +
                   std::to_string(site.after.*figure);
        }
        out += "," + csv_field(site.nn_module) + "\n";
    }
}

constexpr std::string_view csv_head =
    "device,function,file,line,module,kind,at_peak_bytes_before,at_peak_bytes_after,"
    "at_peak_count_before,at_peak_count_after,bytes_before,bytes_after,count_before,count_after,"
    "live_bytes_before,live_bytes_after,live_count_before,live_count_after,temporaries_before,"
    "temporaries_after,nn_module\n";

}  // namespace

std::string render_diff_markdown(const DiffSide& before, const DiffSide& after, const Diff& diff,
                                 const DiffOptions& options) {
    Markdown out(options);
    out.title(before.file, after.file);
    for (const DeviceDiff& device : diff.devices) {
        out.totals(device.label + ": " + device.name, device.totals);
        out.sites(device);
    }
    out.notes(diff.notes);
    return out.take();
}

std::string render_changes_markdown(const std::string& before, const std::string& after,
                                    const std::vector<DiffTotal>& totals,
                                    const SiteChanges& changes,
                                    const std::vector<std::string>& notes,
                                    const DiffOptions& options) {
    Markdown out(options);
    out.title(before, after);
    out.totals("All processes", totals);
    out.sites(changes);
    out.notes(notes);
    return out.take();
}

std::string render_diff_csv(const Diff& diff) {
    std::string out(csv_head);
    for (const DeviceDiff& device : diff.devices) {
        add_csv_rows(device.label, device, out);
    }
    return out;
}

std::string render_changes_csv(const SiteChanges& changes) {
    std::string out(csv_head);
    add_csv_rows("", changes, out);
    return out;
}

bool grew(const std::vector<DiffTotal>& totals) {
    return std::any_of(totals.begin(), totals.end(), [](const DiffTotal& total) {
        return total.bytes && total.change.after > total.change.before;
    });
}

}  // namespace memlab::report
