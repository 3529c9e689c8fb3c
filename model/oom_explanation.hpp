// Explains why an allocation failed and who refused it, from the figures at that time. The same
// text is printed to stderr, stored in the report and derived from a log. All its numbers are in
// the report.
//
// These are facts. What would have helped takes a replay: memlab-report oom
// (report/whatif/oom_advice.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/framework_caches.hpp"
#include "model/memory_label.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::model {

/// The inputs of an explanation. A process that does not record fills them from its pool.
struct OomFigures {
    trace::OomTotals oom;
    /// The program's allocator that could not serve the request; empty: the driver, or memlab's
    /// pool.
    std::string allocator = {};
    std::string group = {};         ///< the cgroup of oom.event.group_limit
    bool sees_into_caches = false;  ///< what a framework's cache handed out is in the recording
    bool by_own_limit = false;      ///< `allocator` refused it, and no call of the driver failed
    /// For each of oom.holders.sites: the framework that caches freed memory there, or null.
    std::vector<const FrameworkCache*> caches;
    /// The labels of the memory of each of oom.holders.sites; may be empty.
    std::vector<std::vector<MemoryLabel>> labels;
};

/// "CUDA_ERROR_OUT_OF_MEMORY (2)"; "error 702" for those without a name here.
std::string error_text(std::int64_t error);

/// "memlab's pool" without an allocator of the program's; "PyTorch's cache".
std::string pool_name(const std::string& allocator);

/// The text of LabelTotals::name or SiteLabel::name; for 0 "(other names)".
std::string label_name(const trace::Aggregator& from, std::uint32_t name);

/// The inputs from an OOM of the recording.
OomFigures oom_figures(const trace::Aggregator& from, const trace::OomTotals& oom);

/// "driver", "memlab_limit", "cgroup" or "allocator": Oom::refused_by; empty: not known.
std::string refused_by(const OomFigures& figures);

/// Full sentences: the memory state, who refused the request, and why it did not fit.
std::vector<std::string> explain_oom(const OomFigures& figures);

/// A call site that holds memory, unsymbolized.
struct OomHolder {
    struct Frame {
        std::string module = {};    ///< path; empty when unknown
        std::uint64_t address = 0;  ///< return address, relative to the module if that is known
        std::uint64_t bias = 0;     ///< of the module: address + bias is the address in the process
        /// "train.py:42 in Model.forward", or trace::forward_marker; empty for a native frame.
        std::string python = {};
        bool library = false;  ///< Python code of an installed package
    };
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;
    std::string api;
    std::vector<Frame> frames;             ///< the call into CUDA first
    std::vector<MemoryLabel> labels = {};  ///< largest first
};

/// The frames of a call stack; empty if it is not known.
std::vector<OomHolder::Frame> holder_frames(const trace::Aggregator& from, std::uint32_t stack);

/// The call site of the failed request, without bytes and count.
OomHolder oom_request(const trace::Aggregator& from, const trace::OomTotals& oom);

/// The largest holders at that time, at most `limit`.
std::vector<OomHolder> oom_holders(const trace::Aggregator& from, const trace::OomTotals& oom,
                                   std::size_t limit);

}  // namespace memlab::model
