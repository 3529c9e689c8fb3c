#include "interpose/process/function_purpose.hpp"

#include <cstddef>

namespace memlab::interpose {
namespace {

/// Lists of words, each followed by a space.
constexpr std::string_view memory_words =
    "Mem Array Array3 Pool Heap Host Mipmapped Multicast Endpoint Buffer Ipc Address ";
constexpr std::string_view asking_words = "Get Query Is Can ";

struct PurposeRule {
    std::string_view one_of;   ///< one word must be of this list; empty: any
    std::string_view and_of;   ///< and one of this
    std::string_view none_of;  ///< and none of this
    Purpose purpose;
};

/// The first that holds decides.
constexpr PurposeRule purpose_rules[] = {
    {"Capture Recapture ", "", asking_words, Purpose::captures},
    {"Ipc Handle ", "Get ", "Pool Graphics ", Purpose::maps},  // cuMemGetHandleForAddressRange
    {asking_words, "", "", Purpose::other},
    {"Graph ", "Add Instantiate Clone Update Launch Set Destroy Upload Create ", "",
     Purpose::captures},
    {"Mem Array Array3 Pool Heap Host Mipmapped Multicast Endpoint Buffer Ipc Address Ctx Stream "
     "Graph ",
     "Free Destroy Release Unmap Unbind Unregister Close Trim Detach Discard Evict Reset Reclaim ",
     "", Purpose::frees},
    {memory_words, "Map Bind Import Export Share Open Alias Remap Move Migrate Swap Attach Access ",
     "", Purpose::maps},
    {"Peer ", "", "", Purpose::maps},
    {"Alloc Malloc ", "", "", Purpose::allocates},
    {memory_words, "Create Reserve Register ", "", Purpose::allocates},
    {"Memcpy Memcpy2 Memcpy3 Memset Launch Async Batch Enqueue Submit Signal Wait Write Prefetch "
     "Copy Fill Execute Run Decompress Compress ",
     "", "", Purpose::submits},
};

bool list_has(std::string_view list, std::string_view word) {
    for (std::size_t at = list.find(word); at != std::string_view::npos;
         at = list.find(word, at + 1)) {
        if ((at == 0 || list[at - 1] == ' ') && list[at + word.size()] == ' ') {
            return true;
        }
    }
    return false;
}

/// Whether a word of the name is of the list. "cuMemcpy3DPeerAsync_v2" has the words cu, Memcpy3,
/// D, Peer and Async.
bool has_word_of(std::string_view name, std::string_view list) {
    std::size_t begin = 0;
    for (std::size_t i = 1; i <= name.size(); ++i) {
        if (i == name.size() || (name[i] >= 'A' && name[i] <= 'Z')) {
            if (list_has(list, name.substr(begin, i - begin))) {
                return true;
            }
            begin = i;
        }
    }
    return false;
}

}  // namespace

Purpose purpose_of(std::string_view name) {
    name = name.substr(0, name.find('_'));
    for (const PurposeRule& rule : purpose_rules) {
        if ((rule.one_of.empty() || has_word_of(name, rule.one_of)) &&
            (rule.and_of.empty() || has_word_of(name, rule.and_of)) &&
            !has_word_of(name, rule.none_of)) {
            return rule.purpose;
        }
    }
    return Purpose::other;
}

}  // namespace memlab::interpose
