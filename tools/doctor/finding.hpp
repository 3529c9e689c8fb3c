// What the doctor's examinations hand on: one statement on a subject, how much it matters, and what
// to do about it.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace memlab::tools {

enum class Weight {
    fine,     ///< as it should be
    note,     ///< worth knowing; nothing is lost
    limit,    ///< memlab works, but misses something or does it differently
    blocked,  ///< memlab records nothing, or the command does not start under it
};

struct Finding {
    Weight weight = Weight::fine;
    std::string subject;  ///< a word or two: "libc"
    std::string fact;     ///< what there is
    std::string advice;   ///< what follows from it and what to do; may be empty
};

/// The findings of one part of the page, in its order.
using Findings = std::vector<Finding>;

/// The environment that the command would get beyond the tool's own.
using Variables = std::vector<std::pair<std::string, std::string>>;

/// The variable's value there, else in the tool's environment; empty when it is not set.
std::string variable(const Variables& variables, const std::string& name);

}  // namespace memlab::tools
