// Examines what a machine has for memlab: libc, architecture, driver and GPUs.
#pragma once

#include <string>

#include "tools/doctor/finding.hpp"

namespace memlab::tools {

/// The driver is asked in a process of its own, which is `library` run by `loader`, the program
/// loader of glibc; so what hangs or crashes there is a finding.
Findings examine_system(const std::string& library, const std::string& loader,
                        const Variables& variables);

/// A libc's loader by its file name.
bool is_glibc_loader(const std::string& path);
bool is_musl_loader(const std::string& path);

}  // namespace memlab::tools
