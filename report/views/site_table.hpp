// The call sites of a report as one flat table: a row for each place of the source and kind of
// memory, with what it took over the whole run.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/symbols/resolver.hpp"
#include "report/text/terminal.hpp"
#include "report/views/figures.hpp"

namespace memlab::report {

struct SiteRow {
    Place place;
    std::string kind;
    std::string api;  ///< of its first site
    Figures figures;
    std::vector<std::size_t> sites;  ///< indexes into Report::sites
    std::vector<SiteLabel> labels;  ///< the program's names for its allocations, as a site has them

    /// Site number `index` of the report belongs to this row.
    void add(const Site& site, std::size_t index);
};

/// Those of a row's names under which something lives, with what it holds.
std::vector<HeldLabel> live_labels(const SiteRow& row);

/// [{name, count, live_count, live_bytes}].
nlohmann::ordered_json labels_json(const std::vector<SiteLabel>& labels);

/// Sites as rows, by place and kind. Thread-safety: none.
class SiteRows {
  public:
    /// `index` is that of `site` in Report::sites.
    void add(const Place& place, const Site& site, std::size_t index);
    /// In order of their first sites; then there are none left.
    std::vector<SiteRow> take() { return std::move(rows_); }

  private:
    std::map<std::pair<Place, std::string>, std::size_t> known_;
    std::vector<SiteRow> rows_;
};

struct SiteTable {
    const Device* device = nullptr;
    Figures whole;  ///< of the device
    Figures taken;  ///< of what the filter took
    std::vector<SiteRow> rows;
};

/// What a view is to show, whatever its form.
struct ViewOptions {
    Style style;
    Order order = Order::peak;
    std::size_t top = 10;
    bool templates = false;               ///< their arguments are shown even where there is no room
    std::string filter;                   ///< Filter::text(), for the heading; empty: none
    std::string working_directory;        ///< files below it are shown relative to it
    std::optional<std::uint64_t> device;  ///< only this one
};

/// A table for each device that was used, rows sorted by `order`, then by place. `taken`: for each
/// site whether it is shown. Points into `report`.
std::vector<SiteTable> site_tables(const Report& report, Resolver& resolver,
                                   const std::vector<bool>& taken, const ViewOptions& options);

/// For people; ends with a newline.
std::string render_sites_text(const std::vector<SiteTable>& tables, const ViewOptions& options);

/// {file, sort, filter (null: none), devices [index, name, total, taken, sites [place, kind, api,
/// share, <figures>, sites], others {places, <figures>}]}. `total` is of the device, `taken` of
/// what the filter took; share is of the total by `sort`. <figures>: see figures_json().
std::string render_sites_json(const std::string& file, const std::vector<SiteTable>& tables,
                              const ViewOptions& options);

/// "GPU 0: NVIDIA H100", for a heading of a view; printable.
std::string device_title(const Device& device, bool ascii);

}  // namespace memlab::report
