// Messages on stderr: one line, "memlab: ...", on trouble or with MEMLAB_VERBOSITY=debug.
//
// The file descriptor belongs to the program. memlab writes only to the file that was stderr when
// the process started and is silent once descriptor 2 is another file. A write raises no signal
// (SIGPIPE, SIGXFSZ) and never blocks on a reader.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "interpose/options/settings.hpp"

namespace memlab::interpose {

/// Sets the level; before the first call everything at warning level is written.
void set_verbosity(Verbosity verbosity);

/// Writes a warning. Thread-safe; never throws; no stdio.
void warn(const std::string& message) noexcept;

/// The same in several lines. The first must be a complete sentence.
void warn(const std::vector<std::string>& lines) noexcept;

/// warn() in pieces, without the heap: in a forked child another thread of the parent may have held
/// the heap's lock. At most 1000 bytes; async-signal-safe.
void warn_without_heap(std::initializer_list<std::string_view> pieces) noexcept;

/// Writes only with MEMLAB_VERBOSITY=debug. As warn().
void debug(const std::string& message) noexcept;

}  // namespace memlab::interpose
