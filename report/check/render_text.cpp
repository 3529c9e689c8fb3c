// The outcome as a table for a terminal.
#include <algorithm>

#include "report/check/render.hpp"
#include "report/device_label.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"

namespace memlab::report::check {

namespace {

class TextRenderer {
  public:
    TextRenderer(const View& view, const report::Style& style, std::size_t top)
        : view_(view), page_(style), top_(top), table_(page_) {
        // A longer name has a line of its own.
        table_
            .left("", report::Column::fitted,
                  [this](const Row& row) { return is_long(row) ? std::string() : name_of(row); })
            .right("limit", report::Column::fitted, limit_text)
            .right("measured", report::Column::fitted, measured)
            .last("");
        table_.fit(view.outcome.rows);
    }

    std::string render() {
        const Row* before = nullptr;
        for (const Row& row : view_.outcome.rows) {
            if (before == nullptr || before->process != row.process ||
                before->measured.device != row.measured.device ||
                is_of_run(before->metric) != is_of_run(row.metric)) {
                heading(row);
            }
            show(row);
            before = &row;
        }
        page_.line("");
        const std::string end = conclusion(view_.outcome);
        page_.line(view_.outcome.exit_code() == 0 ? page_.bold(end) : page_.red(end));
        return page_.take();
    }

  private:
    static constexpr std::size_t max_name = 32;

    std::string name_of(const Row& row) const {
        return page_.clean(check::name_of(row.metric, row.subject));
    }

    static std::string measured(const Row& row) {
        return figure_text(row.measured.figure, info(row.metric).unit);
    }

    void heading(const Row& row) {
        const Process& process = view_.processes[row.process];
        std::string text = page_.clean(process.name) + " (pid " + std::to_string(process.pid) + ")";
        if (is_of_run(row.metric)) {
            text = "all ranks";
        } else if (row.measured.device) {
            text +=
                ", " + page_.clean(report::label_of(*process.summary.report, *row.measured.device));
            for (const report::DeviceSummary& each : process.summary.devices) {
                if (each.device->index == *row.measured.device && !each.device->name.empty()) {
                    text += ": " + page_.clean(each.device->name);
                }
            }
        } else {
            text += ", the whole process";
        }
        page_.heading(text);
        table_.head();
    }

    void show(const Row& row) {
        if (is_long(row)) {
            page_.line("  " + name_of(row));
        }
        table_.row(row, painted(row));
        if (row.verdict != Verdict::exceeded) {
            return;
        }
        if (!row.measured.note.empty()) {
            page_.line(report::shorten_end("      " + page_.clean(row.measured.note),
                                           page_.remaining_width(0), page_.style().ascii));
        }
        const std::size_t shown = std::min(top_, row.measured.responsible.size());
        const auto figure_width = [&](std::size_t i) {
            return figure_text(row.measured.responsible[i].figure, info(row.metric).unit).size();
        };
        std::size_t widest = 0;
        for (std::size_t i = 0; i < shown; ++i) {
            widest = std::max(widest, figure_width(i));
        }
        for (std::size_t i = 0; i < shown; ++i) {
            const std::string text = responsible_text(view_, row, row.measured.responsible[i]);
            page_.line(report::shorten_end(
                std::string(6 + widest - figure_width(i), ' ') + page_.clean(text),
                page_.remaining_width(0), page_.style().ascii));
        }
    }

    bool is_long(const Row& row) const { return report::display_width(name_of(row)) > max_name; }

    std::string painted(const Row& row) const {
        std::string text = verdict_text(row);
        switch (row.verdict) {
            case Verdict::exceeded:
            case Verdict::unknown:
                return page_.red(text);
            case Verdict::shown:
                return page_.dim(text);
            default:
                return text;
        }
    }

    const View& view_;
    report::Page page_;
    std::size_t top_;
    report::Table<Row> table_;
};

}  // namespace

std::string render_text(const View& view, const report::Style& style, std::size_t top) {
    return TextRenderer(view, style, top).render();
}

}  // namespace memlab::report::check
