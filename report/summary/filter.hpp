// Patterns of --filter, which select sites; the same for every command.
//
//   TEXT         the function, the file or the module of a frame
//   func=TEXT    the function of a frame, with or without its parameters
//   file=TEXT    the source file of a frame
//   module=TEXT  the program or library of a frame
//   scope=TEXT   memory that outlived a scope of this path (reports hold no more about scopes)
//   kind=TEXT    the kind of memory: device, managed, pinned, ...
//   nn_module=TEXT  what that nn.Module of PyTorch's, or one in it, held
//
// TEXT matches anywhere in the name. If it contains *, ? or [, it is a glob pattern for the whole
// name or its base name. A site matches a pattern if any frame of its stack does, including inlined
// ones; several patterns must all match. Of an nn.Module TEXT is the whole name, or a glob pattern
// for it, with or without the model's (report/nn_module_parts.hpp).
#pragma once

#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/symbols/resolver.hpp"

namespace memlab::report {

/// A conjunction of patterns. Thread-safety: const functions may run concurrently if the resolver
/// allows it.
class Filter {
  public:
    /// Adds the pattern of one --filter. Returns an error message of one line; empty on success.
    std::string add(const std::string& given);

    /// For figures that are not known by nn.Module: add() refuses their patterns.
    void without_nn_modules() { nn_modules_ = false; }

    bool empty() const { return patterns_.empty(); }

    /// Whether it chooses among nn.Modules: sites() then needs a report with separate_nn_modules().
    bool by_nn_module() const;

    /// By index into Report::nn_modules, whether all patterns of nn.Modules match.
    std::vector<bool> nn_modules(const model::Report& report) const;

    /// True if all patterns match, those of scopes and nn.Modules excepted. Needs no report.
    bool matches(const std::string& kind, const std::vector<StackFrame>& frames) const;

    /// For each site of the report, whether it matches. Resolves every stack, unless there are no
    /// patterns: then all sites match.
    std::vector<bool> sites(const model::Report& report, Resolver& resolver) const;
    /// The same by the patterns that are not of nn.Modules.
    std::vector<bool> sites_of_any_nn_module(const model::Report& report, Resolver& resolver) const;

    /// The patterns as given, for a heading: "func=step, kind=managed"; not passed through
    /// printable().
    std::string text() const;

  private:
    enum class Key { any, function, file, module, scope, kind, nn_module };
    struct Pattern {
        Key key;
        std::string text;
        std::string given;  ///< including "key="
    };
    static bool frame_matches(const Pattern& pattern, const StackFrame& frame);
    static std::vector<bool> escaped_sites(const Pattern& pattern, const model::Report& report);
    std::vector<Pattern> patterns_;
    bool nn_modules_ = true;
};

}  // namespace memlab::report
