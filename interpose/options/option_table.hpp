// The one table of memlab's environment options: help text, README section, JSON `options` and the
// parsing all come from it, so none of them can drift from the others.
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
    const char* values;         ///< what it takes, for people
    const char* default_value;  ///< as text, in the form the parser takes
    const char* meaning;        ///< one or two sentences
    /// Sets the field from text; false when the text is not one of `values`.
    bool (*parse)(Settings& settings, std::string_view text);
};

/// In the order in which they are shown. Static storage.
std::span<const OptionDef> option_table();

struct LoadedSettings {
    Settings settings;
    /// Every option in force with its value as text (the default's text where it was not set).
    std::vector<std::pair<std::string, std::string>> values;
    /// One sentence for each variable that was set to something it does not take; its default is in
    /// force instead. Also names MEMLAB_ variables that do not exist.
    std::vector<std::string> problems;
};

/// Reads the environment (environ, not secure_getenv: a set-user-id program never loads us).
/// Thread-safety: as getenv, must not race with setenv.
LoadedSettings load_settings(const char* const* environment);

}  // namespace memlab::interpose
