#include "tools/top/terminal.hpp"

#include <clocale>
#include <cstdio>
#include <cstdlib>

// Its macros (erase, move, timeout) would change names of ours.
#define NCURSES_NOMACROS 1
#include <ncurses.h>
#include <term.h>
#undef columns
#undef lines

namespace memlab::tools {
namespace {

enum Pair : short { good_pair = 1, warning_pair, bad_pair, name_pair };

attr_t attributes_of(Tint tint, bool color) {
    const auto pair = [color](Pair number) -> attr_t {
        return color ? static_cast<attr_t>(COLOR_PAIR(number)) : A_NORMAL;
    };
    switch (tint) {
        case Tint::plain:
            return A_NORMAL;
        case Tint::bold:
            return A_BOLD;
        case Tint::dim:
            return color ? A_DIM : A_NORMAL;
        case Tint::chosen:
            return A_REVERSE;
        case Tint::good:
            return pair(good_pair);
        case Tint::warning:
            return color ? pair(warning_pair) : A_BOLD;
        case Tint::bad:
            return pair(bad_pair) | A_BOLD;
        case Tint::name:
            return pair(name_pair);
    }
    return A_NORMAL;
}

std::optional<KeyPress::Kind> kind_of(int key) {
    using Kind = KeyPress::Kind;
    switch (key) {
        case KEY_UP:
            return Kind::up;
        case KEY_DOWN:
            return Kind::down;
        case KEY_PPAGE:
            return Kind::page_up;
        case KEY_NPAGE:
            return Kind::page_down;
        case KEY_HOME:
            return Kind::home;
        case KEY_END:
            return Kind::end;
        case KEY_LEFT:
            return Kind::left;
        case KEY_RIGHT:
            return Kind::right;
        case KEY_ENTER:
        case '\n':
        case '\r':
            return Kind::enter;
        case 27:
            return Kind::escape;
        case KEY_BACKSPACE:
        case 127:
        case 8:
            return Kind::backspace;
        default:
            return std::nullopt;
    }
}

/// How many bytes a character of UTF-8 has that begins so.
std::size_t length_of(unsigned char first) {
    return first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
}

}  // namespace

Terminal::Terminal(bool color) {
    const char* const type = std::getenv("TERM");
    if (type == nullptr || type[0] == '\0') {
        problem_ = "TERM is not set";
        return;
    }
    // Wide characters are shown as what LC_CTYPE says they are; a static program finds the C
    // library's own C.UTF-8 without a file.
    if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) {
        (void)std::setlocale(LC_CTYPE, "");
    }
    // Asked first: newterm() of a terminal that is not known loses memory.
    int found = 0;
    const bool known = setupterm(type, fileno(stdout), &found) == OK;
    if (known) {
        del_curterm(cur_term);
    }
    SCREEN* const screen = known ? newterm(nullptr, stdout, stdin) : nullptr;
    if (screen == nullptr) {
        problem_ = std::string("no terminal ") + type + " is known here (terminfo)";
        return;
    }
    screen_ = screen;
    set_term(screen);
    if (tigetstr("cup") == nullptr || reinterpret_cast<std::intptr_t>(tigetstr("cup")) == -1) {
        problem_ = std::string("a terminal ") + type + " has no cursor to move";
    }
    set_escdelay(25);
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    curs_set(0);
    color_ = color && has_colors() && start_color() == OK;
    if (color_) {
        use_default_colors();
        init_pair(good_pair, COLOR_GREEN, -1);
        init_pair(warning_pair, COLOR_YELLOW, -1);
        init_pair(bad_pair, COLOR_RED, -1);
        init_pair(name_pair, COLOR_CYAN, -1);
    }
    if (!problem_.empty()) {
        endwin();
    }
}

Terminal::~Terminal() {
    if (screen_ != nullptr) {
        if (!isendwin()) {
            endwin();
        }
        delscreen(static_cast<SCREEN*>(screen_));
    }
}

std::size_t Terminal::rows() const {
    return static_cast<std::size_t>(getmaxy(stdscr) < 2 ? 2 : getmaxy(stdscr));
}

std::size_t Terminal::columns() const {
    return static_cast<std::size_t>(getmaxx(stdscr) < 20 ? 20 : getmaxx(stdscr));
}

void Terminal::show(const std::vector<Line>& lines) {
    werase(stdscr);
    int row = 0;
    for (const Line& line : lines) {
        wmove(stdscr, row++, 0);
        for (const Span& span : line.spans) {
            wattrset(stdscr, static_cast<int>(attributes_of(span.tint, color_)));
            waddnstr(stdscr, span.text.data(), static_cast<int>(span.text.size()));
        }
    }
    wattrset(stdscr, A_NORMAL);
    wrefresh(stdscr);
}

void Terminal::redraw() {
    clearok(curscr, TRUE);
}

std::optional<KeyPress> Terminal::next_key() {
    for (;;) {
        const int key = wgetch(stdscr);
        if (key == ERR) {
            return std::nullopt;
        }
        if (key == 12) {  // Ctrl-L
            redraw();
            continue;
        }
        if (const auto kind = kind_of(key)) {
            return KeyPress{*kind, {}};
        }
        if (key == KEY_RESIZE || key > 255) {
            continue;
        }
        partial_ += static_cast<char>(key);
        if (partial_.size() >= length_of(static_cast<unsigned char>(partial_[0]))) {
            KeyPress press{KeyPress::Kind::character, {}};
            press.text.swap(partial_);
            return press;
        }
    }
}

}  // namespace memlab::tools
