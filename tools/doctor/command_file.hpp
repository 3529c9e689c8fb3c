// Examines the program that a command would start, from its files: it is not run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tools/doctor/finding.hpp"

namespace memlab::tools {

struct CommandFile {
    std::string program;  ///< the binary that would run: of a script, its interpreter; may be empty
    std::string loader;   ///< the program's loader; empty: none, or the program was not found
    Findings findings;
};

/// `name` is looked up as by execvp. `loads` of the program are asked of glibc's own loader, with
/// `variables` in its environment.
CommandFile examine_command(const std::string& name, const std::string& library,
                            const Variables& variables);

/// The shared AddressSanitizer runtime that the command's program is linked with, or that is
/// preloaded into it, as it is named there; empty: none. The runtime ends a program in whose list
/// of libraries another one stands before it.
std::string asan_runtime(const std::string& name, const Variables& variables);

/// The variable ASAN_OPTIONS by which it takes another library before it, unless the user's value
/// says something about that.
std::pair<std::string, std::string> asan_options(const Variables& variables);

}  // namespace memlab::tools
