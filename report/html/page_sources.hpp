// The source lines that the page shows beside frames.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model/report.hpp"

namespace memlab::report {

/// Source lines of a file, from `first_line` on. A file may have several, in order and apart.
struct PageSource {
    std::string path;  ///< as recorded
    int first_line = 1;
    std::vector<std::string> lines;
};

/// The lines that frames name, by file.
using WantedLines = std::map<std::string, std::set<int>>;

/// Reads them with some lines around each, at most so many in all. A recording may come from
/// anybody and a page goes to anybody, so nothing but files with the name of a source is read.
/// `newer`: files that were changed after `recorded_wall_ns`, whose lines may be others now.
std::vector<PageSource> read_page_sources(const WantedLines& wanted,
                                          const std::vector<std::string>& folders,
                                          std::uint64_t recorded_wall_ns,
                                          std::vector<std::string>& newer);

}  // namespace memlab::report
