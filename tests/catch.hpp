// Catch2 2.13 (Debian 12) and 3 (Ubuntu 24.04) under one include.
#pragma once

#ifdef MEMLAB_CATCH2_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;  // which 2.13 puts there itself
#else
#include <catch2/catch.hpp>
namespace Catch::Matchers {
/// Version 3's name; its Contains is for ranges.
inline auto ContainsSubstring(const std::string& text) {
    return Contains(text);
}
}  // namespace Catch::Matchers
#endif
