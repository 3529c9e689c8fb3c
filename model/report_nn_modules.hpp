// A report's figures of PyTorch's nn.Modules: which of their calls allocated what, and what labels
// say is their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report_shape.hpp"

namespace memlab::model {

/// A stack of calls of nn.Modules, by its innermost one; or, by_label, an nn.Module with
/// parameters, buffers or states of an optimizer that no call of one allocated.
struct NnModuleStack {
    /// What it holds of one call site. Of those that held nothing at the peak or the end there is
    /// none.
    struct Holding {
        std::size_t site = 0;  ///< index into Report::sites
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
        std::uint64_t at_peak_count = 0;
        std::uint64_t at_peak_bytes = 0;
        std::uint64_t live_count = 0;
        std::uint64_t live_bytes = 0;

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.index({"site", "the call site"}, self.site, Table::sites);
            visit.number({"count", "allocations over the whole run"}, self.count);
            visit.number({"bytes", "their sum"}, self.bytes);
            visit.number({"at_peak_count",
                          "the part of them that was held when the site's device's allocated curve "
                          "was at its peak"},
                         self.at_peak_count);
            visit.number({"at_peak_bytes", "their sum"}, self.at_peak_bytes);
            visit.number({"live_count", "allocations held at the end"}, self.live_count);
            visit.number({"live_bytes", "their sum"}, self.live_bytes);
        }
        bool operator==(const Holding&) const = default;
    };
    std::optional<std::size_t> parent = {};  ///< index into Report::nn_modules, less than its own
    std::uint64_t nn_module = 0;
    std::optional<std::string> name = {};
    std::optional<std::string> class_name = {};
    bool by_label = false;
    std::vector<Holding> sites = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.earlier_index({"parent", "the call around it; null for an outermost one"},
                            self.parent);
        visit.number({"nn_module", "the nn.Module's number: that of one object, whoever calls it"},
                     self.nn_module);
        visit.text_or_null({"name",
                            "its qualified name, empty for the outermost one; null: the program "
                            "gave none"},
                           self.name);
        visit.text_or_null({"class", "its class; null: unknown"}, self.class_name);
        visit.flag_if_any({"by_label",
                           "not a call: what no call allocated and labels say is the "
                           "nn.Module's: parameters, buffers, states of an optimizer"},
                          self.by_label);
        visit.list({"sites",
                    "what its call allocated, or what its labels name, without nn.Modules inside: "
                    "the call sites of which something was held at the peak or at the end"},
                   self.sites);
    }
    bool operator==(const NnModuleStack&) const = default;
};

}  // namespace memlab::model
