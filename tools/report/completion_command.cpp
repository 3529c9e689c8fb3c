// Shell completion and the man page of memlab-report.
#include <CLI/CLI.hpp>
#include <array>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "tools/completion.hpp"
#include "tools/report/commands.hpp"
#include "tools/report/subcommand.hpp"

namespace memlab::tools {

namespace {

CommandShape shape_of(const Command& command) {
    CommandShape shape;
    if (command.name == "completion") {
        shape.description = "Prints a script that completes command lines, or the man page.";
        shape.arguments = "bash|zsh|fish|man";
    } else {
        inspect([&shape](const CLI::App& app) { shape = tools::shape_of(app); },
                [&command] {
                    std::string name = command.name;
                    std::array<char*, 2> arguments{name.data(), nullptr};
                    command.run(1, arguments.data());
                });
    }
    shape.name = command.name;
    shape.what = command.what;
    return shape;
}

/// Options of the summary stand for a command line without a command.
std::string bash_script(const std::vector<CommandShape>& commands) {
    std::string all;
    std::string cases;
    for (const CommandShape& command : commands) {
        all += (all.empty() ? "" : " ") + command.name;
        cases += "        " + command.name + (command.name == "summary" ? "|\"\"" : "") +
                 ") options=\"" + names_of(command) + "\" ;;\n";
    }
    return "# bash completion for memlab-report: memlab-report completion bash\n"
           "_memlab_report() {\n"
           "    local current=${COMP_WORDS[COMP_CWORD]} command= options=\n"
           "    local commands=\"" +
           all +
           "\"\n"
           "    if [[ $COMP_CWORD -gt 1 && \" $commands \" == *\" ${COMP_WORDS[1]} \"* ]]; then\n"
           "        command=${COMP_WORDS[1]}\n"
           "    fi\n"
           "    case $command in\n" +
           cases +
           "    esac\n"
           "    if [[ $current == -* ]]; then\n"
           "        COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))\n"
           "    elif [[ $COMP_CWORD -eq 1 ]]; then\n"
           "        COMPREPLY=($(compgen -W \"$commands\" -- \"$current\") $(compgen -f -- "
           "\"$current\"))\n"
           "    fi\n"
           "}\n"
           "complete -o default -o filenames -F _memlab_report memlab-report\n";
}

std::string zsh_script(const std::vector<CommandShape>& commands) {
    std::string list;
    std::string cases;
    for (const CommandShape& command : commands) {
        list +=
            "        '" + command.name + ":" + zsh_word(replaced(command.what, ":", "\\:")) + "'\n";
        cases += "        " + command.name + ") _arguments" + zsh_options(command) +
                 " \\\n            '*:file:_files' ;;\n";
    }
    return "#compdef memlab-report\n"
           "# zsh completion for memlab-report: memlab-report completion zsh\n"
           "_memlab_report() {\n"
           "    local -a commands=(\n" +
           list +
           "    )\n"
           "    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
           "        _describe command commands\n"
           "        _files\n"
           "        return\n"
           "    fi\n"
           "    local command=$words[2]\n"
           "    if (( ${commands[(I)$command:*]} )); then\n"
           "        shift words\n"
           "        (( CURRENT-- ))\n"
           "    else\n"
           "        command=summary\n"
           "    fi\n"
           "    case $command in\n" +
           cases +
           "    esac\n"
           "}\n"
           "_memlab_report \"$@\"\n";
}

std::string fish_script(const std::vector<CommandShape>& commands) {
    std::string out = "# fish completion for memlab-report: memlab-report completion fish\n";
    std::string all;
    for (const CommandShape& command : commands) {
        all += " " + command.name;
        out += "complete -c memlab-report -n __fish_use_subcommand -a " + command.name + " -d " +
               fish_word(command.what) + "\n";
    }
    for (const CommandShape& command : commands) {
        const std::string when = command.name == "summary"
                                     ? "not __fish_seen_subcommand_from" + all
                                     : "__fish_seen_subcommand_from " + command.name;
        out += fish_options("memlab-report", when, command);
    }
    return out;
}

std::string man_page(const std::vector<CommandShape>& commands) {
    std::string out =
        ".TH MEMLAB\\-REPORT 1 \"\" \"memlab\" \"User Commands\"\n"
        ".SH NAME\n"
        "memlab\\-report \\- shows, compares and converts recordings of GPU memory\n"
        ".SH SYNOPSIS\n"
        ".B memlab\\-report\n[\\fICOMMAND\\fR] [\\fIOPTION\\fR]... \\fIFILE\\fR...\n"
        ".SH COMMANDS\n";
    for (const CommandShape& command : commands) {
        out += ".SS \"memlab\\-report " + man_text(command.name) + " [\\fIOPTION\\fR]... \\fI" +
               man_text(command.arguments) + "\\fR\"\n" + man_text(command.description) + "\n";
        out += man_options(command) + ".PP\n" + man_footer(command.footer);
    }
    return out + ".SH SEE ALSO\n.BR memlab\\-run (1)\n";
}

}  // namespace

int completion_command(int argc, char** argv) {
    std::string kind;
    CLI::App app("Prints a script that completes commands and options in a shell, or the man page.",
                 "memlab-report completion");
    app.add_option("KIND", kind, "bash, zsh, fish or man")->required()->type_name("");
    app.footer(
        "Examples:\n"
        "  source <(memlab-report completion bash)\n"
        "  memlab-report completion zsh >\"${fpath[1]}/_memlab-report\"\n"
        "  memlab-report completion fish >~/.config/fish/completions/memlab-report.fish\n"
        "  memlab-report completion man | man -l -\n"
        "\n"
        "Exit code: 0 success, 2 the usage is wrong.");
    parse(app, argc, argv);
    std::vector<CommandShape> shapes;
    shapes.reserve(all_commands().size());
    for (const Command& command : all_commands()) {
        shapes.push_back(shape_of(command));
    }
    if (kind == "bash") {
        std::cout << bash_script(shapes);
    } else if (kind == "zsh") {
        std::cout << zsh_script(shapes);
    } else if (kind == "fish") {
        std::cout << fish_script(shapes);
    } else if (kind == "man") {
        std::cout << man_page(shapes);
    } else {
        return fail("completion takes bash, zsh, fish or man, not " + kind);
    }
    return flush_output(EXIT_SUCCESS);
}

}  // namespace memlab::tools
