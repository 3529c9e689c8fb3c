// Judges what a recording shows: who holds more than is needed, and what to do about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/inefficiencies/finding.hpp"
#include "report/views/suppressions.hpp"

namespace memlab::report {

struct InefficiencyQuery {
    std::optional<std::uint64_t> device;  ///< only this one
    std::vector<Pattern> patterns;        ///< only these; empty: all
    std::string step;                     ///< name of what ends a step; empty: what ends most
    std::vector<bool> taken;              ///< by site: whether it is looked at
    const std::vector<Suppression>* suppressions = nullptr;  ///< of leaks; null: none
};

struct Inefficiencies {
    std::vector<DeviceFindings> devices;
    std::string steps;               ///< what ended a step: "scope "step""; empty: nothing did
    std::vector<std::string> notes;  ///< whole sentences: what could not be looked at
};

/// `log` is the event log that `report` was made of; it is read once or twice. `problem`: what is
/// missing ("what; what to do"); then there are no findings. Points into `report`.
///
/// What is small is left out: findings that save less than a hundredth of the device's peak, or
/// less than a hundredth of its allocations and less than a hundred of them.
Inefficiencies find_inefficiencies(const Report& report, Resolver& resolver, const std::string& log,
                                   const InefficiencyQuery& query, std::string* problem);

}  // namespace memlab::report
