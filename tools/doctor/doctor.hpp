// memlab-run --doctor: one page on what memlab will and will not do on this machine and, with a
// command, for it. The command is not run.
#pragma once

#include <string>
#include <vector>

#include "tools/doctor/finding.hpp"

namespace memlab::tools {

struct DoctorRequest {
    std::string library;               ///< the libmemlab.so that a run would preload
    Variables variables;               ///< what a run would set
    std::vector<std::string> command;  ///< may be empty
};

struct Diagnosis {
    Findings system;
    Findings environment;
    Findings pythons;
    Findings command;
    bool has_command = false;
    Variables variables;
    /// The heaviest of all findings.
    Weight verdict() const;
    /// 0: memlab records here, perhaps not everything; 1: it does not.
    int exit_code() const;
};

Diagnosis diagnose(const DoctorRequest& request);

/// The page, for standard output.
std::string render_page(const Diagnosis& diagnosis);

/// The same as JSON: `format` "memlab-doctor", `version` 1.
std::string render_json(const Diagnosis& diagnosis);

}  // namespace memlab::tools
