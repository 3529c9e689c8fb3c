// memlab-top's first page: every GPU, every process, and what holds the memory of the chosen one.
// Pure: from what was sampled to the lines of a screen.
#pragma once

#include <vector>

#include "tools/top/details.hpp"
#include "tools/top/history.hpp"
#include "tools/top/lines.hpp"
#include "tools/top/rows.hpp"
#include "tools/top/view_state.hpp"

namespace memlab::tools {

/// "memlab-top  node1  17:45:01  ...".
Line title_line(const History& history, const ViewState& state, const Screen& screen);
/// A line for each GPU, and what is not known.
std::vector<Line> gpu_lines(const MachineSample& sample, const Screen& screen);
/// The heading and the rows; the chosen one is tinted.
std::vector<Line> table_lines(const std::vector<Row>& rows, const ViewState& state,
                              const Screen& screen);
/// The largest call sites and nn.Modules of a process, at most `most` lines.
std::vector<Line> holder_lines(const Details& details, const ViewState& state,
                               const std::string& directory, const Screen& screen,
                               std::size_t most);
/// The keys, the question that is answered, or what the last command did.
Line foot_line(const ViewState& state, const Screen& screen);

/// All of the screen: exactly its rows. Chooses a process if none of `rows` is.
std::vector<Line> list_screen(const History& history, const std::vector<Row>& rows,
                              ViewState& state, const DetailsOf& details, const Screen& screen);
std::vector<Line> help_screen(const Screen& screen);

/// Everything once, for a file or a pipe: no choice, no rows left out.
std::vector<Line> once_lines(const History& history, const DetailsOf& details,
                             const ViewState& state, const Screen& screen);

}  // namespace memlab::tools
