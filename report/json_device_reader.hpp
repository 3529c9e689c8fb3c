// Reads what a report says of one GPU, and who held its memory at a moment.
#pragma once

#include <cstddef>

#include "report/json_node.hpp"
#include "report/model.hpp"

namespace memlab::report {

// Each throws Invalid where the value is not what the schema says.

/// `has_time`: whether it tells its moment.
Holders read_holders(const Node& node, std::size_t site_count, bool has_time);
/// The current values of the curves, among the members of an object.
CurveValues read_values(const Node& node);
Device read_device(const Node& node, std::size_t site_count);

}  // namespace memlab::report
