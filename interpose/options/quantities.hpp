// Parsers for sizes and durations in options.
#pragma once

#include <cstdint>
#include <string_view>

namespace memlab::interpose {

/// Parses "1073741824", "1GiB", "512 MiB", "64k": bytes with an optional binary unit (KiB, MiB,
/// GiB, TiB; K, M, G, T mean the same; case is ignored). False on anything else or overflow.
bool parse_bytes(std::string_view text, std::uint64_t* bytes);

/// Parses "0", "500ms", "30s", "5min". False on anything else or overflow.
bool parse_duration(std::string_view text, std::uint64_t* nanoseconds);

}  // namespace memlab::interpose
