// Who holds the memory of the machine's GPUs at one moment: what NVML, /proc and memlab's own
// processes say, put together. A value: memlab-top, memlab-ctl holders and the metrics are made of
// it, and so are their tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/live/live_documents.hpp"
#include "tools/live/documents.hpp"
#include "tools/live/nvml_reader.hpp"
#include "tools/live/process_facts.hpp"

namespace memlab::tools {

/// What a process has of one GPU.
struct GpuUse {
    std::size_t gpu = 0;  ///< index into MachineSample::gpus
    bool listed = false;  ///< by NVML
    /// Of the whole process, its contexts and code among them, as NVML says. None: not known.
    std::optional<std::uint64_t> used;
    bool graphics = false;
    /// It has the GPU's files open, and nothing says how much it holds.
    bool open_only = false;
    std::optional<model::StatusDocument::Gpu> memlab;

    /// NVML's figure, else what memlab knows: less, by the context.
    std::uint64_t known_bytes() const { return used ? *used : memlab ? memlab->reserved_bytes : 0; }
};

struct ProcessSample {
    ProcessFacts facts;
    bool memlab = false;                          ///< it has a control channel
    std::optional<model::StatusDocument> status;  ///< none: it did not answer
    std::string problem;                          ///< why not, one line
    std::vector<GpuUse> uses;                     ///< one for each GPU, in their order

    pid_t pid() const { return facts.pid; }
    /// Sums over its GPUs.
    std::uint64_t known_bytes() const;
    std::uint64_t allocated() const;
    std::uint64_t reserved() const;
    /// None: it has no framework whose cache is seen from inside.
    std::optional<std::uint64_t> tensors() const;
    std::uint64_t live_count() const;
    std::uint64_t cached() const;
};

struct GpuSample {
    Gpu gpu;  ///< without `processes`
    bool by_nvml = false;
    /// In use, and by no process that is listed: the driver's own, and processes of other
    /// containers where NVML does not list them. None: not known.
    std::optional<std::uint64_t> unaccounted;
};

struct MachineSample {
    std::uint64_t time_ns = 0;  ///< of the monotonic clock
    std::uint64_t wall_ns = 0;  ///< since the Unix epoch
    std::string host;
    std::string driver;        ///< its version; empty: unknown
    std::string nvml_problem;  ///< why NVML says nothing; empty: it does
    bool pids_of_the_host = true;
    std::vector<GpuSample> gpus;
    std::vector<ProcessSample> processes;  ///< by process id

    const ProcessSample* find(pid_t pid) const;
};

/// What was asked, as it came.
struct Observed {
    GpuListing gpus;
    std::vector<LiveStatus> statuses;
    std::vector<OpenDevices> open;
    std::map<pid_t, ProcessFacts> facts;  ///< of every process named above
    bool pids_of_the_host = true;
    pid_t own_child = 0;  ///< the one that asks NVML: no user of a GPU
};

/// Pure. `time_ns`, `wall_ns` and `host` stay to be set.
MachineSample join(Observed observed);

}  // namespace memlab::tools
