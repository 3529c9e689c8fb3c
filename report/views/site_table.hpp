// The call sites of a report as a flat table: a row for each source location and kind of memory,
// with its memory use over the whole run.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "report/symbols/category.hpp"
#include "report/symbols/resolver.hpp"
#include "report/symbols/skip_proposal.hpp"
#include "report/text/terminal.hpp"
#include "report/views/site_stats.hpp"

namespace memlab::report {

struct SiteRow {
    Place place;
    std::string kind;
    std::string api;  ///< of its first site
    SiteStats stats;
    std::vector<std::size_t> sites;        ///< indexes into Report::sites
    std::vector<model::SiteLabel> labels;  ///< the program's names for its allocations, as of Site
    /// What PyTorch used all of it for; none: for several things, or not known (has_categories()).
    std::optional<Category> category = {};
    /// By nn.Module: nn_module_of() its sites; `kind` is empty where the curves include it.
    std::string nn_module = {};
    /// add()'s: where in `labels` a name is, of which there may be a hundred thousand.
    std::unordered_map<std::string, std::size_t> label_numbers = {};

    /// Adds the site, number `index` of the report, to this row.
    void add(const model::Site& site, std::size_t index, const SiteStats& figures);
    void add(const model::Site& site, std::size_t index) { add(site, index, site_stats(site)); }
};

/// The nn.Module of a row, at most `width` columns of it; printable.
std::string nn_module_text(const SiteRow& row, std::size_t width, bool ascii);

/// The labels of a row that have live memory, with its size.
std::vector<model::MemoryLabel> live_labels(const SiteRow& row);

/// [{name, count, live_count, live_bytes}].
nlohmann::ordered_json labels_json(const std::vector<model::SiteLabel>& labels);

/// Groups sites into rows by place and kind. Thread-safety: none.
class SiteRows {
  public:
    /// `index` is that of `site` in Report::sites.
    void add(const Place& place, const model::Site& site, std::size_t index,
             const SiteStats& figures);
    void add(const Place& place, const model::Site& site, std::size_t index) {
        add(place, site, index, site_stats(site));
    }
    /// Moves the rows out, in the order of their first sites.
    std::vector<SiteRow> take() { return std::move(rows_); }

  private:
    std::map<std::pair<Place, std::string>, std::size_t> known_;
    std::vector<SiteRow> rows_;
};

struct SiteTable {
    const model::Report* report = nullptr;
    const model::Device* device = nullptr;
    std::string kind;             ///< ViewedMemory::kind()
    bool categories = false;      ///< the device has_categories()
    const char* doubt = nullptr;  ///< doubt_about_categories()
    SiteStats whole;              ///< of the device
    SiteStats taken;              ///< of the sites that match the filter
    std::vector<SiteRow> rows;
    std::optional<SkipProposal> proposal = {};  ///< of the first row, by bytes at the peak
};

/// What the rows of a table of sites are.
enum class SitesBy : std::uint8_t { place, category, nn_module };

/// Options common to all views.
struct ViewOptions {
    Style style;
    Order order = Order::peak;
    std::size_t top = 10;
    SitesBy by = SitesBy::place;
    bool by_parts = false;                ///< of nn.Modules: without figures of the whole run
    bool templates = false;               ///< keep template arguments even if a line is too long
    std::string filter;                   ///< Filter::text(), for the heading; empty: none
    std::string working_directory;        ///< files below it are shown relative to it
    std::optional<std::uint64_t> device;  ///< only this device
};

/// A table for each viewed_memory(), rows sorted by `order`. `taken`: for each site, whether it is
/// shown. The result points into `report`.
std::vector<SiteTable> site_tables(const model::Report& report, Resolver& resolver,
                                   const std::vector<bool>& taken, const ViewOptions& options);

/// Text; ends with a newline.
std::string render_sites_text(const std::vector<SiteTable>& tables, const ViewOptions& options);

/// {file, sort, filter (null: none), devices [index, name, total, taken, sites [place, kind,
/// api, category (if known), share, <stats>, sites], others {places, <stats>}, kinds (with a peak
/// of their own, by name: the same from total on)]}; by category the sites have no place, kind and
/// api, by nn.Module they have nn_module instead. `total` is of the device, `taken` of the sites
/// that match the filter; share is of the total by `sort`. <stats>: see site_stats_json().
std::string render_sites_json(const std::string& file, const std::vector<SiteTable>& tables,
                              const ViewOptions& options);

/// "GPU 0: NVIDIA H100", for a heading of a view, "GPU 0: managed memory" of a kind; printable.
std::string device_title(const model::Device& device, bool ascii, const std::string& kind = "");

}  // namespace memlab::report
