// libFuzzer: the JSON reader, and everything that shows its result, on any bytes at all.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/reading/reader.hpp"
#include "report/summary/filter.hpp"
#include "report/summary/summary.hpp"
#include "report/views/call_tree.hpp"
#include "report/views/diff.hpp"
#include "report/views/leaks.hpp"
#include "report/views/ledger_text.hpp"
#include "report/views/nn_modules.hpp"
#include "report/views/site_table.hpp"

namespace {

using namespace memlab::model;

using namespace memlab::report;

/// Every view of a report, in whatever order and width `seed` says.
bool all_views(const Report& report, Resolver& resolver, std::size_t seed) {
    DiffOptions diff;
    diff.order = static_cast<Order>(seed % 5);
    diff.top = seed % 7 + 1;
    diff.by_place = seed % 2 == 0;
    diff.style.ascii = seed % 3 == 0;
    diff.style.width = 40 + static_cast<int>(seed % 81);
    LeakOptions leak;
    static_cast<ViewOptions&>(leak) = diff;
    leak.growth = seed % 2 == 0;
    leak.show_suppressed = true;
    TreeOptions how;
    how.top_down = seed % 2 == 0;
    how.all_frames = seed % 3 == 0;
    Filter filter;
    if (!filter.add(seed % 2 == 0 ? "scope=a" : "*a*").empty()) {
        return false;
    }
    const std::vector<bool> taken = filter.sites(report, resolver);
    const std::vector<bool> all(report.sites.size(), true);
    const auto tables = site_tables(report, resolver, taken, diff);
    const auto trees = call_trees(report, resolver, all, diff, how);
    const Leaks leaks = find_leaks(report, resolver, all, default_suppressions(), leak);
    const auto modules = nn_modules(report, resolver, diff);
    const DiffSide before{"a", report, resolver, taken};
    const DiffSide after{"b", report, resolver, all};
    const Diff changes = diff_reports(before, after, diff);
    const std::string suppressions = generate_suppressions(leaks);
    return parse_suppressions(suppressions).problem.empty() &&
           !render_sites_text(tables, diff).empty() &&
           !render_sites_json("f", tables, diff).empty() &&
           !render_tree_text(trees, diff, how).empty() &&
           !render_tree_json("f", trees, diff, how).empty() &&
           !render_leaks_text(report, leaks, leak).empty() &&
           !render_leaks_json("f", report, resolver, leaks, leak).empty() &&
           !render_ledger_text(report, resolver, seed % 2 == 0 ? LedgerAt::peak : LedgerAt::end,
                               diff)
                .empty() &&
           !render_ledger_json("f", report, resolver, diff).empty() &&
           !render_nn_modules_text(report, modules, diff).empty() &&
           !render_nn_modules_json("f", modules).empty() &&
           !render_diff_text(before, after, changes, diff).empty() &&
           !render_diff_json(before, after, changes, diff).empty();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const ReadResult read = parse_report({reinterpret_cast<const char*>(data), size});
    if (!read.report) {
        // A refusal without a reason, or of more than a line, is a defect too.
        if (read.error.empty() || read.error.find('\n') != std::string::npos) {
            __builtin_trap();
        }
        return 0;
    }
    Resolver resolver(*read.report, nullptr);
    const Summary summary = summarize("fuzz.json", *read.report, resolver);
    TextOptions options;
    options.stacks = 2;
    options.style.ascii = size % 2 == 0;
    options.style.width = 40 + static_cast<int>(size % 81);
    if (render_text(summary, resolver, options).empty() || render_short(summary, options).empty() ||
        render_json(summary, resolver, 3).empty() || !all_views(*read.report, resolver, size)) {
        __builtin_trap();
    }
    return 0;
}
