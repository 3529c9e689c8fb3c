// What keys do.
#include "tests/catch.hpp"
#include "tools/top/view_state.hpp"

namespace memlab::tools {
namespace {

using Kind = KeyPress::Kind;

class Keys {
  public:
    KeyCommand letter(const std::string& text) { return key(Kind::character, text); }
    KeyCommand key(Kind kind, const std::string& text = {}) {
        return press(state, {kind, text}, shown, can_ask, 10);
    }
    KeyCommand type(const std::string& text) {
        KeyCommand command;
        for (const char c : text) {
            command = letter(std::string(1, c));
        }
        return command;
    }
    ViewState state;
    std::vector<pid_t> shown = {10, 20, 30};
    bool can_ask = true;
};

TEST_CASE("a process is chosen, looked into, and left", "[top]") {
    Keys keys;
    keys.state.chosen = 10;
    keys.key(Kind::down);
    CHECK(keys.state.chosen == 20);
    keys.key(Kind::page_down);
    CHECK(keys.state.chosen == 30);
    keys.key(Kind::down);
    CHECK(keys.state.chosen == 30);
    keys.key(Kind::home);
    CHECK(keys.state.chosen == 10);
    keys.key(Kind::enter);
    CHECK(keys.state.looks_into);
    keys.letter("3");
    CHECK(keys.state.page == ProcessPage::tree);
    keys.key(Kind::right);
    CHECK(keys.state.page == ProcessPage::nn_modules);
    keys.key(Kind::down);
    keys.key(Kind::down);
    keys.key(Kind::up);
    CHECK(keys.state.scroll == 1);
    CHECK(keys.state.chosen == 10);
    keys.key(Kind::escape);
    CHECK_FALSE(keys.state.looks_into);
    keys.key(Kind::right);
    CHECK(keys.state.page == ProcessPage::nn_modules);
}

TEST_CASE("without processes nothing is chosen", "[top]") {
    Keys keys;
    keys.shown.clear();
    keys.key(Kind::down);
    keys.key(Kind::enter);
    CHECK(keys.state.chosen == 0);
    CHECK_FALSE(keys.state.looks_into);
    keys.can_ask = false;
    CHECK(keys.letter("n").what == KeyCommand::What::none);
    CHECK(keys.state.message == "choose a process first");
}

TEST_CASE("sorting, pausing, filtering", "[top]") {
    Keys keys;
    keys.letter("s");
    CHECK(keys.state.sort == SortKey::allocated);
    keys.letter("r");
    CHECK(keys.state.reversed);
    keys.letter("p");
    CHECK(keys.state.paused);
    keys.letter("/");
    keys.type("qx\xC3\xA4");
    CHECK(keys.state.filter == "qx\xC3\xA4");  // q is a letter there
    keys.key(Kind::backspace);
    CHECK(keys.state.filter == "qx");
    keys.key(Kind::enter);
    CHECK(keys.state.prompt == ViewState::Prompt::none);
    CHECK(keys.state.filter == "qx");
    keys.key(Kind::escape);
    CHECK(keys.state.filter.empty());
}

TEST_CASE("commands are for the chosen process", "[top]") {
    Keys keys;
    keys.state.chosen = 20;
    keys.letter("m");
    keys.type("epoch 1");
    const KeyCommand mark = keys.key(Kind::enter);
    CHECK(mark.what == KeyCommand::What::mark);
    CHECK(mark.pid == 20);
    CHECK(mark.name == "epoch 1");
    keys.letter("m");
    CHECK(keys.key(Kind::enter).what == KeyCommand::What::none);  // a mark has a name
    CHECK(keys.letter("n").what == KeyCommand::What::snapshot);
    CHECK(keys.letter("e").what == KeyCommand::What::empty_cache);
    CHECK(keys.letter("y").what == KeyCommand::What::yield);
    CHECK(keys.letter("b").what == KeyCommand::What::restore);
    CHECK(keys.letter("q").what == KeyCommand::What::quit);
    keys.can_ask = false;
    CHECK(keys.letter("e").what == KeyCommand::What::none);
    CHECK(keys.state.message == "process 20 is not under memlab, or does not answer");
    keys.letter("?");
    CHECK(keys.state.help);
    CHECK(keys.letter("q").what == KeyCommand::What::none);  // any key: back
    CHECK_FALSE(keys.state.help);
}

}  // namespace
}  // namespace memlab::tools
