// Prints the table of docs/memlab-report.md: the commands, by group, and the question that each
// answers.
#include <iostream>
#include <map>
#include <string>

#include "tools/report/commands.hpp"

namespace {

struct Group {
    std::string title;
    std::string page;
};

std::string linked(const std::string& text, const std::string& page) {
    return page.empty() ? text : "[" + text + "](" + page + ")";
}

}  // namespace

int main() {
    const std::map<std::string, Group> groups = {
#define GROUP(name, title, page) {#name, {title, page}},
#define COMMAND(name, group, what, page, question)
#include "tools/report/commands.inc"
#undef COMMAND
#undef GROUP
    };
    std::cout << "| command | the question it answers |\n|---|---|\n";
    std::string shown;
    const auto command = [&](const std::string& name, const std::string& group,
                             const std::string& page, const std::string& question) {
        if (group != shown) {
            shown = group;
            std::cout << "| **" << linked(groups.at(group).title, groups.at(group).page)
                      << "** | |\n";
        }
        std::cout << "| " << linked("`" + name + "`", page) << " | " << question << " |\n";
    };
#define GROUP(name, title, page)
#define COMMAND(name, group, what, page, question) \
    command(memlab::tools::command_name(#name), #group, page, question);
#include "tools/report/commands.inc"
#undef COMMAND
#undef GROUP
    return 0;
}
