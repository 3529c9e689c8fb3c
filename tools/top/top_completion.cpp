#include "tools/top/top_completion.hpp"

namespace memlab::tools {
namespace {

std::string bash_text(const CommandShape& shape) {
    return "# bash completion for memlab-top: memlab-top --completion bash\n"
           "_memlab_top() {\n"
           "    local current=${COMP_WORDS[COMP_CWORD]}\n"
           "    COMPREPLY=($(compgen -W \"" +
           names_of(shape) +
           "\" -- \"$current\"))\n"
           "}\n"
           "complete -F _memlab_top memlab-top\n";
}

std::string zsh_text(const CommandShape& shape) {
    return "#compdef memlab-top\n"
           "# zsh completion for memlab-top: memlab-top --completion zsh\n"
           "_arguments -S" +
           zsh_options(shape) + "\n";
}

std::string fish_text(const CommandShape& shape) {
    return "# fish completion for memlab-top: memlab-top --completion fish\n"
           "complete -c memlab-top -f\n" +
           fish_options("memlab-top", "true", shape);
}

std::string man_page_text(const CommandShape& shape) {
    return ".TH MEMLAB\\-TOP 1 \"\" \"memlab\" \"User Commands\"\n"
           ".SH NAME\n"
           "memlab\\-top \\- shows who holds the memory of the GPUs now\n"
           ".SH SYNOPSIS\n"
           ".B memlab\\-top\n[\\fIOPTION\\fR]...\n"
           ".SH DESCRIPTION\n" +
           man_text(shape.description) + "\n.SH OPTIONS\n" + man_options(shape) + ".SH NOTES\n" +
           man_footer(shape.footer) +
           ".SH SEE ALSO\n.BR memlab\\-run (1),\n.BR memlab\\-report (1)\n";
}

}  // namespace

std::string top_completion(const std::string& kind, const CommandShape& shape) {
    return kind == "bash"   ? bash_text(shape)
           : kind == "zsh"  ? zsh_text(shape)
           : kind == "fish" ? fish_text(shape)
           : kind == "man"  ? man_page_text(shape)
                            : std::string();
}

}  // namespace memlab::tools
