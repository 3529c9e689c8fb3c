#include "report/histogram/render.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/device_label.hpp"
#include "report/summary/json_values.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

using Format = std::string (*)(std::uint64_t);

class HistogramText {
  public:
    explicit HistogramText(const HistogramTextOptions& options)
        : options_(options), page_(options.style) {}

    std::string write(const Histograms& found) {
        held_ = "[held " + found.moment + "]";
        for (const DeviceHistograms& device : found.devices) {
            one(device);
        }
        if (found.devices.empty()) {
            page_.line("No GPU memory was allocated.");
        }
        if (found.gap_end_ns) {
            page_.line("");
            page_.paragraph("",
                            "The event log keeps its beginning and its newest part, from " +
                                format_duration(*found.gap_end_ns) +
                                " on (MEMLAB_LOG_LIMIT): the size of what was allocated between "
                                "the two, and the end of what was freed there, are not known.");
        }
        return page_.take();
    }

  private:
    void one(const DeviceHistograms& device) {
        page_.heading(
            page_.clean(device_label(*device.device)) + ": " + page_.clean(device.device->name),
            format_plural(device.all.count, "allocation") + ", " + format_bytes(device.all.bytes) +
                (options_.filter.empty() ? "" : ", only " + page_.clean(options_.filter)));
        if (device.all.count == 0) {
            page_.line("  no call site matches");
            return;
        }
        if (options_.sizes) {
            table("By size, as the program asked for it", device, device.sizes, format_size,
                  {{"[not in the log]", device.size_unknown}});
        }
        if (options_.lifetimes) {
            table("By lifetime, until the program freed it", device, device.lifetimes,
                  format_duration,
                  {{held_.c_str(), device.held}, {"[end not seen]", device.end_unknown}});
        }
    }

    static std::string format_size(std::uint64_t bytes) { return format_bytes(bytes); }

    void table(const char* title, const DeviceHistograms& device, const Histogram& histogram,
               Format format, const std::vector<std::pair<const char*, CountAndBytes>>& rest) {
        page_.line("");
        page_.line(page_.bold(title));
        struct Row {
            std::string from;  ///< or the name of what is behind the figures, if not a bucket
            std::string below;
            std::optional<std::uint64_t> count;
            std::optional<std::uint64_t> bytes;
            std::string bar;
        };
        const auto add_figures = [&](Table<Row>& table) {
            table.count("allocations", 13, &Row::count)
                .share(&Row::count, device.all.count)
                .bytes("total", &Row::bytes)
                .share(&Row::bytes, device.all.bytes)
                .last("", [this](const Row& row) { return page_.cyan(row.bar); });
        };
        Table<Row> buckets(page_);
        buckets.right("from", 11, &Row::from).right("below", 12, &Row::below);
        add_figures(buckets);
        Table<Row> sums(page_);
        sums.left("", 11 + 12, [this](const Row& row) { return page_.dim(row.from); });
        add_figures(sums);
        buckets.head();
        std::uint64_t most = 0;
        for (const Histogram::Bucket& bucket : histogram.buckets()) {
            most = std::max(most, bucket.sum.count);
        }
        for (std::size_t i = 0; i < histogram.buckets().size(); ++i) {
            const Histogram::Bucket& bucket = histogram.buckets()[i];
            if (i > 0 && bucket.power > histogram.buckets()[i - 1].power + 1) {
                buckets.row({page_.dim(options_.style.ascii ? "..." : "…"), "", {}, {}, ""});
            }
            buckets.row({format(bucket.from()), bucket.below() ? format(*bucket.below()) : "",
                         bucket.sum.count, bucket.sum.bytes,
                         bar(bucket.sum.count, most, buckets.last_column())});
        }
        for (const auto& [name, sum] : rest) {
            if (sum.count != 0) {
                sums.row({name, "", sum.count, sum.bytes, ""});
            }
        }
        sums.row({"[all]", "", device.all.count, device.all.bytes, ""});
    }

    /// As long as the count is large beside the largest; never empty.
    std::string bar(std::uint64_t count, std::uint64_t most, std::size_t used) const {
        static constexpr std::size_t longest = 40;
        const std::size_t room = page_.width() - std::min(page_.width(), used);
        const double columns = static_cast<double>(std::min(room, longest)) *
                               static_cast<double>(count) / static_cast<double>(most);
        const auto cells = static_cast<std::size_t>(std::max(1.0, std::round(columns)));
        std::string out;
        for (std::size_t i = 0; i < std::min(cells, room); ++i) {
            out += options_.style.ascii ? "#" : "█";
        }
        return out;
    }

    const HistogramTextOptions& options_;
    std::string held_;
    Page page_;
};

ordered_json sum_json(const CountAndBytes& sum) {
    return {{"count", sum.count}, {"bytes", sum.bytes}};
}

ordered_json buckets_json(const Histogram& histogram) {
    ordered_json out = ordered_json::array();
    for (const Histogram::Bucket& bucket : histogram.buckets()) {
        out.push_back({{"from", bucket.from()},
                       {"below", bucket.below() ? ordered_json(*bucket.below()) : ordered_json()},
                       {"count", bucket.sum.count},
                       {"bytes", bucket.sum.bytes}});
    }
    return out;
}

}  // namespace

std::string render_histograms_text(const Histograms& found, const HistogramTextOptions& options) {
    return HistogramText(options).write(found);
}

std::string render_histograms_json(const std::string& file, const Histograms& found,
                                   const HistogramTextOptions& options) {
    ordered_json out = {
        {"file", file},
        {"filter", text_or_null(options.filter)},
        {"gap_end_ns", found.gap_end_ns ? ordered_json(*found.gap_end_ns) : ordered_json()},
        {"devices", ordered_json::array()}};
    for (const DeviceHistograms& each : found.devices) {
        ordered_json device = {{"index", each.device->index},
                               {"name", each.device->name},
                               {"total", sum_json(each.all)}};
        if (options.sizes) {
            device["sizes"] = buckets_json(each.sizes);
            device["size_unknown"] = sum_json(each.size_unknown);
        }
        if (options.lifetimes) {
            device["lifetimes"] = buckets_json(each.lifetimes);
            device["held"] = sum_json(each.held);
            device["end_unknown"] = sum_json(each.end_unknown);
        }
        out["devices"].push_back(std::move(device));
    }
    return json_text(out);
}

}  // namespace memlab::report
