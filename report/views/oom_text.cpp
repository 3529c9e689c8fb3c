#include "report/views/oom_text.hpp"

#include <algorithm>
#include <optional>

#include "model/oom_explanation.hpp"
#include "report/device_label.hpp"
#include "report/summary/alike_failures.hpp"
#include "report/summary/place_text.hpp"
#include "report/summary/stack_text.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

class OomText {
  public:
    OomText(const Summary& summary, Resolver& resolver, const ViewOptions& options,
            std::size_t stacks)
        : summary_(summary),
          resolver_(resolver),
          options_(options),
          stacks_(stacks),
          page_(options.style) {}

    std::string write() {
        for (const AlikeFailures& alike : group_failures(summary_)) {
            show(alike);
        }
        if (summary_.ooms.empty()) {
            page_.line("No allocation failed for lack of memory.");
        } else if (summary_.report->oom_count > summary_.report->ooms.size()) {
            page_.line("");
            page_.line(page_.dim("The report has the first " +
                                 format_plural(summary_.report->ooms.size(), "failure") + " of " +
                                 format_count(summary_.report->oom_count) + "."));
        }
        return page_.take();
    }

  private:
    void show(const AlikeFailures& alike) {
        const OomSummary& first = summary_.ooms[alike.ooms.front()];
        const model::Oom& oom = *first.oom;
        page_.heading(page_.red("Out of memory") + " " + std::to_string(alike.ooms.front() + 1) +
                          " of " + format_count(summary_.ooms.size()),
                      "at " + format_duration(oom.time_ns) + page_.separator() +
                          page_.clean(label_of(*summary_.report, oom.device)) + page_.separator() +
                          page_.clean(thread_text(*summary_.report, oom.thread)));
        page_.paragraph(
            "  ",
            page_.clean(oom.api) + " of " + format_bytes(oom.requested_bytes) + " (" +
                page_.clean(oom.kind == "suballocation" ? block_name(*summary_.report, oom.device)
                                                        : oom.kind) +
                ") failed with " + model::error_text(oom.error) + ".");
        if (alike.ooms.size() > 1) {
            page_.paragraph("  ", others_like(alike));
        }
        page_.lines(explanation(first));
    }

    /// "27 more like it, of 4.00 to 4.11 MiB, at 1.2 s to 3.4 s."
    std::string others_like(const AlikeFailures& alike) {
        constexpr std::size_t max_times = 4;
        std::uint64_t least = summary_.ooms[alike.ooms.front()].oom->requested_bytes;
        std::uint64_t most = least;
        std::string times;
        for (std::size_t i = 1; i < alike.ooms.size(); ++i) {
            const model::Oom& oom = *summary_.ooms[alike.ooms[i]].oom;
            least = std::min(least, oom.requested_bytes);
            most = std::max(most, oom.requested_bytes);
            times += (i == 1 ? "" : ", ") + format_duration(oom.time_ns);
        }
        const std::size_t more = alike.ooms.size() - 1;
        if (more > max_times) {
            times = format_duration(summary_.ooms[alike.ooms[1]].oom->time_ns) + " to " +
                    format_duration(summary_.ooms[alike.ooms.back()].oom->time_ns);
        }
        return format_count(more) + " more like it" +
               (least == most ? "" : ", of " + format_bytes(least) + " to " + format_bytes(most)) +
               ", at " + times + ".";
    }

    std::string explanation(const OomSummary& summary) {
        const model::Oom& oom = *summary.oom;
        page_.line("");
        figure("asked for", oom.requested_bytes, "");
        const std::optional<std::uint64_t> limit = limit_of(oom);
        if (limit) {
            const std::uint64_t used =
                oom.device_total_bytes - std::min(oom.device_total_bytes, oom.device_free_bytes);
            figure("free below the limit", *limit - std::min(*limit, used),
                   "MEMLAB_LIMIT less what the whole GPU uses");
            figure("limit", *limit, "MEMLAB_LIMIT");
        }
        figure("free on the device", oom.device_free_bytes,
               "by the driver, after releasing the cache");
        if (oom.device < trace::DeviceInfo::max_gpus) {
            figure("largest free block", oom.largest_free_block_bytes,
                   "in memlab's pool, before that");
        }
        figure("on the device", oom.device_total_bytes, "in all");
        figure("allocated", oom.current.allocated, "what the program held");
        figure("reserved", oom.current.reserved, "taken from the driver for it");
        const std::uint64_t cached =
            oom.current.reserved - std::min(oom.current.reserved, oom.current.active);
        figure("not in use", cached, "reserved, but not active");
        if (!oom.explanation.empty()) {
            page_.line("");
            for (const std::string& sentence : oom.explanation) {
                page_.paragraph("  ", page_.clean(sentence));
            }
        }
        advice(summary);
        page_.line("");
        page_.line("  The call:");
        stack(oom.stack);
        holders(summary.holders);
        return page_.take();
    }

    void advice(const OomSummary& summary) {
        if (!summary.advice) {
            return;
        }
        page_.line("");
        if (summary.advice->empty()) {
            page_.paragraph("  ",
                            "None of the settings that were tried in a replay of the recording "
                            "would have avoided this failure.");
            return;
        }
        page_.line("  " + page_.bold("What a replay of the recording shows:"));
        for (const std::string& sentence : *summary.advice) {
            page_.paragraph(page_.style().ascii ? "  > " : "  → ", page_.clean(sentence));
        }
    }

    /// MEMLAB_LIMIT where it allows less than the device has.
    std::optional<std::uint64_t> limit_of(const model::Oom& oom) const {
        for (const model::Device& device : summary_.report->devices) {
            if (device.index == oom.device && device.limit_bytes &&
                *device.limit_bytes < oom.device_total_bytes) {
                return device.limit_bytes;
            }
        }
        return std::nullopt;
    }

    void figure(const char* name, std::uint64_t bytes, const char* meaning) {
        struct Figure {
            const char* name;
            std::uint64_t bytes;
        };
        Table<Figure> table(page_);
        table.left("", 20, &Figure::name).bytes("", &Figure::bytes).last("");
        table.row({name, bytes}, page_.dim(meaning));
    }

    void stack(std::size_t stack) {
        const PlaceTextOptions text{page_.style(), options_.working_directory, options_.templates};
        for (const std::string& line : stack_lines(*summary_.report, resolver_, stack, text)) {
            page_.line("  " + line);
        }
    }

    void holders(const HoldersSummary& holders) {
        if (holders.places.empty()) {
            return;
        }
        page_.line("");
        page_.line("  Held at that moment: " + format_bytes(holders.bytes) +
                   page_.dim("  " + format_plural(holders.count, "allocation")));
        Table<PlaceShare> table(page_);
        table.bytes("bytes", &PlaceShare::bytes)
            .share(&PlaceShare::bytes, holders.bytes)
            .count("count", &PlaceShare::count)
            .last("where");
        table.head();
        const PlaceTextOptions text{page_.style(), options_.working_directory, options_.templates};
        std::size_t shown = 0;
        for (const PlaceShare& share : holders.places) {
            if (shown++ == options_.top) {
                break;
            }
            table.row(share,
                      describe_place(share.place, share.kind, share.api, table.last_width(), text));
            page_.note_below(table.last_column(), model::format_labels(share.labels, share.bytes));
        }
        const std::size_t more =
            holders.places.size() - std::min(holders.places.size(), options_.top);
        if (more != 0) {
            page_.line(page_.dim("  [" + format_plural(more, "place") + " more]"));
        }
        for (std::size_t i = 0; i < std::min(stacks_, holders.places.size()); ++i) {
            const PlaceShare& share = holders.places[i];
            if (!share.stacks.empty()) {
                page_.line("");
                page_.line("  How " + format_bytes(share.bytes) + " came about:");
                stack(share.stacks.front());
            }
        }
    }

    const Summary& summary_;
    Resolver& resolver_;
    const ViewOptions& options_;
    const std::size_t stacks_;
    Page page_;
};

}  // namespace

std::string render_ooms_text(const Summary& summary, Resolver& resolver, const ViewOptions& options,
                             std::size_t stacks) {
    return OomText(summary, resolver, options, stacks).write();
}

}  // namespace memlab::report
