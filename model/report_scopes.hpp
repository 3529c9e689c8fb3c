// A report's figures of the program's annotations: scopes, steps, labels (docs/scopes.md), marks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report_device.hpp"
#include "model/report_shape.hpp"

namespace memlab::model {

struct Mark {
    struct OnDevice {
        std::uint64_t device = 0;
        CurveValues values = {};
        std::uint64_t allocated_peak_bytes = 0;  ///< since the previous mark
        std::uint64_t reserved_peak_bytes = 0;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number("device", self.device);
            CurveValues::fields(self.values, visit);
            visit.number("allocated_peak_bytes", self.allocated_peak_bytes);
            visit.number("reserved_peak_bytes", self.reserved_peak_bytes);
        }
        bool operator==(const OnDevice&) const = default;
    };
    std::string type = {};  ///< "mark", "scope_begin", "scope_end"
    std::string name = {};
    std::uint64_t time_ns = 0;
    std::uint64_t thread = 0;
    std::vector<OnDevice> devices = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text("type", self.type);
        visit.text("name", self.name);
        visit.number("time_ns", self.time_ns);
        visit.extra("thread", self.thread);
        visit.list("devices", self.devices);
    }
    bool operator==(const Mark&) const = default;
};

struct Scope {
    std::optional<std::size_t> parent = {};  ///< index into Report::scopes, less than its own
    std::string kind = {};                   ///< "scope" of a thread, "range" of the process
    std::string name = {};
    std::uint64_t entries = 0;
    std::uint64_t open = 0;
    std::uint64_t duration_ns = 0;
    std::uint64_t allocated_count = 0;
    std::uint64_t allocated_bytes = 0;
    std::uint64_t other_threads_count = 0;
    std::uint64_t other_threads_bytes = 0;
    std::uint64_t freed_count = 0;
    std::uint64_t freed_bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t peak_growth_bytes = 0;
    std::uint64_t max_escaped_bytes = 0;  ///< of one entry
    Holders escaped = {};                 ///< does not count the sites that are not listed

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.earlier_index("parent", self.parent);
        visit.text("kind", self.kind);
        visit.text("name", self.name);
        visit.number("entries", self.entries);
        visit.number("open", self.open);
        visit.number("duration_ns", self.duration_ns);
        visit.number("allocated_count", self.allocated_count);
        visit.number("allocated_bytes", self.allocated_bytes);
        visit.number("other_threads_count", self.other_threads_count);
        visit.number("other_threads_bytes", self.other_threads_bytes);
        visit.number("freed_count", self.freed_count);
        visit.number("freed_bytes", self.freed_bytes);
        visit.number("peak_bytes", self.peak_bytes);
        visit.number("peak_growth_bytes", self.peak_growth_bytes);
        visit.group("escaped", [&self](auto& escaped) {
            escaped.number("count", self.escaped.count);
            escaped.number("bytes", self.escaped.bytes);
            escaped.number("most_bytes", self.max_escaped_bytes);
            escaped.list("sites", self.escaped.sites);
            escaped.group("other", [&self](auto& other) {
                other.number("count", self.escaped.other_count);
                other.number("bytes", self.escaped.other_bytes);
            });
        });
    }
    bool operator==(const Scope&) const = default;
};

struct UnbalancedScopes {
    std::uint64_t ends_without_begin = 0;
    std::uint64_t ended_with_thread = 0;
    std::uint64_t too_many_open = 0;
    std::uint64_t open_at_end = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("ends_without_begin", self.ends_without_begin);
        visit.number("ended_with_thread", self.ended_with_thread);
        visit.number("too_many_open", self.too_many_open);
        visit.number("open_at_end", self.open_at_end);
    }
    bool operator==(const UnbalancedScopes&) const = default;
};

struct Trend {
    double bytes_per_step = 0;
    std::uint64_t first_bytes = 0;
    std::uint64_t last_bytes = 0;
    std::uint64_t min_bytes = 0;
    std::uint64_t max_bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.real("bytes_per_step", self.bytes_per_step);
        visit.number("first_bytes", self.first_bytes);
        visit.number("last_bytes", self.last_bytes);
        visit.number("min_bytes", self.min_bytes);
        visit.number("max_bytes", self.max_bytes);
    }
    bool operator==(const Trend&) const = default;
};

struct Steps {
    struct Growing {
        std::size_t site = 0;  ///< index into Report::sites
        Trend trend = {};

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.index("site", self.site, Table::sites);
            Trend::fields(self.trend, visit);
        }
        bool operator==(const Growing&) const = default;
    };
    std::string kind = {};  ///< "mark", "scope" or "range"
    std::string name = {};
    std::uint64_t steps = 0;
    std::uint64_t warm_up_steps = 0;
    std::string verdict = {};  ///< "too few steps", "steady", "growing", "sawtooth"
    Trend trend = {};
    std::uint64_t steps_per_block = 0;
    std::vector<std::uint64_t> block_min_bytes = {};
    std::vector<std::uint64_t> block_max_bytes = {};
    bool by_site = false;
    std::vector<Growing> growing = {};  ///< fastest first; the first of growing_site_count
    std::uint64_t growing_site_count = 0;
    std::uint64_t sites_left_out = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text("kind", self.kind);
        visit.text("name", self.name);
        visit.number("steps", self.steps);
        visit.number("warm_up_steps", self.warm_up_steps);
        visit.text("verdict", self.verdict);
        Trend::fields(self.trend, visit);
        visit.group("blocks", [&self](auto& blocks) {
            blocks.number("steps", self.steps_per_block);
            blocks.numbers("min_bytes", self.block_min_bytes);
            blocks.numbers("max_bytes", self.block_max_bytes);
        });
        visit.flag("by_site", self.by_site);
        visit.list("growing_sites", self.growing);
        visit.number("growing_site_count", self.growing_site_count);
        visit.number("sites_left_out", self.sites_left_out);
    }
    bool operator==(const Steps&) const = default;
};

struct Label {
    std::string name = {};
    std::uint64_t count = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;
    std::uint64_t peak_bytes = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text("name", self.name);
        visit.number("count", self.count);
        visit.number("live_count", self.live_count);
        visit.number("live_bytes", self.live_bytes);
        visit.number("peak_bytes", self.peak_bytes);
    }
    bool operator==(const Label&) const = default;
};

struct LiveAllocation {
    std::uint64_t address = 0;
    std::size_t site = 0;  ///< index into Report::sites
    std::uint64_t thread = 0;
    std::uint64_t time_ns = 0;
    std::uint64_t requested_bytes = 0;
    std::uint64_t bytes = 0;
    std::optional<std::string> label = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("address", self.address);
        visit.index("site", self.site, Table::sites);
        visit.number("thread", self.thread);
        visit.number("time_ns", self.time_ns);
        visit.number("requested_bytes", self.requested_bytes);
        visit.number("bytes", self.bytes);
        visit.text_or_null("label", self.label);
    }
    bool operator==(const LiveAllocation&) const = default;
};

}  // namespace memlab::model
