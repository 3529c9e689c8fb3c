// Runs a recorded program on a model. The run ends at the first allocation that the model refuses,
// since the recording does not show what the program would do then. (Allocations that failed in the
// recording are tried, and freed at once when the model serves them.)
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "report/whatif/model.hpp"
#include "report/whatif/program.hpp"

namespace memlab::report::whatif {

struct Failure {
    std::uint32_t allocation = 0;  ///< index into Program::allocations
    std::uint64_t reserved = 0;    ///< then, after releasing what could be released
    std::uint64_t allocated = 0;
};

struct Outcome {
    std::uint64_t reserved_peak = 0;
    std::uint64_t allocated_peak = 0;
    std::uint64_t active_peak = 0;
    std::uint64_t requested_at_peak = 0;  ///< at the allocated peak
    FreeSpace at_growth;                  ///< just before the last new reserved peak
    DriverCalls calls;
    std::optional<Failure> failure;
    std::uint64_t attempts_served = 0;  ///< allocations that failed only in the recording
};

/// Called after each step.
using StepObserver = std::function<void(std::size_t step, const Model& model)>;

Outcome run(const Program& program, Model& model, const StepObserver& observe = {});

/// What became of one allocation in a run that ends there.
enum class Served : std::uint8_t {
    yes,
    no,
    not_reached,  ///< the model refused an earlier one that the recording served
};

/// Runs the program up to `allocation`, which it asks for or tried to get, and tells whether the
/// model serves it.
Served serves(const Program& program, Model& model, std::uint32_t allocation);

}  // namespace memlab::report::whatif
