// Prints the option table as Markdown: the table in docs/options.md is this text, and a test
// compares.
#include <cstdio>
#include <string>

#include "interpose/options/option_table.hpp"

namespace {

std::string cell(const char* text) {
    std::string escaped;
    for (; *text != '\0'; ++text) {
        if (*text == '|' || *text == '<') {
            escaped += '\\';
        }
        escaped += *text;
    }
    return escaped;
}

}  // namespace

int main() {
    std::puts("| variable | takes | default | meaning |");
    std::puts("|---|---|---|---|");
    for (const memlab::interpose::OptionDef& option : memlab::interpose::option_table()) {
        if (std::string(option.name) == "MEMLAB_RUN_MANIFEST") {
            continue;  // between memlab-run and its children, not for people
        }
        const std::string default_value =
            *option.default_value == '\0' ? "" : "`" + std::string(option.default_value) + "`";
        std::printf("| `%s` | %s | %s | %s |\n", option.name, cell(option.values).c_str(),
                    default_value.c_str(), cell(option.meaning).c_str());
    }
    return 0;
}
