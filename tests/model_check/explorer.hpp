// Every state that a setting of the fence protocol can reach with so many operations, each visited
// once, nearest first: so the operations that lead to a flaw are as few as can be.
//
// The pool cannot be copied, so a state is its operations from the beginning, done again. Two
// states with the same 64-bit fingerprint are taken for one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/model_check/protocol.hpp"

namespace memlab::model_check {

struct Exploration {
    std::uint64_t states = 0;
    std::uint64_t transitions = 0;
    /// Sequences of exactly `depth` operations that were covered, those that differ in the names of
    /// streams counted once.
    std::uint64_t sequences = 0;
    Flaw flaw = Flaw::none;
    std::string story;  ///< what is wrong and how to get there; empty when nothing is
};

/// `merge`: visit equal states once (else every sequence is walked).
Exploration explore(const Setting& setting, unsigned depth, bool merge = true);

/// The fingerprints of all states within `depth`, sorted.
std::vector<std::uint64_t> reachable(const Setting& setting, unsigned depth, bool merge);

}  // namespace memlab::model_check
