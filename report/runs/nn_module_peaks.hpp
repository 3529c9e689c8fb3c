// What PyTorch's nn.Modules of a process held at its allocated peaks, by name: kept of each process
// of a run, and compared between ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/levels.hpp"

namespace memlab::report {

/// Of a device, what the nn.Modules of one name held, without those within.
struct NnModulePeak {
    std::uint64_t device = 0;  ///< Device::index
    std::string name;          ///< as of nn_module_of(): in brackets what none holds
    std::uint64_t bytes = 0;
};

/// Of all devices at their allocated peaks; empty where no nn.Module was recorded.
std::vector<NnModulePeak> nn_module_peaks(const model::Report& report);

/// A name in all ranks. Sums over the GPUs of each.
struct NnModuleSpread {
    std::string name;
    std::vector<std::uint64_t> bytes;  ///< by rank
    std::size_t max_rank = 0;          ///< index into RankComparison::ranks, of the most bytes
    std::size_t min_rank = 0;

    std::uint64_t difference() const { return bytes[max_rank] - bytes[min_rank]; }

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"difference_bytes", "between the largest and the smallest of `bytes`"},
                     self.bytes.empty() ? 0 : self.difference());
        visit.text({"name",
                    "its qualified name, as in `sites --by nn-module`; in brackets: nn.Modules "
                    "without a name, and memory of no nn.Module"},
                   self.name);
        visit.numbers({"bytes",
                       "by rank, in the order of `ranks`: what it held at the rank's peak, without "
                       "nn.Modules inside"},
                      self.bytes);
    }
};

/// What one rank has: its report, for the devices, and its peaks.
struct NnModulesOfRank {
    const model::Report* report = nullptr;
    std::vector<NnModulePeak> peaks;
};

/// Those that differ most first, then by bytes; at most `most` of them.
std::vector<NnModuleSpread> spread_nn_modules(const std::vector<NnModulesOfRank>& ranks,
                                              Level level, std::size_t most);

}  // namespace memlab::report
