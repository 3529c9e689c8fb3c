// Libraries of others that are known to be preloaded beside memlab: what they are and what that
// means.
#pragma once

#include <string_view>

namespace memlab::tools {

struct KnownPreload {
    std::string_view prefix;  ///< of the file's name
    const char* name;         ///< "HAMi-core"
    const char* meaning;      ///< sentences
};

/// By the path or name as it stands in LD_PRELOAD; null: not known.
const KnownPreload* known_preload(std::string_view path);

}  // namespace memlab::tools
