// The callers of a changed call site in a row of a comparison: as many as fit, and those by which
// it is told from rows that would read the same.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/views/diff.hpp"

namespace memlab::report {

/// A caller that is shown even if those before it are not.
struct TellingCall {
    std::size_t index = 0;  ///< in SiteDiff::calls
    bool exact = false;     ///< its short name does not tell it apart
};

/// Thread-safety: none. `options` must outlive this.
class CallTexts {
  public:
    explicit CallTexts(const DiffOptions& options) : options_(options) {}

    /// Of the first sites of `changes`, one for each of `rows` (their texts): the calls at which a
    /// site parts from each other one whose row is the same, innermost first. Empty where there is
    /// none.
    std::vector<std::vector<TellingCall>> telling_calls(const SiteChanges& changes,
                                                        const std::vector<std::string>& rows) const;

    /// " ← step ← … ← main" in `width` columns: the first calls, as many as fit, and the telling
    /// ones; as many of the last of these as fit, at least one. Printable.
    std::string text(const SiteDiff& site, const std::vector<TellingCall>& telling,
                     std::size_t width) const;

    /// " ← … ← main": the telling calls alone. Printable.
    std::string telling_text(const SiteDiff& site, const std::vector<TellingCall>& telling) const {
        return rest(site, telling, 0, 0);
    }

  private:
    std::string name(const SiteDiff& site, std::size_t call, bool after_previous) const;
    std::string exact_name(const Place& call) const;
    std::string rest(const SiteDiff& site, const std::vector<TellingCall>& telling,
                     std::size_t first, std::size_t next) const;
    std::string arrow() const { return options_.style.ascii ? " <- " : " ← "; }

    const DiffOptions& options_;
};

}  // namespace memlab::report
