// Prints the table of docs/live.md: what a running program can be asked.
#include <iostream>
#include <string>

#include "interpose/control/protocol.hpp"

namespace {

/// A bar would end the cell.
std::string in_cell(std::string_view text) {
    std::string out;
    for (const char c : text) {
        out += c == '|' ? std::string("\\|") : std::string(1, c);
    }
    return out;
}

}  // namespace

int main() {
    std::cout << "| verb | |\n|---|---|\n";
    for (const memlab::interpose::VerbDef& verb : memlab::interpose::verbs) {
        std::string call(verb.name);
        if (!verb.arguments.empty()) {
            call.append(" ").append(verb.arguments);
        }
        std::cout << "| `" << in_cell(call) << "` | " << verb.meaning << " |\n";
    }
    return 0;
}
