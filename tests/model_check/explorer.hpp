// A breadth-first state-space search of the fence protocol: visits every state within a number of
// operations once, so a counterexample is a shortest one.
//
// The pool cannot be copied, so a state is stored as its operations from the beginning, which are
// repeated to restore it. States with the same 64-bit fingerprint are taken as equal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/model_check/protocol.hpp"

namespace memlab::model_check {

struct Exploration {
    std::uint64_t states = 0;
    std::uint64_t transitions = 0;
    /// The number of sequences of exactly `depth` operations that were covered, up to permutation
    /// of streams.
    std::uint64_t sequences = 0;
    // Operations that reached this (Reached):
    std::uint64_t calls_while_arriving = 0;
    std::uint64_t calls_while_leaving = 0;
    std::uint64_t surpluses = 0;
    std::uint64_t waits_for_turn = 0;
    std::uint64_t failures_in_turn = 0;
    Flaw flaw = Flaw::none;
    std::string story;  ///< the flaw and the operations that lead to it; empty if there is none
};

/// `merge`: visit equal states once (else all sequences are executed).
Exploration explore(const Setting& setting, unsigned depth, bool merge = true);

/// The fingerprints of all states within `depth`, sorted.
std::vector<std::uint64_t> reachable(const Setting& setting, unsigned depth, bool merge);

}  // namespace memlab::model_check
