// The options in force, as values. Filled from the option table and the environment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/pool_options.hpp"
#include "interpose/options/device_limits.hpp"
#include "interpose/options/passthrough.hpp"

namespace memlab::interpose {

/// How much memlab says on stderr. Nothing is said at all while nothing is wrong, but for `debug`.
enum class Verbosity : std::uint8_t { quiet, warnings, debug };

/// Whether call sites name Python functions and lines. `verify` compares each with the
/// interpreter's own account where that can be asked.
enum class PythonFrames : std::uint8_t { off, automatic, verify };

/// Whether memlab subscribes to CUPTI: only when something asks for what only CUPTI tells, and
/// nobody else is there; always; never.
enum class CuptiUse : std::uint8_t { automatic, on, off };

struct Settings {
    bool disabled = false;
    bool pool = true;
    bool record = true;
    bool work_clock = true;
    bool one_stream = true;
    bool keep_log = true;
    bool arguments = true;          ///< record what the program was started with
    std::string output;             ///< pattern of the report's path: %e %p %h %r %%
    std::uint64_t log_limit = 0;    ///< bytes; 0: no limit
    std::uint32_t stack_depth = 0;  ///< frames; 0: no stacks
    std::uint32_t max_stacks = 0;   ///< that are kept whole
    PythonFrames python = PythonFrames::automatic;
    Verbosity verbosity = Verbosity::warnings;
    allocator::PoolOptions pool_options;
    CuptiUse cupti = CuptiUse::automatic;
    bool kernels = false;             ///< record kernels, copies and fills
    bool audit = false;               ///< compare with the driver's own records
    bool look_for_ipc = true;         ///< plain memory once a library that exports it is loaded
    std::vector<DeviceLimit> limits;  ///< of device memory
    Passthrough passthrough;
    std::string
        run_manifest;  ///< memlab-run's: where each process says what it writes; may be empty
};

}  // namespace memlab::interpose
