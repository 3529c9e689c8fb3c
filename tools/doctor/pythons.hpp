// Which Python interpreters there are, and whether memlab reads their frames. None is run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/finding.hpp"

namespace memlab::tools {

/// What an interpreter is, by its file and the library that it is in.
struct PythonBuild {
    int minor = 0;        ///< of 3.minor; 0: not known
    std::string version;  ///< "3.12.3", or as much as is known
    bool free_threaded = false;
    bool debug = false;
    std::string difference;  ///< what of its structures is not as memlab knows it; empty: nothing
    bool other = false;      ///< PyPy and others: not CPython
};

/// The interpreter at a path; nothing if it is none (a script that chooses one, too).
std::optional<PythonBuild> read_python(const std::string& path);

/// What memlab reads of it, as a finding on `subject`.
Finding python_finding(const std::string& subject, const std::string& path,
                       const PythonBuild& build);

/// Whether memlab's Python package comes into a program that this command starts, an interpreter's:
/// nothing if it does, or is not wanted.
std::optional<Finding> names_finding(const std::vector<std::string>& command,
                                     const Variables& variables);

/// The interpreters that PATH has, each once, at most eight, and the PyTorch that each would
/// import.
Findings examine_pythons(const Variables& variables);

}  // namespace memlab::tools
