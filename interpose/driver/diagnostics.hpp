// What memlab says on stderr: one line, "memlab: ...", when something is wrong or when asked.
//
// The descriptor is the program's. memlab writes to what the process had as its stderr when it
// began, and is silent once that is another file; it raises no signal there (SIGPIPE) and waits for
// nobody who does not read.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "interpose/options/settings.hpp"

namespace memlab::interpose {

/// Must be called before anything is said; until then everything at warning level is said.
void set_verbosity(Verbosity verbosity);

/// Trouble that the user should know of. Thread-safe; never throws; no stdio.
void warn(const std::string& message) noexcept;

/// The same in several lines. The first is a sentence of its own.
void warn(const std::vector<std::string>& lines) noexcept;

/// The first in pieces, without the heap: in a forked child another thread of the parent may have
/// held its lock. At most 1000 bytes; async-signal-safe.
void warn_without_heap(std::initializer_list<std::string_view> pieces) noexcept;

/// What memlab does, with MEMLAB_VERBOSITY=debug.
void debug(const std::string& message) noexcept;

}  // namespace memlab::interpose
