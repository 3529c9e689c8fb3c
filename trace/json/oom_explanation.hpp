// Why an allocation failed and what to do about it, in sentences made of the figures at that
// moment: the one text that goes to stderr, into the report, and, from the log alone, to whoever
// reads it later. Every number in it is one of the report's.
//
// Advice is given only where the figures bear it out: what would have helped this allocation, the
// surest first, three pieces at most.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/aggregate/aggregator.hpp"
#include "trace/json/framework_caches.hpp"
#include "trace/json/memory_label.hpp"

namespace memlab::report {

/// What an explanation is made from; a process that does not record fills it from its pool.
struct OomFigures {
    trace::OomTotals oom;
    bool async_pools = false;  ///< the program has used the driver's stream-ordered pools
    bool vmm_backend = false;  ///< memlab's pool runs with MEMLAB_BACKEND=vmm already
    /// Who keeps freed memory on top of memlab, or null, for each of oom.holders.sites.
    std::vector<const FrameworkCache*> caches;
    /// What the program calls the memory of each of oom.holders.sites; may be empty.
    std::vector<std::vector<HeldLabel>> labels;
};

/// What LabelTotals and SiteLabel call `name`: the program's word, or a stand-in for many.
std::string label_name(const trace::Aggregator& from, std::uint32_t name);

/// The figures of an OOM of the recording.
OomFigures oom_figures(const trace::Aggregator& from, const trace::OomTotals& oom);

/// Full sentences: what there was, why the request did not fit, what may help.
std::vector<std::string> explain_oom(const OomFigures& figures);

/// A place that holds memory, as far as the recording itself knows it.
struct OomHolder {
    struct Place {
        std::string module = {};    ///< path; empty when unknown
        std::uint64_t address = 0;  ///< return address, relative to the module where it is known
        std::uint64_t bias = 0;     ///< of the module: address + bias is the address in the process
        std::string python = {};    ///< "train.py:42 in Model.forward"; empty for a native frame
        bool library = false;       ///< Python code of an installed package
    };
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;
    std::string api;
    std::vector<Place> frames;           ///< the call into CUDA first
    std::vector<HeldLabel> labels = {};  ///< the program's names for it, what holds most first
};

/// The place that asked for the memory: no bytes and no count.
OomHolder oom_request(const trace::Aggregator& from, const trace::OomTotals& oom);

/// The largest holders at that moment, at most `limit`.
std::vector<OomHolder> oom_holders(const trace::Aggregator& from, const trace::OomTotals& oom,
                                   std::size_t limit);

}  // namespace memlab::report
