// Runs a recorded program through a model, once, and says what it came to. The run ends at the
// first allocation that the model refuses: what a program does after that is not in a recording of
// a run in which it did not happen. (Allocations that failed when recorded are tried, and given
// back at once when the model serves them: they decide nothing.)
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "report/whatif/model.hpp"
#include "report/whatif/program.hpp"

namespace memlab::whatif {

struct Failure {
    std::uint32_t allocation = 0;  ///< index into Program::allocations
    std::uint64_t reserved = 0;    ///< at that moment, after what could be given back was
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
    std::uint64_t attempts_served =
        0;  ///< allocations that failed when recorded and would not here
};

/// Called after each step with the model as it is then.
using StepObserver = std::function<void(std::size_t step, const Model& model)>;

Outcome run(const Program& program, Model& model, const StepObserver& observe = {});

}  // namespace memlab::whatif
