// The steps of a program that marks none: which of its calls returns once in each step.
//
// A loop is seen in the order of calls: the same call sites return, each as often in every
// iteration. Call sites that were reached equally often are tried as the one that ends an
// iteration; the outermost loop whose iterations consist of the same calls, and free most of what
// they allocate, is the loop of the steps. With PyTorch it is the outermost one in which an
// optimizer's step() returns: an epoch is none. docs/steps.md has the exact rules.
#pragma once

#include <optional>
#include <string>

#include "model/report.hpp"
#include "trace/aggregate/step_anchor.hpp"

namespace memlab::report {

struct FoundSteps {
    trace::StepAnchor anchor;
    /// "Adam.step returns at train.py:51", "17 call sites return in each".
    std::string evidence = {};
};

/// Looks at the beginning of a log. None: no loop that is beyond doubt. With `marked` it also gives
/// up, and sets that, where the program seems to mark its steps. May throw std::bad_alloc.
std::optional<FoundSteps> find_steps(const std::string& log, bool* marked = nullptr);

/// Whether it has marked steps enough for a verdict.
bool has_marked_steps(const model::Report& report);

/// Of a report that was aggregated with the anchor of `found`: describes these steps.
void describe_found_steps(model::Report& report, const FoundSteps& found);

/// Adds the steps that its event log shows to a report that has no marked steps enough for a
/// verdict, unless they were looked for when it was read. `log` empty: there is none. May throw
/// std::bad_alloc.
void add_found_steps(model::Report& report, const std::string& log);

}  // namespace memlab::report
