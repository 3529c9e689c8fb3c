// A trace for https://ui.perfetto.dev of one process or several, in Perfetto's own format.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "report/exports/input.hpp"
#include "report/exports/trace_packets.hpp"

namespace memlab::report::exports {

/// Thread-safety: none.
class PerfettoTrace {
  public:
    /// The trace's clock begins at `start_wall_ns` of Unix time; 0: not known.
    PerfettoTrace(model::ByteSink& sink, std::uint64_t start_wall_ns)
        : packets_(sink, start_wall_ns) {}

    /// Adds a process, which started at `start_ns` on the trace's clock. Returns a sentence on what
    /// is missing of it; empty: nothing. May throw std::bad_alloc.
    std::string add(const Input& input, std::uint64_t start_ns);

    /// Flushes; false when the sink has failed at any time.
    bool finish() { return packets_.finish(); }

  private:
    /// The process id, if it is one of Linux and no other process of the trace has it, else one
    /// above all of Linux.
    std::uint64_t unique_pid(std::uint64_t pid);

    TracePackets packets_;
    std::set<std::uint64_t> pids_;
};

}  // namespace memlab::report::exports
