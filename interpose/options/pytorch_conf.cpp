#include "interpose/options/pytorch_conf.hpp"

#include <algorithm>
#include <cstddef>

namespace memlab::interpose {
namespace {

struct Key {
    const char* pytorch;
    const char* ours;
};

constexpr Key keys[] = {
    {"max_split_size_mb", "MEMLAB_MAX_SPLIT_SIZE_MB"},
    {"max_non_split_rounding_mb", "MEMLAB_MAX_NON_SPLIT_ROUNDING_MB"},
    {"garbage_collection_threshold", "MEMLAB_GC_THRESHOLD"},
    {"roundup_power2_divisions", "MEMLAB_ROUNDUP_POWER2_DIVISIONS"},
    {"large_segment_size_mb", "MEMLAB_LARGE_SEGMENT_SIZE_MB"},
};

/// PyTorch ignores blanks anywhere.
std::string remove_blanks(std::string_view text) {
    std::string kept;
    std::copy_if(text.begin(), text.end(), std::back_inserter(kept),
                 [](char c) { return c != ' ' && c != '\t'; });
    return kept;
}

/// The end of "key:value" in `text`: the first comma that is not inside brackets.
std::size_t find_pair_end(std::string_view text) {
    int depth = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '[') {
            ++depth;
        } else if (text[i] == ']') {
            --depth;
        } else if (text[i] == ',' && depth <= 0) {
            return i;
        }
    }
    return text.size();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_pytorch_conf(std::string_view conf) {
    std::vector<std::pair<std::string, std::string>> options;
    const std::string text = remove_blanks(conf);
    std::string_view rest = text;
    while (!rest.empty()) {
        const std::size_t end = find_pair_end(rest);
        const std::string_view pair = rest.substr(0, end);
        rest = rest.substr(std::min(end + 1, rest.size()));
        const std::size_t colon = pair.find(':');
        if (colon == std::string_view::npos) {
            continue;
        }
        const std::string_view name = pair.substr(0, colon);
        const std::string_view value = pair.substr(colon + 1);
        if (name == "expandable_segments") {
            options.emplace_back("MEMLAB_BACKEND", value == "True" ? "vmm" : "classic");
        }
        for (const Key& key : keys) {
            if (name == key.pytorch) {
                options.emplace_back(key.ours, value);
            }
        }
    }
    return options;
}

}  // namespace memlab::interpose
