#include "trace/json/report_tables.hpp"

#include <algorithm>

#include "trace/json/oom_explanation.hpp"
#include "trace/json/utf8.hpp"

namespace memlab::report {

Site ReportTables::site(std::size_t index) const {
    const trace::Site& site = from_.sites()[index];
    const auto position = static_cast<std::uint32_t>(index);
    const trace::Holder at_peak = from_.held_at_peak(position);
    Site out;
    out.device = site.device;
    out.kind = trace::name_of(site.kind);
    out.api = valid_utf8(from_.string(site.api));
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
    out.segment_count = site.segment_count;
    out.segment_bytes = site.segment_bytes;
    if (!site.lifetimes.empty()) {
        out.lifetime =
            Lifetime{site.lifetimes.min(), site.lifetimes.median(), site.lifetimes.max()};
    }
    struct BySite {
        bool operator()(const trace::SiteLabel& label, std::uint32_t of) const {
            return label.site < of;
        }
        bool operator()(std::uint32_t of, const trace::SiteLabel& label) const {
            return of < label.site;
        }
    };
    const auto [first, last] = std::equal_range(labels_.begin(), labels_.end(), position, BySite());
    std::for_each(first, first + std::min<std::ptrdiff_t>(max_site_labels, last - first),
                  [&](const trace::SiteLabel& label) {
                      out.labels.push_back({valid_utf8(label_name(from_, label.name)), label.count,
                                            label.live_count, label.live_bytes});
                  });
    return out;
}

Stack ReportTables::stack(std::size_t index) const {
    const trace::StackFrames& stack = from_.stacks()[index];
    return {{stack.frames.begin(), stack.frames.end()}, stack.truncated};
}

}  // namespace memlab::report
