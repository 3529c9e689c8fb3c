// Parsers for sizes and durations in options.
#pragma once

#include <cstdint>
#include <string_view>

namespace memlab::interpose {

/// model::parse_size(): "1073741824", "1GiB", "512 MB", "64k". False on anything else or overflow.
bool parse_bytes(std::string_view text, std::uint64_t* bytes);

/// Parses "0", "500ms", "30s", "5min". False on anything else or overflow.
bool parse_duration(std::string_view text, std::uint64_t* nanoseconds);

/// Parses a number from 0 to 1 with at most six digits after the point: "0", "0.8", "1". False on
/// anything else.
bool parse_share(std::string_view text, double* share);

/// Parses "SIGUSR1,SIGTERM" into bits 1 << number. Empty: none. Only signals that ask a program to
/// end or are its own to use: SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGXCPU. False on
/// anything else.
bool parse_signals(std::string_view text, std::uint64_t* signals);

}  // namespace memlab::interpose
