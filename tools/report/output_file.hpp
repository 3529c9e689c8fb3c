// Writing of output files.
#pragma once

#include <string>
#include <string_view>

namespace memlab::tools {

/// What to do with an existing file.
enum class IfExists { refuse, replace };

/// Writes `text` to `path` atomically: on errors, as a full disk, an existing file is unchanged. Of
/// a symbolic link the target is replaced; a device or pipe (/dev/stdout) is written to directly.
/// Returns an empty text, or the error in one line with what to do.
std::string write_output(const std::string& path, std::string_view text, IfExists if_exists);

/// Appends `text` to `path` (a CI job summary, to which several steps contribute).
std::string append_output(const std::string& path, std::string_view text);

}  // namespace memlab::tools
