#include "report/text/shell_word.hpp"

#include "report/text/terminal.hpp"

namespace memlab::report {

namespace {

/// $'a\nb', as bash, zsh, ksh and POSIX.1-2024 read it: every byte that is not printable ASCII is
/// escaped.
std::string escaped_word(const std::string& word) {
    std::string quoted = "$'";
    for (const char c : word) {
        const auto byte = static_cast<unsigned char>(c);
        const auto digit = [byte](unsigned shift) {
            return static_cast<char>('0' + ((byte >> shift) & 7U));
        };
        if (c == '\n' || c == '\t') {
            quoted += c == '\n' ? "\\n" : "\\t";
        } else if (byte < ' ' || byte >= 0x7f) {
            quoted += {'\\', digit(6), digit(3), digit(0)};
        } else {
            quoted += c == '\'' || c == '\\' ? "\\" : "";
            quoted += c;
        }
    }
    return quoted + "'";
}

}  // namespace

std::string shell_word(const std::string& word, bool ascii) {
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789_-+./:=@,%") == std::string::npos;
    if (plain) {
        return word;
    }
    if (printable(word, ascii) != word) {
        return escaped_word(word);
    }
    std::string quoted = "'";
    for (const char c : word) {
        quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    return quoted + "'";
}

std::string shell_file(const std::string& path, bool ascii) {
    return shell_word(path.size() > 1 && path.front() == '-' ? "./" + path : path, ascii);
}

std::string command_line(const std::vector<std::string>& arguments, bool ascii) {
    std::string line;
    for (const std::string& argument : arguments) {
        line += (line.empty() ? "" : " ") + shell_word(argument, ascii);
    }
    return line;
}

}  // namespace memlab::report
