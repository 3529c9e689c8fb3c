// The text of the report (docs/report-format.md) of an Aggregator. The preload library links it,
// and it runs inside other people's programs at exit: no stdio, no locales, and the text is
// streamed through a small buffer, not built in memory.
//
// Deterministic: independent of the clock, the environment and the order of hash tables.
#pragma once

#include <string>

#include "model/json_output.hpp"
#include "model/report_builder.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::model {

/// Writes the report; false if the sink failed. May throw std::bad_alloc.
/// Thread-safety: the aggregator must not change meanwhile.
/// `damage`: LogInfo::damage.
bool write_json(ByteSink& sink, const trace::Aggregator& from, Moment moment,
                const std::string& damage = {});

/// Returns the same text. May throw std::bad_alloc.
std::string report_to_string(const trace::Aggregator& aggregator, Moment moment = Moment::end,
                             const std::string& damage = {});

}  // namespace memlab::model
