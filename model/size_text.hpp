// Human-readable sizes, by integer arithmetic: the preload library uses it too, where neither
// floating-point formatting nor a locale should be needed.
#pragma once

#include <cstdint>
#include <string>

namespace memlab::model {

/// "512 B", "20.00 MiB": in the largest unit up to TiB that gives at least 1, with two decimals.
std::string size_text(std::uint64_t bytes);

/// "1,234,567".
std::string grouped(std::uint64_t number);

/// "1,234 allocations", "1 allocation", "2 processes".
std::string count_text(std::uint64_t count, const char* singular);

}  // namespace memlab::model
