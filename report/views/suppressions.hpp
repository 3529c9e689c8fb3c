// What may stay allocated at the end of a program, and why: the memory that libraries keep on
// purpose, and what a user knows of their own program. A file of them is text:
//
//   # a comment
//   [attention masks]
//   reason = cached for the whole run on purpose
//   func   = mask_for
//   module = libattention.so*
//
// A block for each; `reason` and at least one pattern of func, file, module, kind and api, each at
// most once, all of which must match. Patterns are those of --filter; api is the function that the
// program called (cuMemAlloc_v2).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/model.hpp"
#include "report/summary/filter.hpp"

namespace memlab::report {

struct Suppression {
    std::string name;
    std::string reason;
    Filter filter;
    std::string api;  ///< a pattern; empty: any
    bool built_in = false;

    bool matches(const Site& site, const std::vector<StackFrame>& frames) const;
};

struct ReadSuppressions {
    std::vector<Suppression> list;
    std::string problem;  ///< "line 3: what; what to do"; then the list is empty
};

enum class LeakKind { left, growing };

/// The first that takes such a leak of the site; null when none does. Those that are built in say
/// what libraries keep, not what they may add at every step: growth is taken by the others only.
const Suppression* find_suppression(const std::vector<Suppression>& list, const Site& site,
                                    const std::vector<StackFrame>& frames, LeakKind leak);

/// Never throws but for want of memory.
ReadSuppressions parse_suppressions(std::string_view text);

/// "cannot be read (why); what to do" is a problem too; without the path.
ReadSuppressions read_suppressions(const std::string& path);

/// Those of all files, then with `defaults` the built-in ones. `problem` is "PATH: ...".
ReadSuppressions read_suppressions(const std::vector<std::string>& paths, bool defaults);

/// What well-known libraries keep. Memory of a CUDA context is no allocation and in no report, so
/// it needs none.
const std::vector<Suppression>& default_suppressions();

}  // namespace memlab::report
