// memlab-ctl holders: every process that holds memory of a GPU, whether it runs under memlab or
// not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "report/text/terminal.hpp"

namespace memlab::tools {

/// Its name among the verbs; the protocol has none of that name.
inline constexpr const char* holders_verb = "holders";
inline constexpr const char* holders_meaning =
    "every process that holds memory of a GPU, also without memlab and of others, with what to do "
    "about each";

/// `device`: that GPU alone, by NVML's index. Throws ControlError: there is no such GPU.
std::string holders_text(std::optional<std::uint64_t> device, bool json,
                         const report::Style& style);

}  // namespace memlab::tools
