// memlab-top's pages of one process: timeline, call sites, their tree, nn.Modules, and how the
// GPU's memory is divided. Pure: from what was sampled to the lines of a screen.
#pragma once

#include <vector>

#include "tools/top/details.hpp"
#include "tools/top/history.hpp"
#include "tools/top/lines.hpp"
#include "tools/top/view_state.hpp"

namespace memlab::tools {

/// All of the screen: exactly its rows. Bounds state.scroll. A process that has ended says so.
std::vector<Line> process_screen(const History& history, ViewState& state, const Details& details,
                                 const Screen& screen);

/// The body of a page, as long as it is.
std::vector<Line> timeline_lines(const std::vector<HistoryPoint>& points, const Screen& screen,
                                 std::size_t rows);
std::vector<Line> site_lines(const LiveSites& sites, const std::string& directory,
                             const Screen& screen);
std::vector<Line> tree_lines(const LiveSites& sites, const Screen& screen);
std::vector<Line> nn_module_lines(const NnModules& nn_modules, const Screen& screen);
/// `details`: with the pool, if it is known.
std::vector<Line> map_lines(const ProcessSample& process, const MachineSample& sample,
                            const Details& details, const Screen& screen);

}  // namespace memlab::tools
