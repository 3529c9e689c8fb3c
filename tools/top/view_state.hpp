// What of memlab-top's view a key changes: which process is chosen, sorting, filter, the page that
// is shown. Pure: the terminal gives keys, the tests do.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace memlab::tools {

/// What the rows are sorted by, the largest first; names and ids the smallest.
enum class SortKey : std::uint8_t {
    used,
    allocated,
    reserved,
    tensors,
    per_minute,
    per_step,
    pid,
    command
};
inline constexpr std::size_t sort_keys = 8;
const char* name_of(SortKey key);

/// Of the process that is looked into.
enum class ProcessPage : std::uint8_t { timeline, sites, tree, nn_modules, map };
inline constexpr std::size_t process_pages = 5;
const char* name_of(ProcessPage page);

struct KeyPress {
    enum class Kind : std::uint8_t {
        character,
        up,
        down,
        page_up,
        page_down,
        home,
        end,
        left,
        right,
        enter,
        escape,
        backspace
    };
    Kind kind = Kind::character;
    std::string text = {};  ///< of a character, UTF-8
};

/// What a key asks for beyond the view.
struct KeyCommand {
    enum class What : std::uint8_t { none, quit, mark, snapshot, empty_cache, yield, restore };
    What what = What::none;
    pid_t pid = 0;
    std::string name = {};  ///< of the mark

    bool operator==(const KeyCommand&) const = default;
};

struct ViewState {
    enum class Prompt : std::uint8_t { none, filter, mark };

    SortKey sort = SortKey::used;
    bool reversed = false;
    std::string filter = {};
    bool paused = false;
    bool help = false;
    pid_t chosen = 0;
    bool looks_into = false;  ///< the chosen process fills the screen
    ProcessPage page = ProcessPage::timeline;
    std::size_t scroll = 0;   ///< lines of the page that are above the screen
    bool since_mark = false;  ///< sites and nn.Modules: what was allocated since the latest mark
    Prompt prompt = Prompt::none;
    std::string typed = {};
    std::string message = {};  ///< what the last command did
};

/// `shown`: the processes in the order in which they are shown; `can_ask`: the chosen one has a
/// control channel; `rows`: of the screen, for a page of keys.
KeyCommand press(ViewState& state, const KeyPress& key, const std::vector<pid_t>& shown,
                 bool can_ask, std::size_t rows);

}  // namespace memlab::tools
