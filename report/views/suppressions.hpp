// Suppressions: memory that may stay allocated at the end of a program, and why. Built-in ones
// cover libraries that keep memory on purpose. A suppression file is text:
//
//   # a comment
//   [attention masks]
//   reason = cached for the whole run on purpose
//   func   = mask_for
//   module = libattention.so*
//
// Each block has a `reason` and at least one pattern: func, file, module, kind, api, each at most
// once; all must match. Patterns are those of --filter; api is the function that the program called
// (cuMemAlloc_v2).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/report.hpp"
#include "report/summary/filter.hpp"

namespace memlab::report {

struct Suppression {
    std::string name;
    std::string reason;
    Filter filter;
    std::string api;  ///< a pattern; empty: any
    bool built_in = false;
    /// Built in: segments of a framework's cache that was seen from inside, whatever the patterns.
    bool segments = false;
    bool pytorchs_own = false;  ///< built in: is_pytorchs_own(), whatever the patterns

    bool matches(const model::Site& site, const std::vector<StackFrame>& frames) const;
};

struct SuppressionList {
    std::vector<Suppression> list;
    std::string problem;  ///< "line 3: what is wrong; what to do"; if set, the list is empty
};

enum class LeakKind { at_end, growing };

/// The first suppression that applies to the site; null if none does. Built-in ones do not apply to
/// growth: they cover memory that libraries keep once, not memory added at every step.
/// `frames`: of the site, which is one of `report`.
const Suppression* find_suppression(const std::vector<Suppression>& list,
                                    const model::Report& report, const model::Site& site,
                                    const std::vector<StackFrame>& frames, LeakKind leak);

/// Throws nothing but std::bad_alloc.
SuppressionList parse_suppressions(std::string_view text);

/// If the file cannot be read, `problem` is "cannot be read (why); what to do", without the path.
SuppressionList read_suppressions(const std::string& path);

/// The suppressions of all files, followed by the built-in ones if `defaults`. `problem` begins
/// with the path.
SuppressionList read_suppressions(const std::vector<std::string>& paths, bool defaults);

/// Built-in suppressions for well-known libraries. Memory of CUDA contexts needs none: reports do
/// not include it.
const std::vector<Suppression>& default_suppressions();

}  // namespace memlab::report
