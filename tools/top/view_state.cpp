#include "tools/top/view_state.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace memlab::tools {
namespace {

using Kind = KeyPress::Kind;

constexpr std::array<const char*, sort_keys> sort_names = {
    "used", "allocated", "reserved", "tensors", "per minute", "per step", "process id", "command"};
constexpr std::array<const char*, process_pages> page_names = {"timeline", "sites", "tree",
                                                               "nn-modules", "map"};

/// Without its last character of UTF-8.
void erase_last(std::string& text) {
    while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) {
        text.pop_back();
    }
    if (!text.empty()) {
        text.pop_back();
    }
}

KeyCommand press_in_prompt(ViewState& state, const KeyPress& key) {
    KeyCommand command;
    switch (key.kind) {
        case Kind::character:
            if (state.typed.size() < 200) {
                state.typed += key.text;
            }
            break;
        case Kind::backspace:
            erase_last(state.typed);
            break;
        case Kind::enter:
            if (state.prompt == ViewState::Prompt::mark && !state.typed.empty()) {
                command = {KeyCommand::What::mark, state.chosen, state.typed};
            }
            state.prompt = ViewState::Prompt::none;
            break;
        case Kind::escape:
            if (state.prompt == ViewState::Prompt::filter) {
                state.filter.clear();
            }
            state.prompt = ViewState::Prompt::none;
            return command;
        default:
            break;
    }
    // A filter is seen to work while it is typed.
    if (state.prompt == ViewState::Prompt::filter) {
        state.filter = state.typed;
    }
    return command;
}

void move_choice(ViewState& state, const std::vector<pid_t>& shown, std::ptrdiff_t by) {
    if (shown.empty()) {
        state.chosen = 0;
        return;
    }
    const auto at = std::find(shown.begin(), shown.end(), state.chosen);
    const auto last = static_cast<std::ptrdiff_t>(shown.size()) - 1;
    const std::ptrdiff_t index = at == shown.end() ? 0 : at - shown.begin() + by;
    state.chosen = shown[static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(index, 0, last))];
    state.scroll = 0;
}

void move_page(ViewState& state, std::ptrdiff_t by) {
    const auto count = static_cast<std::ptrdiff_t>(process_pages);
    const auto index = (static_cast<std::ptrdiff_t>(state.page) + by + count) % count;
    state.page = static_cast<ProcessPage>(index);
    state.scroll = 0;
}

void move(ViewState& state, const std::vector<pid_t>& shown, std::ptrdiff_t by) {
    if (!state.looks_into) {
        move_choice(state, shown, by);
    } else if (by < 0) {
        state.scroll -= std::min(state.scroll, static_cast<std::size_t>(-by));
    } else {
        state.scroll += static_cast<std::size_t>(by);  // the page bounds it
    }
}

KeyCommand press_letter(ViewState& state, const KeyPress& key, bool can_ask) {
    const char letter = key.text.size() == 1 ? key.text[0] : '\0';
    const bool asks = std::string_view("mneyb").find(letter) != std::string_view::npos;
    if (asks && !can_ask) {
        state.message = state.chosen == 0 ? "choose a process first"
                                          : "process " + std::to_string(state.chosen) +
                                                " is not under memlab, or does not answer";
        return {};
    }
    switch (letter) {
        case 'q':
            return {KeyCommand::What::quit, 0, {}};
        case 's':
            state.sort =
                static_cast<SortKey>((static_cast<std::size_t>(state.sort) + 1) % sort_keys);
            break;
        case 'r':
            state.reversed = !state.reversed;
            break;
        case 'p':
        case ' ':
            state.paused = !state.paused;
            break;
        case 'd':
            state.since_mark = !state.since_mark;
            break;
        case '/':
            state.prompt = ViewState::Prompt::filter;
            state.typed = state.filter;
            break;
        case 'm':
            state.prompt = ViewState::Prompt::mark;
            state.typed.clear();
            break;
        case 'n':
            return {KeyCommand::What::snapshot, state.chosen, {}};
        case 'e':
            return {KeyCommand::What::empty_cache, state.chosen, {}};
        case 'y':
            return {KeyCommand::What::yield, state.chosen, {}};
        case 'b':
            return {KeyCommand::What::restore, state.chosen, {}};
        case '?':
        case 'h':
            state.help = true;
            break;
        case '\t':
            move_page(state, state.looks_into ? 1 : 0);
            break;
        default:
            if (letter >= '1' && letter < '1' + static_cast<int>(process_pages)) {
                state.page = static_cast<ProcessPage>(letter - '1');
                state.looks_into = state.chosen != 0;
                state.scroll = 0;
            }
    }
    return {};
}

}  // namespace

const char* name_of(SortKey key) {
    return sort_names.at(static_cast<std::size_t>(key));
}

const char* name_of(ProcessPage page) {
    return page_names.at(static_cast<std::size_t>(page));
}

KeyCommand press(ViewState& state, const KeyPress& key, const std::vector<pid_t>& shown,
                 bool can_ask, std::size_t rows) {
    if (state.prompt != ViewState::Prompt::none) {
        return press_in_prompt(state, key);
    }
    state.message.clear();
    if (state.help) {
        state.help = false;
        return {};
    }
    const auto page = static_cast<std::ptrdiff_t>(std::max<std::size_t>(rows, 2) - 1);
    constexpr std::ptrdiff_t all = 1'000'000;
    switch (key.kind) {
        case Kind::character:
            return press_letter(state, key, can_ask);
        case Kind::up:
            move(state, shown, -1);
            break;
        case Kind::down:
            move(state, shown, 1);
            break;
        case Kind::page_up:
            move(state, shown, -page);
            break;
        case Kind::page_down:
            move(state, shown, page);
            break;
        case Kind::home:
            move(state, shown, -all);
            break;
        case Kind::end:
            move(state, shown, all);
            break;
        case Kind::left:
            move_page(state, state.looks_into ? -1 : 0);
            break;
        case Kind::right:
            move_page(state, state.looks_into ? 1 : 0);
            break;
        case Kind::enter:
            state.looks_into = state.chosen != 0;
            state.scroll = 0;
            break;
        case Kind::escape:
        case Kind::backspace:
            if (state.looks_into) {
                state.looks_into = false;
            } else {
                state.filter.clear();
            }
            state.scroll = 0;
            break;
    }
    return {};
}

}  // namespace memlab::tools
