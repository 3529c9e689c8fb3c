// The effective options as typed values, filled from the option table and the environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/pool_options.hpp"
#include "interpose/options/device_limits.hpp"
#include "interpose/options/passthrough.hpp"

namespace memlab::interpose {

/// How much memlab writes to stderr. Except with `debug`, nothing unless there is a problem.
enum class Verbosity : std::uint8_t { quiet, warnings, debug };

/// Whether call sites name Python functions and lines. `verify` also compares each with the
/// interpreter's own stack where that is accessible.
enum class PythonFrames : std::uint8_t { off, automatic, verify };

/// Whether memlab subscribes to CUPTI: when an option needs it and no other subscriber is present;
/// always; never.
enum class CuptiUse : std::uint8_t { automatic, on, off };

/// Whether the memory that CUDA itself uses, beyond allocations, is measured: within a budget of
/// the run's time; always; never.
enum class LedgerUse : std::uint8_t { automatic, on, off };

/// What fresh memory is filled with, if at all. Zeros are what plain CUDA's memory happens to hold,
/// so only the pool's needs them; a pattern is for all device memory, the driver's as well.
struct Fill {
    bool pooled = false;
    bool driver = false;
    unsigned char value = 0;
};

struct Settings {
    bool disabled = false;
    bool pool = true;
    bool record = true;
    bool work_clock = true;
    bool one_stream = true;
    bool choose_backend = true;  ///< whether the pool maps its memory depends on the process
    bool files = true;           ///< write the event log and the report
    bool keep_log = true;
    bool arguments = true;          ///< record command lines
    std::string output;             ///< pattern of the report's path: %e %p %h %r %%
    std::uint64_t log_limit = 0;    ///< bytes; 0: no limit
    std::uint32_t stack_depth = 0;  ///< frames; 0: no stacks
    std::uint32_t max_stacks = 0;   ///< limit for complete stacks
    PythonFrames python = PythonFrames::automatic;
    Verbosity verbosity = Verbosity::warnings;
    allocator::PoolOptions pool_options;
    Fill fill;
    CuptiUse cupti = CuptiUse::automatic;
    LedgerUse ledger = LedgerUse::automatic;
    bool kernels = false;             ///< record kernels, copies and fills
    bool audit = false;               ///< compare with CUPTI's records
    bool detect_ipc = true;           ///< stop pooling once an IPC library is loaded
    bool share_ipc = true;            ///< export pooled blocks to processes under memlab
    bool live = true;                 ///< answer on the control channel
    std::uint64_t hold_on_oom = 0;    ///< seconds to wait at an out-of-memory; 0: not
    bool yield = false;               ///< the process can step aside
    std::uint64_t yield_signals = 0;  ///< signals that do that: bit 1 << number each
    std::uint64_t yield_timeout_ns = 0;
    bool names = true;                ///< the Python package names nn.Modules without a call
    bool forward_lines = true;        ///< of what PyTorch's backward allocates
    bool pytorch_caches = true;       ///< PyTorch's own cache is on: its segments are not pooled
    std::vector<DeviceLimit> limits;  ///< of device memory
    Passthrough passthrough;
    std::uint64_t report_signals = 0;  ///< signals that ask for a report: bit 1 << number each
    std::string run_manifest;          ///< path of memlab-run's manifest; empty: none
};

}  // namespace memlab::interpose
