// The outcome as a table for a terminal.
#include <algorithm>

#include "report/check/render.hpp"
#include "report/device_label.hpp"
#include "report/text/page.hpp"
#include "report/text/text.hpp"

namespace memlab::report::check {

namespace {

using report::left;
using report::right;

class TextRenderer {
  public:
    TextRenderer(const View& view, const report::Style& style, std::size_t top)
        : view_(view), page_(style), top_(top) {
        for (const Row& row : view.outcome.rows) {
            name_width_ = std::max(name_width_, std::min(max_name, name_of(row).size()));
            limit_width_ = std::max(limit_width_, limit_text(row).size());
            measured_width_ = std::max(measured_width_, measured(row).size());
        }
    }

    std::string render() {
        const Row* before = nullptr;
        for (const Row& row : view_.outcome.rows) {
            if (before == nullptr || before->process != row.process ||
                before->measured.device != row.measured.device) {
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
        if (row.measured.device) {
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
        page_.line(page_.dim("  " + left("", name_width_) + "  " + right("limit", limit_width_) +
                             "  " + right("measured", measured_width_)));
    }

    void show(const Row& row) {
        const std::string name = name_of(row);
        std::string begin = "  " + left(name, name_width_);
        if (name.size() > name_width_) {
            page_.line("  " + name);
            begin = std::string(2 + name_width_, ' ');
        }
        page_.line(begin + "  " + right(limit_text(row), limit_width_) + "  " +
                   right(measured(row), measured_width_) + "  " + painted(row));
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
    std::size_t name_width_ = 0;
    std::size_t limit_width_ = 5;
    std::size_t measured_width_ = 8;
};

}  // namespace

std::string render_text(const View& view, const report::Style& style, std::size_t top) {
    return TextRenderer(view, style, top).render();
}

}  // namespace memlab::report::check
