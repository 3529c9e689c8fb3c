#include "tools/completion.hpp"

#include <algorithm>
#include <utility>

namespace memlab::tools {

namespace {

/// Up to the first end of a sentence or line.
std::string first_sentence(const std::string& text) {
    return text.substr(0, std::min({text.find(". "), text.find('\n'), text.size()}));
}

}  // namespace

std::vector<std::string> OptionShape::words() const {
    std::vector<std::string> words;
    if (!short_name.empty()) {
        words.push_back("-" + short_name);
    }
    if (!long_name.empty()) {
        words.push_back("--" + long_name);
    }
    return words;
}

CommandShape shape_of(const CLI::App& app) {
    CommandShape shape;
    shape.description = app.get_description();
    shape.footer = app.get_footer();
    for (const CLI::Option* option : app.get_options()) {
        if (option->get_group().empty()) {
            continue;  // hidden
        }
        if (option->get_positional() && !option->nonpositional()) {
            shape.arguments += (shape.arguments.empty() ? "" : " ") + option->get_name(true) +
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
    return shape;
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
        text.replace(at, what.size(), by);
    }
    return text;
}

std::string names_of(const CommandShape& command) {
    std::string names;
    for (const OptionShape& option : command.options) {
        names += option.long_name.empty() ? "" : (names.empty() ? "--" : " --") + option.long_name;
    }
    return names;
}

std::string zsh_word(const std::string& text) {
    return replaced(replaced(replaced(replaced(text, "\\", "\\\\"), "'", "'\\''"), "[", "\\["), "]",
                    "\\]");
}

std::string zsh_options(const CommandShape& command) {
    std::string out;
    for (const OptionShape& option : command.options) {
        const std::string value = option.value.empty() ? ""
                                  : option.has_attached_value()
                                      ? "::value:"
                                      : ":" + zsh_word(option.value) + ":_files";
        for (const std::string& word : option.words()) {
            out += " \\\n            '*";
            out += word;
            out += option.has_attached_value() ? "=-[" : "[";
            out += zsh_word(first_sentence(option.what));
            out += "]";
            out += value;
            out += "'";
        }
    }
    return out;
}

std::string fish_word(const std::string& text) {
    return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string fish_options(const std::string& program, const std::string& condition,
                         const CommandShape& command) {
    std::string out;
    for (const OptionShape& option : command.options) {
        out += "complete -c " + program + " -n " + fish_word(condition) +
               (option.long_name.empty() ? "" : " -l " + option.long_name) +
               (option.short_name.empty() ? "" : " -s " + option.short_name) +
               (option.value.empty() || option.has_attached_value() ? "" : " -r") + " -d " +
               fish_word(first_sentence(option.what)) + "\n";
    }
    return out;
}

std::string man_text(const std::string& text) {
    std::string out = replaced(replaced(replaced(text, "\\", "\\e"), "-", "\\-"), "…", "...");
    out = replaced(out, "\n.", "\n\\&.");
    return replaced(out, "\n'", "\n\\&'");
}

std::string man_options(const CommandShape& command) {
    std::string out;
    for (const OptionShape& option : command.options) {
        out += ".TP\n";
        if (!option.short_name.empty()) {
            out += "\\fB\\-" + option.short_name + "\\fR" + (option.long_name.empty() ? "" : ", ");
        }
        if (!option.long_name.empty()) {
            out += "\\fB\\-\\-" + man_text(option.long_name) + "\\fR";
        }
        if (!option.value.empty()) {
            out +=
                (option.has_attached_value() ? "\\fI" : " \\fI") + man_text(option.value) + "\\fR";
        }
        out += "\n" + man_text(option.what) + "\n";
    }
    return out;
}

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

}  // namespace memlab::tools
