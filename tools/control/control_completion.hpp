// Shell completion and the man page of memlab-ctl, made of its options and of the table of verbs
// (interpose/control/verbs.inc).
#pragma once

#include <string>
#include <vector>

#include "tools/completion.hpp"

namespace memlab::tools {

/// What memlab-ctl can be asked: a verb of the protocol, or one of its own.
struct ControlVerb {
    std::string name;
    std::string arguments;
    std::string meaning;
};

const std::vector<ControlVerb>& control_verbs();

/// The verbs as lines of --help, behind `indent` blanks; at most 80 columns.
std::string verbs_help();

/// `kind`: bash, zsh, fish or man; empty: it is another.
std::string control_completion(const std::string& kind, const CommandShape& shape);

}  // namespace memlab::tools
