#include "tools/help_formatter.hpp"

#include <string_view>
#include <utility>

#include "report/text/terminal.hpp"

namespace memlab::tools {

namespace {

constexpr std::size_t page_width = 80;

std::string wrap_paragraphs(const std::string& text, std::size_t width) {
    std::string result;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        const std::string line = text.substr(begin, end - begin);
        result += line.starts_with(' ') ? line : report::wrap(line, width, "");
        result += end < text.size() ? "\n" : "";
        begin = end + 1;
    }
    return result;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
        text.replace(at, from.size(), to);
        at += to.size();
    }
}

}  // namespace

HelpFormatter::HelpFormatter(std::size_t column) {
    column_width(column);
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
    std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
    replace_all(help, "\n\n\n", "\n\n");  // CLI11 separates option groups by two lines
    return help;
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
    return wrap_paragraphs(app->get_description(), page_width) + "\n\n";
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
    return wrap_paragraphs(CLI::Formatter::make_footer(app), page_width);
}

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool is_positional) const {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    replace_all(name, ",", ", ");
    return name;
}

/// CLI11's version adds excluded and required options, which breaks the columns.
std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
    std::string text = option->get_type_size() == 0 || option->get_type_name().empty()
                           ? std::string()
                           : " " + option->get_type_name();
    if (option->get_positional() &&
        option->get_expected_max() == CLI::detail::expected_max_vector_size) {
        text += "...";
    }
    return text;
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
    return wrap_paragraphs(option->get_description(), page_width - get_column_width());
}

void set_help(CLI::App& app, std::shared_ptr<HelpFormatter> formatter) {
    app.formatter(std::move(formatter));
    app.set_help_flag("-h,--help", "Print this help");
}

}  // namespace memlab::tools
