// How much the exhaustive and the repeated tests do: a part in CI, all of it where
// MEMLAB_TEST_THOROUGH is set, as `tools/dev test --all` does.
#pragma once

#include <cstdlib>

namespace memlab::testing {

/// `all` in a thorough run, else `usual`.
template <typename T>
T thoroughly(T all, T usual) {
    return std::getenv("MEMLAB_TEST_THOROUGH") != nullptr ? all : usual;
}

}  // namespace memlab::testing
