#include "tools/run/replace_caches.hpp"

#include <cstdlib>
#include <string_view>

#include "model/framework_caches.hpp"

namespace memlab::tools {

namespace {

using model::FrameworkCache;

const FrameworkCache* find(std::string_view key) {
    for (const FrameworkCache& cache : model::framework_caches()) {
        if (key == cache.key) {
            return &cache;
        }
    }
    return nullptr;
}

/// `explicitly`: named by the user, so that a contradicting variable is remarked on.
void add(const FrameworkCache& cache, bool explicitly, Replacement& out) {
    const char* present = std::getenv(cache.switch_name);
    if (present == nullptr) {
        out.variables.emplace_back(cache.switch_name, cache.switch_value);
        if (cache.also_name != nullptr && std::getenv(cache.also_name) == nullptr) {
            out.variables.emplace_back(cache.also_name, cache.also_value);
        }
    } else if (explicitly && !switches_off(cache, cache.switch_name, present)) {
        out.remarks.push_back(std::string(cache.switch_name) + "=" + present +
                              " is set and stays: " + cache.name +
                              " keeps its own cache; unset it, or set it to " + cache.switch_value);
    }
}

}  // namespace

Replacement choose_replacements(const std::string& names) {
    Replacement out;
    if (names.empty()) {
        for (const FrameworkCache& cache : model::framework_caches()) {
            if (cache.switch_name != nullptr) {
                add(cache, false, out);
            }
        }
        return out;
    }
    std::string_view rest = names;
    while (true) {
        const std::size_t comma = rest.find(',');
        const std::string_view key = rest.substr(0, comma);
        const FrameworkCache* cache = find(key);
        if (cache == nullptr) {
            out.problem = "--replace knows " + replaceable() + ", not \"" + std::string(key) + "\"";
            return out;
        }
        if (cache->switch_name == nullptr) {
            out.problem = std::string(cache->name) +
                          "'s cache has no switch outside the program: put " + cache->line +
                          " at its start; --replace knows " + replaceable();
            return out;
        }
        add(*cache, true, out);
        if (comma == std::string_view::npos) {
            return out;
        }
        rest.remove_prefix(comma + 1);
    }
}

std::string replaceable() {
    std::string keys;
    for (const FrameworkCache& cache : model::framework_caches()) {
        if (cache.switch_name != nullptr) {
            keys += (keys.empty() ? "" : ", ") + std::string(cache.key);
        }
    }
    return keys;
}

}  // namespace memlab::tools
