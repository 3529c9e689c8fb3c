// The members of a report that have sources of their own: devices, and what comes from the
// program's annotations (docs/scopes.md). And the parts that several members have.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "trace/aggregate/aggregator.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::report {

void write_device(JsonOutput& json, const trace::Aggregator& from,
                  const trace::DeviceTotals& device);

/// Writes the members `scopes`, `unbalanced_scopes`, `steps`, `labels` and `largest_live` into the
/// open object; empty ones are omitted. May throw std::bad_alloc.
void write_scopes(JsonOutput& json, const trace::Aggregator& from);

/// The members of a composition, within an object that the caller opened.
/// `add_members(i)` adds members to the object of the i-th site.
template <typename AddMembers>
void write_composition(JsonOutput& json, const trace::Composition& holders,
                       AddMembers add_members) {
    json.member("count", holders.count);
    json.member("bytes", holders.bytes);
    json.key("sites");
    json.begin_array();
    for (std::size_t i = 0; i < holders.sites.size(); ++i) {
        const trace::Holder& holder = holders.sites[i];
        json.begin_object();
        json.member("site", holder.site);
        json.member("count", holder.count);
        json.member("bytes", holder.bytes);
        add_members(i);
        json.end_object();
    }
    json.end_array();
    json.key("other");
    json.begin_object();
    json.member("sites", holders.other_sites);
    json.member("count", holders.other_count);
    json.member("bytes", holders.other_bytes);
    json.end_object();
}

inline void write_composition(JsonOutput& json, const trace::Composition& holders) {
    write_composition(json, holders, [](std::size_t) {});
}

inline void write_limit(JsonOutput& json, std::uint64_t bytes) {
    json.key("limit_bytes");
    if (bytes == 0) {
        json.null();
    } else {
        json.number(bytes);
    }
}

/// The current values of four curves, within an object that the caller opened.
inline void write_current(JsonOutput& json, const std::array<std::uint64_t, 4>& values) {
    json.member("requested_bytes", values[0]);
    json.member("allocated_bytes", values[1]);
    json.member("active_bytes", values[2]);
    json.member("reserved_bytes", values[3]);
}

}  // namespace memlab::report
