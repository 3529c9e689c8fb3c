// What memlab-top knows of a process beyond its figures: the call sites and nn.Modules that hold
// its memory, now and since its latest mark.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/live/live_documents.hpp"
#include "tools/live/live_sites.hpp"

namespace memlab::tools {

using NnModules = std::vector<model::IntervalDocument::NnModule>;

struct Details {
    LiveSites now;
    std::optional<LiveSites> since_mark;  ///< none: not asked, or there is no mark
    NnModules nn_modules;                 ///< now
    std::optional<NnModules> nn_modules_since_mark;
    std::optional<model::PoolDocument> pool;  ///< none: not asked, or not known
    std::string mark;                         ///< the latest one's name; empty: none
    std::string problem;                      ///< why there is nothing; empty: there is
};

/// By process id.
using DetailsOf = std::map<pid_t, Details>;

/// By how much each grew; those that did not are left out, the largest first. The lists are of one
/// process, and complete as far as each goes.
NnModules grown_since(const NnModules& before, const NnModules& now);

}  // namespace memlab::tools
