// Call sites and nn.Modules of a running process, as it answers with them, with names: native
// frames by the binaries here, chosen and shown as memlab-report does it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/interval_document.hpp"
#include "report/symbols/category.hpp"
#include "report/symbols/resolver.hpp"
#include "report/symbols/symbolizer.hpp"

namespace memlab::tools {

struct LiveSite {
    report::Place place;
    std::string kind;
    std::string api;
    std::uint64_t gpu = 0;
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;
    std::optional<report::Category> category;  ///< of PyTorch's memory alone
    /// "train.py:42  train" of each frame, the outermost first, without startup code and CUDA.
    std::vector<std::string> path;
};

struct LiveSites {
    std::vector<LiveSite> sites;  ///< largest first
    std::uint64_t other_sites = 0;
    std::uint64_t other_bytes = 0;
    std::vector<model::IntervalDocument::NnModule> nn_modules;  ///< largest first
    bool at_least = false;
};

/// Thread-safety: none. Keeps the binaries' names that it has read.
class SiteNames {
  public:
    LiveSites name(const model::IntervalDocument& document, pid_t process);

  private:
    report::Symbolizer symbolizer_;
};

/// Those whose lines of a list would read alike, as one; largest first.
std::vector<LiveSite> one_per_place(const std::vector<LiveSite>& sites);

/// "train.py:42  train" in `width` columns, printable.
std::string site_text(const LiveSite& site, std::size_t width, bool ascii,
                      const std::string& directory);

/// "encoder.layers.3 (Linear)"; not passed through printable().
std::string nn_module_text(const model::IntervalDocument::NnModule& nn_module);

}  // namespace memlab::tools
