// The table of memlab's environment options. Help text, docs/options.md, the JSON `options` and the
// parser are all derived from it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interpose/options/settings.hpp"

namespace memlab::interpose {

struct OptionDef {
    const char* name;           ///< the environment variable
    const char* values;         ///< accepted values, for the help text
    const char* default_value;  ///< as text, as accepted by `parse`
    const char* meaning;        ///< one or two sentences
    /// Sets the field from text; false when the text is not one of `values`.
    bool (*parse)(Settings& settings, std::string_view text);
};

/// In display order. Static storage.
std::span<const OptionDef> option_table();

struct LoadedSettings {
    Settings settings;
    /// Every option with its effective value as text (the default's text if it was not set).
    std::vector<std::pair<std::string, std::string>> values;
    /// One sentence for each variable with an invalid value, whose default is used instead, and for
    /// each MEMLAB_ variable that does not exist.
    std::vector<std::string> problems;
    /// Of these, the variables with an invalid value, without what is used instead.
    std::vector<std::string> invalid;
};

/// Reads the environment (environ, not secure_getenv: set-user-id programs never load memlab).
/// Thread-safety: as getenv, must not race with setenv.
LoadedSettings load_settings(const char* const* environment);

}  // namespace memlab::interpose
