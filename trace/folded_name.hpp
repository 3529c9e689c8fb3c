// What the names of marks and scopes tell. Names that differ only in numbers are one family: "step
// 17" and "step 18" are both "step #". Programs number their steps; a table with a row for each
// would be unbounded and useless.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace memlab::trace {

/// The name of the family: every run of ASCII digits becomes one '#'. May throw std::bad_alloc.
inline std::string folded_name(std::string_view name) {
    std::string folded;
    folded.reserve(name.size());
    bool in_digits = false;
    for (const char c : name) {
        const bool digit = c >= '0' && c <= '9';
        if (!digit) {
            folded += c;
        } else if (!in_digits) {
            folded += '#';
        }
        in_digits = digit;
    }
    return folded;
}

/// Whether a library named it, for each of its calls: a loop of these is no loop of the program's,
/// which has many in a step. By the library's NVTX domain: NCCL, XLA
/// (tsl/profiler/lib/nvtx_utils.cc), CUB and Thrust, RMM, cuDF, KvikIO.
inline bool is_name_of_library(std::string_view name) {
    constexpr std::array domains = {"NCCL:", "TSL:", "CCCL:", "librmm:", "libcudf:", "libkvikio:"};
    return std::any_of(domains.begin(), domains.end(),
                       [name](const char* domain) { return name.starts_with(domain); });
}

}  // namespace memlab::trace
