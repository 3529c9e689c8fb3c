// A report's figures of the program's annotations: scopes, steps, labels (docs/scopes.md), marks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report_device.hpp"
#include "model/report_shape.hpp"
#include "trace/aggregate/step_anchor.hpp"

namespace memlab::model {

struct Mark {
    struct OnDevice {
        std::uint64_t device = 0;
        CurveValues values = {};
        std::uint64_t allocated_peak_bytes = 0;
        std::uint64_t reserved_peak_bytes = 0;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"device", "the index of the device"}, self.device);
            CurveValues::fields(self.values, visit);
            visit.number({"allocated_peak_bytes", "the allocated peak since the mark before"},
                         self.allocated_peak_bytes);
            visit.number({"reserved_peak_bytes", "the reserved peak since the mark before"},
                         self.reserved_peak_bytes);
        }
        bool operator==(const OnDevice&) const = default;
    };
    std::string type = {};
    std::string name = {};
    std::uint64_t time_ns = 0;
    std::uint64_t thread = 0;
    std::vector<OnDevice> devices = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text({"type", "`mark`; version 1 also allows the others",
                    one_of("mark", "scope_begin", "scope_end")},
                   self.type);
        visit.text({"name", "what the program called it"}, self.name);
        visit.number({"time_ns", "when it was set"}, self.time_ns);
        visit.extra({"thread", "by which thread"}, self.thread);
        visit.list({"devices", "the memory of each device"}, self.devices);
    }
    bool operator==(const Mark&) const = default;
};

struct Scope {
    static constexpr std::size_t max_escaped_sites = 16;
    std::optional<std::size_t> parent = {};  ///< index into Report::scopes, less than its own
    std::string kind = {};
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
    std::uint64_t max_escaped_bytes = 0;
    Holders escaped = {};  ///< does not count the sites that are not listed

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.earlier_index({"parent", "the scope around it; null for an outermost one"},
                            self.parent);
        visit.text(
            {"kind", "`scope` of a thread, `range` of the process", one_of("scope", "range")},
            self.kind);
        visit.text(
            {"name", "its own; `#` stands for numbers where many names differ in nothing else"},
            self.name);
        visit.number({"entries", "how often it began"}, self.entries);
        visit.number({"open", "how many of these had not ended"}, self.open);
        visit.number({"duration_ns", "sum over the entries"}, self.duration_ns);
        visit.number({"allocated_count", "allocations inside"}, self.allocated_count);
        visit.number({"allocated_bytes", "their sum"}, self.allocated_bytes);
        visit.number({"other_threads_count", "of these, by threads that have no scopes"},
                     self.other_threads_count);
        visit.number({"other_threads_bytes", "their sum"}, self.other_threads_bytes);
        visit.number({"freed_count",
                      "freed inside by the program, wherever it was allocated; memory that ended "
                      "with its context does not count"},
                     self.freed_count);
        visit.number({"freed_bytes", "their sum"}, self.freed_bytes);
        visit.number({"peak_bytes",
                      "the highest value of the process's `allocated` while an entry was open"},
                     self.peak_bytes);
        visit.number(
            {"peak_growth_bytes", "the most that it rose above its value at the start of an entry"},
            self.peak_growth_bytes);
        visit.group(
            {"escaped", "what was allocated inside and was still live when the entry ended"},
            [&self](auto& escaped) {
                escaped.number({"count", "how many"}, self.escaped.count);
                escaped.number({"bytes", "their sum"}, self.escaped.bytes);
                escaped.number({"most_bytes", "the most of one entry"}, self.max_escaped_bytes);
                escaped.list(
                    {"sites", "of which call sites, most bytes first", AtMost{max_escaped_sites}},
                    self.escaped.sites);
                escaped.group({"other", "the sites that are not listed"}, [&self](auto& other) {
                    other.number({"count", "allocations of theirs"}, self.escaped.other_count);
                    other.number({"bytes", "their sum"}, self.escaped.other_bytes);
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
        visit.number({"ends_without_begin", "ends without a begin"}, self.ends_without_begin);
        visit.number({"ended_with_thread", "left open by a thread that ended"},
                     self.ended_with_thread);
        visit.number(
            {"too_many_open",
             "begins that were not followed: deeper than 64 in a thread, more than 4096 ranges"},
            self.too_many_open);
        visit.number({"open_at_end", "open when the recording ended"}, self.open_at_end);
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
        visit.real(
            {"bytes_per_step",
             "slope of the line of least squares through the blocks' minima; may be negative"},
            self.bytes_per_step);
        visit.number({"first_bytes", "lowest value of the first block"}, self.first_bytes);
        visit.number({"last_bytes", "value after the last step"}, self.last_bytes);
        visit.number({"min_bytes", "lowest value"}, self.min_bytes);
        visit.number({"max_bytes", "highest value"}, self.max_bytes);
    }
    bool operator==(const Trend&) const = default;
};

struct Steps {
    static constexpr std::size_t max_growing = 16;
    struct Growing {
        std::size_t site = 0;  ///< index into Report::sites
        Trend trend = {};

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.index({"site", "the call site"}, self.site, Table::sites);
            Trend::fields(self.trend, visit);
        }
        bool operator==(const Growing&) const = default;
    };
    std::string kind = {};
    std::string name = {};
    std::string evidence = {};
    std::optional<trace::StepAnchor> anchor = {};  ///< of found steps; in no file
    std::uint64_t steps = 0;
    std::uint64_t warm_up_steps = 0;
    std::string verdict = {};
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
        visit.text({"kind",
                    "what ends a step: a mark, the end of a scope or of a range; `found`: unmarked "
                    "steps that `memlab-report` found in the order of the calls",
                    one_of("mark", "scope", "range", "found")},
                   self.kind);
        visit.text({"name", "its name; numbers in it are `#`"}, self.name);
        visit.text_if_any({"evidence", "how unmarked steps were found"}, self.evidence);
        visit.number({"steps", "how many there were"}, self.steps);
        visit.number({"warm_up_steps",
                      "how many of these are warm-up: the first quarter, which only `blocks` has"},
                     self.warm_up_steps);
        visit.text({"verdict", "how the memory develops over the steps",
                    one_of("too few steps", "steady", "growing", "sawtooth")},
                   self.verdict);
        Trend::fields(self.trend, visit);
        visit.group({"blocks", "the memory in equal parts of the run, warm-up included"},
                    [&self](auto& blocks) {
                        blocks.number(
                            {"steps", "how many steps a block has; the last may have fewer"},
                            self.steps_per_block);
                        blocks.numbers({"min_bytes", "the minimum of each block", AtMost{32}},
                                       self.block_min_bytes);
                        blocks.numbers({"max_bytes", "the maximum of each block", AtMost{32}},
                                       self.block_max_bytes);
                    });
        visit.flag({"by_site", "sites were followed, for the first 4 kinds of step"}, self.by_site);
        visit.list({"growing_sites", "fastest first", AtMost{max_growing}}, self.growing);
        visit.number({"growing_site_count", "how many there are"}, self.growing_site_count);
        visit.number({"sites_left_out", "sites that were not followed: more than 8192 changed"},
                     self.sites_left_out);
    }
    bool operator==(const Steps&) const = default;
};

struct Label {
    std::string name = {};
    std::uint64_t count = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;
    std::uint64_t peak_bytes = 0;
    std::string detail = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.text({"name", "the program's name"}, self.name);
        visit.number({"count", "allocations with this name"}, self.count);
        visit.number({"live_count", "of these held at the end"}, self.live_count);
        visit.number({"live_bytes", "their sum"}, self.live_bytes);
        visit.number({"peak_bytes", "the most that was held at once"}, self.peak_bytes);
        visit.text_if_any(
            {"detail", "what each of them holds (float32[512, 512]), if all hold the same"},
            self.detail);
    }
    bool operator==(const Label&) const = default;
};

struct LiveAllocation {
    static constexpr std::size_t max_entries = 64;
    std::uint64_t address = 0;
    std::size_t site = 0;  ///< index into Report::sites
    std::uint64_t thread = 0;
    std::uint64_t time_ns = 0;
    std::uint64_t requested_bytes = 0;
    std::uint64_t bytes = 0;
    std::optional<std::string> label = {};
    std::string label_detail = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"address", "its address, or the handle"}, self.address);
        visit.index({"site", "the call site"}, self.site, Table::sites);
        visit.number({"thread", "which allocated it"}, self.thread);
        visit.number({"time_ns", "when"}, self.time_ns);
        visit.number({"requested_bytes", "what was asked for"}, self.requested_bytes);
        visit.number({"bytes", "what serves it"}, self.bytes);
        visit.text_or_null({"label", "the program's name; null: none"}, self.label);
        visit.text_if_any({"label_detail", "what it holds beside its name: float32[512, 512]"},
                          self.label_detail);
    }
    bool operator==(const LiveAllocation&) const = default;
};

}  // namespace memlab::model
