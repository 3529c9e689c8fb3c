#include "tools/control/control_completion.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "interpose/control/protocol.hpp"
#include "report/text/terminal.hpp"
#include "tools/control/holders_command.hpp"

namespace memlab::tools {
namespace {

/// "on off": the arguments of a verb that are words, not names of something.
std::string words_of(const ControlVerb& verb) {
    std::string words;
    std::string word;
    const auto end_word = [&] {
        if (!word.empty() && std::none_of(word.begin(), word.end(),
                                          [](unsigned char c) { return std::isupper(c) != 0; })) {
            words += (words.empty() ? "" : " ") + word;
        }
        word.clear();
    };
    for (const char c : verb.arguments) {
        if (c == ' ' || c == '|' || c == '[' || c == ']') {
            end_word();
        } else {
            word += c;
        }
    }
    end_word();
    return words;
}

std::string all_names() {
    std::string names;
    for (const ControlVerb& verb : control_verbs()) {
        names += (names.empty() ? "" : " ") + verb.name;
    }
    return names;
}

/// The ids of this user's processes that have a socket in a folder: fast, and mostly all.
constexpr const char* processes_in_shell =
    "ls \"${XDG_RUNTIME_DIR:-/nonexistent}/memlab\" \"/tmp/memlab-$(id -u)\" 2>/dev/null | "
    "sed -n 's/^\\([0-9]*\\)\\.sock$/\\1/p'";

std::string bash_script(const CommandShape& shape) {
    std::string cases;
    for (const ControlVerb& verb : control_verbs()) {
        if (const std::string words = words_of(verb); !words.empty()) {
            cases += "            " + verb.name + ") words=\"" + words + "\" ;;\n";
        }
    }
    return "# bash completion for memlab-ctl: memlab-ctl --completion bash\n"
           "_memlab_ctl() {\n"
           "    local current=${COMP_WORDS[COMP_CWORD]} words=\"\" at verb=\"\"\n"
           "    for ((at = 1; at < COMP_CWORD; ++at)); do\n"
           "        case \" " +
           all_names() +
           " \" in\n"
           "            *\" ${COMP_WORDS[at]} \"*) verb=${COMP_WORDS[at]}; break ;;\n"
           "        esac\n"
           "    done\n"
           "    if [[ $current == -* ]]; then\n"
           "        words=\"" +
           names_of(shape) +
           "\"\n"
           "    elif [[ -z $verb ]]; then\n"
           "        words=\"" +
           all_names() + " $(" + processes_in_shell +
           ")\"\n"
           "    else\n"
           "        case $verb in\n" +
           cases +
           "        esac\n"
           "    fi\n"
           "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
           "    if [[ -z $verb ]]; then\n"
           "        COMPREPLY+=($(compgen -d -S / -- \"$current\"))\n"
           "    fi\n"
           "}\n"
           "complete -F _memlab_ctl memlab-ctl\n";
}

std::string zsh_script(const CommandShape& shape) {
    std::string verbs;
    std::string cases;
    for (const ControlVerb& verb : control_verbs()) {
        verbs += "        '" + verb.name + ":" + zsh_word(verb.meaning) + "'\n";
        if (const std::string words = words_of(verb); !words.empty()) {
            cases += "        (*" + verb.name + "*) compadd -- " + words + " ;;\n";
        }
    }
    return "#compdef memlab-ctl\n"
           "# zsh completion for memlab-ctl: memlab-ctl --completion zsh\n"
           "_memlab_ctl_words() {\n"
           "    local -a verbs processes\n"
           "    verbs=(\n" +
           verbs +
           "    )\n"
           "    processes=(${(f)\"$(" +
           processes_in_shell +
           ")\"})\n"
           "    case $words in\n" +
           cases +
           "        (*)\n"
           "            _describe verb verbs\n"
           "            compadd -- $processes\n"
           "            _files -/ ;;\n"
           "    esac\n"
           "}\n"
           "_arguments" +
           zsh_options(shape) + " \\\n            '*:verb:_memlab_ctl_words'\n";
}

std::string fish_script(const CommandShape& shape) {
    std::string out = "# fish completion for memlab-ctl: memlab-ctl --completion fish\n" +
                      fish_options("memlab-ctl", "true", shape);
    const std::string no_verb = "not __fish_seen_subcommand_from " + all_names();
    for (const ControlVerb& verb : control_verbs()) {
        out += "complete -c memlab-ctl -f -n " + fish_word(no_verb) + " -a " + verb.name + " -d " +
               fish_word(verb.meaning) + "\n";
        if (const std::string words = words_of(verb); !words.empty()) {
            out += "complete -c memlab-ctl -f -n " +
                   fish_word("__fish_seen_subcommand_from " + verb.name) + " -a " +
                   fish_word(words) + "\n";
        }
    }
    return out;
}

std::string man_page(const CommandShape& shape) {
    std::string out =
        ".TH MEMLAB\\-CTL 1 \"\" \"memlab\" \"User Commands\"\n"
        ".SH NAME\n"
        "memlab\\-ctl \\- asks running programs under memlab about their GPU memory\n"
        ".SH SYNOPSIS\n"
        ".B memlab\\-ctl\n[\\fIOPTION\\fR]... [\\fIPID\\fR|\\fIRUN/\\fR] [\\fIVERB\\fR "
        "[\\fIARGUMENT\\fR]...]\n"
        ".SH DESCRIPTION\n" +
        man_text(shape.description) + "\n.SH VERBS\n";
    for (const ControlVerb& verb : control_verbs()) {
        out += ".TP\n\\fB" + man_text(verb.name) + "\\fR" +
               (verb.arguments.empty() ? "" : " \\fI" + man_text(verb.arguments) + "\\fR") + "\n" +
               man_text(verb.meaning) + "\n";
    }
    return out + ".SH OPTIONS\n" + man_options(shape) + ".SH NOTES\n" + man_footer(shape.footer) +
           ".SH SEE ALSO\n.BR memlab\\-run (1),\n.BR memlab\\-report (1)\n";
}

}  // namespace

const std::vector<ControlVerb>& control_verbs() {
    static const std::vector<ControlVerb> all = [] {
        std::vector<ControlVerb> verbs;
        for (const interpose::VerbDef& verb : interpose::verbs) {
            verbs.push_back(
                {std::string(verb.name), std::string(verb.arguments), std::string(verb.meaning)});
        }
        verbs.push_back({holders_verb, "", holders_meaning});
        return verbs;
    }();
    return all;
}

std::string verbs_help() {
    constexpr std::size_t width = 80;
    constexpr std::size_t indent = 6;
    std::string out;
    for (const ControlVerb& verb : control_verbs()) {
        out += "  " + verb.name + (verb.arguments.empty() ? "" : " " + verb.arguments) + "\n" +
               std::string(indent, ' ') +
               report::wrap(verb.meaning, width - indent, std::string(indent, ' ')) + "\n";
    }
    return out;
}

std::string control_completion(const std::string& kind, const CommandShape& shape) {
    return kind == "bash"   ? bash_script(shape)
           : kind == "zsh"  ? zsh_script(shape)
           : kind == "fish" ? fish_script(shape)
           : kind == "man"  ? man_page(shape)
                            : std::string();
}

}  // namespace memlab::tools
