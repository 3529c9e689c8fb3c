// Sizes as people read them, in whole numbers throughout: the preload library says them too, and it
// brings a program neither floating-point formatting nor a locale.
#pragma once

#include <cstdint>
#include <string>

namespace memlab::report {

/// "512 B", "20.00 MiB": the largest unit up to TiB in which it is at least 1, two decimals.
std::string size_text(std::uint64_t bytes);

/// "1,234,567".
std::string grouped(std::uint64_t number);

/// "1,234 allocations", "1 allocation".
std::string count_text(std::uint64_t count, const char* singular);

}  // namespace memlab::report
