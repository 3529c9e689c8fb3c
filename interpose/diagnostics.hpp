// What memlab says on stderr: one line, "memlab: ...", when something is wrong or when asked.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "interpose/options/settings.hpp"

namespace memlab::interpose {

/// Must be called before anything is said; until then everything at warning level is said.
void set_verbosity(Verbosity verbosity);

/// Trouble that the user should know of. Thread-safe; never throws; one write(2), no stdio.
void warn(const std::string& message) noexcept;

/// The same in several lines, in one write. The first is a sentence of its own.
void warn(const std::vector<std::string>& lines) noexcept;

/// The first in pieces, without the heap: in a forked child another thread of the parent may have
/// held its lock. At most 16 pieces; async-signal-safe.
void warn_without_heap(std::initializer_list<std::string_view> pieces) noexcept;

/// What memlab does, with MEMLAB_VERBOSITY=debug.
void debug(const std::string& message) noexcept;

}  // namespace memlab::interpose
