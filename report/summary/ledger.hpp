// The ledger of a GPU at one sample of its used memory: all of it in groups of rows that add up,
// from what was measured. What nothing explains is the rest, with its size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/report.hpp"
#include "report/symbols/resolver.hpp"

namespace memlab::report {

/// A row: what one place in the code, or one file of code, took.
struct LedgerLine {
    std::string what;  ///< "libcublas.so.13", "memlab's pool"; empty: the place says it
    Place place;       ///< not recorded: there is none; of code that which loaded most of it
    std::string api;
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;    ///< calls; of allocations 0
    bool uncertain = false;     ///< other memory changed while it was measured
    bool with_earlier = false;  ///< includes what was in use before the process could ask
    bool estimated = false;     ///< of calls that were not measured
    std::string note = {};
    std::uint64_t largest = 0;  ///< of the rows that it is made of, bytes
    bool other_places = false;  ///< the rows are of several places
};

struct LedgerGroup {
    std::string kind;   ///< "allocations", "context", ...: the name in JSON
    std::string title;  ///< "memory allocated"
    std::uint64_t bytes = 0;
    std::vector<LedgerLine> lines = {};  ///< largest first
};

struct LedgerPage {
    std::uint64_t time_ns = 0;  ///< of the sample
    /// By the driver, but no less than what is known: the sample may be older than an allocation.
    std::uint64_t used = 0;
    std::uint64_t rest = 0;
    std::vector<LedgerGroup> groups = {};  ///< largest first, without the rest
    /// At least so much of the groups that are this process's is others' that grew meanwhile: they
    /// are more than NVML has for this process.
    std::uint64_t others_in_rows = 0;
    std::uint64_t managed = 0;  ///< beside all this: may be resident, or not
    std::uint64_t imports = 0;  ///< beside all this: others hold it

    std::uint64_t bytes_of(std::string_view kind) const;
};

/// The moment that a page is of.
enum class LedgerAt : std::uint8_t {
    peak,  ///< the sample with most memory in use
    end,   ///< the last sample
};

/// None for a device without a ledger.
std::optional<LedgerPage> ledger_page(const model::Device& device, Resolver& resolver, LedgerAt at);

/// What could be done about it, in whole sentences; only where the figures bear it out.
std::vector<std::string> ledger_advice(const model::Report& report, const model::Device& device,
                                       const LedgerPage& page);

}  // namespace memlab::report
