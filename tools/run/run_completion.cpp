#include "tools/run/run_completion.hpp"

namespace memlab::tools {

namespace {

/// "-o<separator>--output": of the options whose value is the next word.
std::string names_with_value(const CommandShape& shape, const std::string& separator) {
    std::string names;
    for (const OptionShape& option : shape.options) {
        if (!option.value.empty() && !option.has_attached_value()) {
            for (const std::string& word : option.words()) {
                names += (names.empty() ? "" : separator) + word;
            }
        }
    }
    return names;
}

/// Bash's words are split at "=", too.
std::string bash_script(const CommandShape& shape) {
    return "# bash completion for memlab-run: memlab-run --completion bash\n"
           "_memlab_run() {\n"
           "    local current=${COMP_WORDS[COMP_CWORD]} at=1 offset\n"
           "    while ((at < COMP_CWORD)); do\n"
           "        case ${COMP_WORDS[at]} in\n"
           "            --) ((at += 1)); break ;;\n"
           "            =|" +
           names_with_value(shape, "|") +
           ") ((at += 2)) ;;\n"
           "            -*) ((at += 1)) ;;\n"
           "            *) break ;;\n"
           "        esac\n"
           "    done\n"
           "    ((at <= COMP_CWORD)) || return 0\n"
           "    if [[ $current == -* && $at -eq $COMP_CWORD && ${COMP_WORDS[at - 1]} != -- ]]; "
           "then\n"
           "        COMPREPLY=($(compgen -W \"" +
           names_of(shape) +
           "\" -- \"$current\"))\n"
           "        return 0\n"
           "    fi\n"
           "    for offset in _comp_command_offset _command_offset; do\n"
           "        if declare -F \"$offset\" >/dev/null; then\n"
           "            \"$offset\" \"$at\"\n"
           "            return 0\n"
           "        fi\n"
           "    done\n"
           "    if ((at == COMP_CWORD)); then\n"
           "        COMPREPLY=($(compgen -c -- \"$current\"))\n"
           "    fi\n"
           "}\n"
           "complete -o default -F _memlab_run memlab-run\n";
}

std::string zsh_script(const CommandShape& shape) {
    return "#compdef memlab-run\n"
           "# zsh completion for memlab-run: memlab-run --completion zsh\n"
           "_arguments -S" +
           zsh_options(shape) +
           " \\\n            '(-)1:command:_command_names -e'"
           " \\\n            '*::arguments:_normal'\n";
}

std::string fish_script(const CommandShape& shape) {
    return "# fish completion for memlab-run: memlab-run --completion fish\n"
           "function __memlab_run_before_command\n"
           "    set -l words (commandline -opc)\n"
           "    set -l is_value no\n"
           "    for word in $words[2..-1]\n"
           "        if test $is_value = yes\n"
           "            set is_value no\n"
           "            continue\n"
           "        end\n"
           "        switch $word\n"
           "            case " +
           names_with_value(shape, " ") +
           "\n"
           "                set is_value yes\n"
           "            case --\n"
           "                return 1\n"
           "            case '-*'\n"
           "            case '*'\n"
           "                return 1\n"
           "        end\n"
           "    end\n"
           "end\n" +
           fish_options("memlab-run", "__memlab_run_before_command", shape) +
           "complete -c memlab-run -x -a '(__fish_complete_subcommand -- " +
           names_with_value(shape, " ") + ")'\n";
}

std::string man_page(const CommandShape& shape, std::span<const interpose::OptionDef> options) {
    std::string out =
        ".TH MEMLAB\\-RUN 1 \"\" \"memlab\" \"User Commands\"\n"
        ".SH NAME\n"
        "memlab\\-run \\- runs a program with its GPU memory pooled and recorded\n"
        ".SH SYNOPSIS\n"
        ".B memlab\\-run\n[\\fIOPTION\\fR]... [\\-\\-] \\fICOMMAND\\fR [\\fIARGUMENT\\fR]...\n"
        ".SH DESCRIPTION\n" +
        man_text(shape.description) + "\n.SH OPTIONS\n" + man_options(shape) +
        ".SH ENVIRONMENT\nThe same options for a program that is started with\n"
        ".B LD_PRELOAD=libmemlab.so\nand, without MEMLAB_, for\n.BR \\-\\-option .\n";
    for (const interpose::OptionDef& option : options) {
        out += ".TP\n\\fB" + man_text(option.name) + "\\fR=\\fI" + man_text(option.default_value) +
               "\\fR\nTakes " + man_text(option.values) + ". " + man_text(option.meaning) + "\n";
    }
    return out + ".SH NOTES\n" + man_footer(shape.footer) +
           ".SH SEE ALSO\n.BR memlab\\-report (1)\n";
}

}  // namespace

std::string run_completion(const std::string& kind, const CommandShape& shape,
                           std::span<const interpose::OptionDef> options) {
    return kind == "bash"   ? bash_script(shape)
           : kind == "zsh"  ? zsh_script(shape)
           : kind == "fish" ? fish_script(shape)
           : kind == "man"  ? man_page(shape, options)
                            : std::string();
}

}  // namespace memlab::tools
