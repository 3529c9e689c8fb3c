#include "interpose/options/option_table.hpp"

#include <cctype>
#include <charconv>
#include <cstring>
#include <limits>

namespace memlab::interpose {
namespace {

bool parse_switch(std::string_view text, bool* value) {
    if (text == "1" || text == "on" || text == "yes" || text == "true") {
        *value = true;
        return true;
    }
    if (text == "0" || text == "off" || text == "no" || text == "false") {
        *value = false;
        return true;
    }
    return false;
}

template <bool Settings::*field>
bool switch_option(Settings& settings, std::string_view text) {
    return parse_switch(text, &(settings.*field));
}

bool free_sync_option(Settings& settings, std::string_view text) {
    using allocator::FreeSync;
    if (text == "auto") {
        settings.pool_options.free_sync = FreeSync::automatic;
    } else if (text == "always") {
        settings.pool_options.free_sync = FreeSync::always;
    } else if (text == "never") {
        settings.pool_options.free_sync = FreeSync::never;
    } else {
        return false;
    }
    return true;
}

bool verbosity_option(Settings& settings, std::string_view text) {
    if (text == "quiet") {
        settings.verbosity = Verbosity::quiet;
    } else if (text == "warnings") {
        settings.verbosity = Verbosity::warnings;
    } else if (text == "debug") {
        settings.verbosity = Verbosity::debug;
    } else {
        return false;
    }
    return true;
}

bool stack_depth_option(Settings& settings, std::string_view text) {
    std::uint32_t depth = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), depth);
    if (error != std::errc() || end != text.data() + text.size() || depth > 256) {
        return false;
    }
    settings.stack_depth = depth;
    return true;
}

bool output_option(Settings& settings, std::string_view text) {
    if (text.empty()) {
        return false;
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            continue;
        }
        ++i;
        if (i == text.size() || std::strchr("ephr%", text[i]) == nullptr) {
            return false;
        }
    }
    settings.output = text;
    return true;
}

constexpr OptionDef options[] = {
    {"MEMLAB_OUTPUT", "path pattern", "memlab.%e.%p.json",
     "Where the report goes: %e is the program's name, %p its process id, %h the host, %r the "
     "rank. "
     "Missing folders are created; a path that ends in / is a folder. The event log goes beside "
     "it, as .memlog.",
     output_option},
    {"MEMLAB_POOL", "on, off", "on",
     "Serve device allocations from memlab's pool; off only records them.",
     switch_option<&Settings::pool>},
    {"MEMLAB_FREE_SYNC", "auto, always, never", "auto",
     "When cudaFree waits for the GPU: auto when it is busy, so that the host sees finished "
     "results "
     "as with plain CUDA; always; never (reuse stays ordered behind the work on the GPU).",
     free_sync_option},
    {"MEMLAB_WORK_CLOCK", "on, off", "on",
     "Count what the program gives the GPU to do, so that memory freed while it is idle costs no "
     "call of the driver; off fences every free.",
     switch_option<&Settings::work_clock>},
    {"MEMLAB_LIMIT", "size[,device=index or GPU-UUID], more after ;", "0",
     "Let the program see a smaller GPU: total and free memory, and out of memory at the limit, "
     "for "
     "every kind of device memory. All that the driver counts as used counts: contexts, modules "
     "and "
     "other processes too. An entry without device= is for all devices not named. 0: no limit.",
     [](Settings& settings, std::string_view text) {
         return parse_limits(text, &settings.limits);
     }},
    {"MEMLAB_PASSTHROUGH", "size>BYTES, size<BYTES or site=NAME, joined by |", "",
     "Allocations that plain CUDA serves instead of the pool: by size, or made from inside a "
     "library whose file name contains NAME.",
     [](Settings& settings, std::string_view text) { return settings.passthrough.parse(text); }},
    {"MEMLAB_RECORD", "on, off", "on", "Record and report; off leaves only the pool.",
     switch_option<&Settings::record>},
    {"MEMLAB_STACK_DEPTH", "0 to 256", "64",
     "Frames of the call stack kept with each allocation; 0 records no stacks.",
     stack_depth_option},
    {"MEMLAB_KEEP_LOG", "on, off", "on",
     "Keep the event log after a clean end; off removes it once the report is written.",
     switch_option<&Settings::keep_log>},
    {"MEMLAB_LOG_LIMIT", "bytes, or 0", "1GiB",
     "Largest event log; past it the log stops, the report goes on. 0: no limit.",
     [](Settings& settings, std::string_view text) {
         return parse_bytes(text, &settings.log_limit);
     }},
    {"MEMLAB_VERBOSITY", "quiet, warnings, debug", "warnings",
     "What memlab itself says on stderr: nothing, trouble only, or what it does.",
     verbosity_option},
    {"MEMLAB_DISABLE", "on, off", "off", "Load, but touch nothing.",
     switch_option<&Settings::disabled>},
    {"MEMLAB_RUN_MANIFEST", "path", "",
     "Set by memlab-run for its children: each process appends what it writes. Not for people.",
     [](Settings& settings, std::string_view text) {
         settings.run_manifest = text;
         return true;
     }},
};

const char* find_value(const char* const* environment, const char* name) {
    const std::size_t length = std::strlen(name);
    for (const char* const* entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
        if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') {
            return *entry + length + 1;
        }
    }
    return nullptr;
}

bool is_known(std::string_view name) {
    for (const OptionDef& option : options) {
        if (name == option.name) {
            return true;
        }
    }
    return false;
}

}  // namespace

std::span<const OptionDef> option_table() {
    return options;
}

LoadedSettings load_settings(const char* const* environment) {
    LoadedSettings loaded;
    for (const OptionDef& option : options) {
        option.parse(loaded.settings, option.default_value);
        std::string text = option.default_value;
        if (const char* value = find_value(environment, option.name)) {
            if (option.parse(loaded.settings, value)) {
                text = value;
            } else {
                loaded.problems.push_back(std::string(option.name) + "=" + value + " is not " +
                                          option.values + "; using " + option.default_value);
            }
        }
        loaded.values.emplace_back(option.name, std::move(text));
    }
    for (const char* const* entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
        const char* equals = std::strchr(*entry, '=');
        if (equals == nullptr || std::strncmp(*entry, "MEMLAB_", 7) != 0) {
            continue;
        }
        const std::string_view name(*entry, static_cast<std::size_t>(equals - *entry));
        if (!is_known(name)) {
            loaded.problems.push_back(std::string(name) +
                                      " is not an option; memlab-run --help-options lists them");
        }
    }
    return loaded;
}

bool parse_bytes(std::string_view text, std::uint64_t* bytes) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) {
        return false;
    }
    std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
    while (!unit.empty() && unit.front() == ' ') {
        unit.remove_prefix(1);
    }
    unsigned shift = 0;
    if (!unit.empty() && !(unit.size() == 1 && (unit[0] == 'B' || unit[0] == 'b'))) {
        switch (std::tolower(static_cast<unsigned char>(unit[0]))) {
            case 'k':
                shift = 10;
                break;
            case 'm':
                shift = 20;
                break;
            case 'g':
                shift = 30;
                break;
            case 't':
                shift = 40;
                break;
            default:
                return false;
        }
        unit.remove_prefix(1);
        if (!unit.empty()) {
            const bool binary = (unit.size() == 2 && (unit[0] == 'i' || unit[0] == 'I') &&
                                 (unit[1] == 'B' || unit[1] == 'b'));
            if (!binary) {
                return false;
            }
        }
    }
    if (number > (std::numeric_limits<std::uint64_t>::max() >> shift)) {
        return false;
    }
    *bytes = number << shift;
    return true;
}

}  // namespace memlab::interpose
