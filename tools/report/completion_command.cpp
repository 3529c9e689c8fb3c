// Shell completion and the man page, made of the same tables of options that parse the command
// lines.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/report/commands.hpp"
#include "tools/report/subcommand.hpp"

namespace memlab::tools {

namespace {

struct OptionShape {
    std::string long_name;   ///< without dashes; empty: none
    std::string short_name;  ///< likewise
    std::string value;       ///< "N"; empty: it takes none
    std::string what;
};

struct CommandShape {
    std::string name;
    std::string what;         ///< in few words
    std::string description;  ///< in sentences
    std::string arguments;    ///< "FILE..."
    std::string footer;
    std::vector<OptionShape> options;
};

CommandShape shape_of(const Command& command) {
    CommandShape shape;
    shape.name = command.name;
    shape.what = command.what;
    if (command.name == "completion") {
        shape.description = "Prints a script that completes command lines, or the man page.";
        shape.arguments = "bash|zsh|fish|man";
        return shape;
    }
    inspect(
        [&shape](const CLI::App& app) {
            shape.description = app.get_description();
            shape.footer = app.get_footer();
            for (const CLI::Option* option : app.get_options()) {
                if (option->get_group().empty()) {
                    continue;  // hidden
                }
                if (option->get_positional() && !option->nonpositional()) {
                    shape.arguments += (shape.arguments.empty() ? "" : " ") +
                                       option->get_name(true) +
                                       (option->get_expected_max() > 1 ? "..." : "");
                    continue;
                }
                OptionShape out;
                out.long_name = option->get_lnames().empty() ? "" : option->get_lnames().front();
                out.short_name = option->get_snames().empty() ? "" : option->get_snames().front();
                out.value = option->get_type_size() == 0 ? "" : option->get_type_name();
                out.what = option->get_description();
                shape.options.push_back(std::move(out));
            }
        },
        [&command] {
            std::string name = command.name;
            std::array<char*, 2> arguments{name.data(), nullptr};
            command.run(1, arguments.data());
        });
    return shape;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
        text.replace(at, what.size(), by);
    }
    return text;
}

/// Up to the first end of a sentence or line.
std::string first_sentence(const std::string& text) {
    return text.substr(0, std::min({text.find(". "), text.find('\n'), text.size()}));
}

std::string names_of(const CommandShape& command) {
    std::string names;
    for (const OptionShape& option : command.options) {
        names += option.long_name.empty() ? "" : (names.empty() ? "--" : " --") + option.long_name;
    }
    return names;
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

std::string zsh_word(const std::string& text) {
    return replaced(replaced(replaced(replaced(text, "\\", "\\\\"), "'", "'\\''"), "[", "\\["), "]",
                    "\\]");
}

std::string zsh_script(const std::vector<CommandShape>& commands) {
    std::string list;
    std::string cases;
    for (const CommandShape& command : commands) {
        list +=
            "        '" + command.name + ":" + zsh_word(replaced(command.what, ":", "\\:")) + "'\n";
        cases += "        " + command.name + ") _arguments";
        for (const OptionShape& option : command.options) {
            if (!option.long_name.empty()) {
                cases += " \\\n            '*--" + option.long_name + "[" +
                         zsh_word(first_sentence(option.what)) + "]" +
                         (option.value.empty() ? "" : ":" + zsh_word(option.value) + ":_files") +
                         "'";
            }
        }
        cases += " \\\n            '*:file:_files' ;;\n";
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

std::string fish_word(const std::string& text) {
    return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
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
        for (const OptionShape& option : command.options) {
            out += "complete -c memlab-report -n " + fish_word(when) +
                   (option.long_name.empty() ? "" : " -l " + option.long_name) +
                   (option.short_name.empty() ? "" : " -s " + option.short_name) +
                   (option.value.empty() ? "" : " -r") + " -d " +
                   fish_word(first_sentence(option.what)) + "\n";
        }
    }
    return out;
}

/// Text of a man page: a line does not begin a request, a hyphen is one that can be copied.
std::string man_text(const std::string& text) {
    std::string out = replaced(replaced(replaced(text, "\\", "\\e"), "-", "\\-"), "…", "...");
    out = replaced(out, "\n.", "\n\\&.");
    return replaced(out, "\n'", "\n\\&'");
}

/// The footer of --help: paragraphs, and lines that begin with a blank as they are.
std::string man_footer(const std::string& text) {
    std::string out;
    bool verbatim = false;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        const std::string line = text.substr(at, end - at);
        at = end + 1;
        const bool is_verbatim = line.starts_with(' ');
        if (is_verbatim != verbatim) {
            out += is_verbatim ? ".nf\n" : ".fi\n";
            verbatim = is_verbatim;
        }
        if (line.empty()) {
            out += ".PP\n";
        } else {
            out += (line.front() == '.' || line.front() == '\'' ? "\\&" : "") + man_text(line) +
                   (is_verbatim ? "\n" : "\n.br\n");
        }
    }
    return out + (verbatim ? ".fi\n" : "");
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
        for (const OptionShape& option : command.options) {
            out += ".TP\n";
            if (!option.short_name.empty()) {
                out +=
                    "\\fB\\-" + option.short_name + "\\fR" + (option.long_name.empty() ? "" : ", ");
            }
            if (!option.long_name.empty()) {
                out += "\\fB\\-\\-" + man_text(option.long_name) + "\\fR";
            }
            out += (option.value.empty() ? "" : " \\fI" + man_text(option.value) + "\\fR") + "\n" +
                   man_text(option.what) + "\n";
        }
        out += ".PP\n" + man_footer(command.footer);
    }
    return out + ".SH SEE ALSO\n.BR memlab\\-run (1)\n";
}

}  // namespace

int completion_command(int argc, char** argv, const std::vector<Command>& commands) {
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
        "Exit code: 0 good, 2 the usage is wrong.");
    if (const std::optional<int> code = parse(app, argc, argv, "memlab-report completion")) {
        return *code;
    }
    std::vector<CommandShape> shapes;
    shapes.reserve(commands.size());
    for (const Command& command : commands) {
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
