// What --filter takes: patterns that sites must match, the same for every command.
//
//   TEXT         the function, the file or the module of a frame
//   func=TEXT    the function of a frame, with or without its parameters
//   file=TEXT    the source file of a frame
//   module=TEXT  the program or library of a frame
//   scope=TEXT   memory that outlived a scope of this path: so much a report knows of scopes
//   kind=TEXT    the kind of memory: device, managed, pinned, ...
//
// TEXT is looked for anywhere in the name. With *, ? or [ in it, it is a pattern as a shell knows
// them, for the whole name, or for what comes after its last slash. A site matches a pattern when
// any frame of its stack does, inlined ones too; several patterns must all match.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/model.hpp"
#include "report/symbols/resolver.hpp"

namespace memlab::report {

/// TEXT of a filter, and of a suppression: see above.
bool matches_text(const std::string& pattern, const std::string& name);

/// Thread-safety: const functions may run at the same time, as far as the resolver allows it.
class Filter {
  public:
    /// Adds what one --filter says. What is wrong with it, in one line; empty when all is well.
    std::string add(const std::string& pattern);

    bool empty() const { return tests_.empty(); }

    /// For those who have no report: true when all patterns but those of scopes match.
    bool takes(const std::string& kind, const std::vector<StackFrame>& frames) const;

    /// For each site of the report, whether it matches. Every stack is resolved, unless there is no
    /// pattern: then all match.
    std::vector<bool> sites(const Report& report, Resolver& resolver) const;

    /// The patterns as they were given, for a heading: "func=step, kind=managed"; not printable
    /// yet.
    std::string text() const;

  private:
    enum class Key { any, function, file, module, scope, kind };
    struct Test {
        Key key;
        std::string pattern;
        std::string given;
    };
    static bool frame_matches(const Test& test, const StackFrame& frame);
    static std::vector<bool> outlived(const Test& test, const Report& report);
    std::vector<Test> tests_;
};

}  // namespace memlab::report
