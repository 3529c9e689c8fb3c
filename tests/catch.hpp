// Catch2 2.13 (Debian 12) and 3 (Ubuntu 24.04) under one include.
#pragma once

#ifdef MEMLAB_CATCH2_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;  // which 2.13 puts there itself
#else
#include <catch2/catch.hpp>
#endif
