// What the page is made of: everything that memlab-report knows of recordings, as one JSON value.
// Its shape is written down in report/html/web/src/data.ts; docs/html.md says how exact it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/json_output.hpp"
#include "model/report.hpp"
#include "report/html/page_recording.hpp"
#include "report/runs/render.hpp"
#include "report/symbols/resolver.hpp"
#include "report/symbols/symbolizer.hpp"

namespace memlab::report {

/// A process of a run.
struct PageRank {
    std::optional<std::size_t> recording;  ///< index into PageData::recordings
    std::string name;
    std::optional<std::uint64_t> rank;
    std::string host;
    std::uint64_t peak_bytes = 0;
    std::uint64_t at_end_bytes = 0;
    std::string outlier;  ///< why it is one; empty: it is not
    std::vector<std::uint64_t> curve;
};

struct PageData {
    enum class Mode : std::uint8_t { single, compare, run };
    std::string title;
    std::string show;  ///< what is shown first, as in the page's address behind '#'; empty: all
    Mode mode = Mode::single;
    bool sources = true;
    std::vector<PageRecording> recordings;
    std::string diff;                 ///< of two; the document of memlab-report diff --json
    std::vector<PageRank> ranks;      ///< of a run
    std::uint64_t rank_curve_ns = 0;  ///< from one value of their curves to the next
    std::string merge;                ///< of a run of ranks; the document of memlab-report merge
};

/// A page of two recordings, the earlier one first. May throw std::bad_alloc.
PageData page_of_two(PageRecording before, PageRecording after);

/// What a page of a run asks for, by the index of a member.
struct RunParts {
    std::function<Resolver&(std::size_t)> resolver;   ///< of all of the member's stacks
    std::function<model::Report(std::size_t)> whole;  ///< the report with its sites
};

/// A page of a run of several processes: all of them side by side, and up to `in_full` of them in
/// full: that with the largest peak, then outliers. The reports must be without arguments if the
/// options say so. May throw std::bad_alloc.
PageData page_of_run(const RunView& view, const RunParts& parts, Symbolizer* symbolizer,
                     const PageOptions& options, std::size_t in_full = 3);

/// Bytes of the data by what they are, about.
using PageParts = std::map<std::string_view, std::size_t>;

/// Writes PageData. At most `changes` changes of holders of each recording are written by site, the
/// rest is summed; this shortens the histories of `page`.
PageParts write_page_data(PageData& page, const PageOptions& options, std::size_t changes,
                          model::StringSink& to);

}  // namespace memlab::report
