// The layout of all tools' --help: wrapped to 80 columns, descriptions beside the options.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <memory>
#include <string>

namespace memlab::tools {

/// Each line of a description or footer is a paragraph and is wrapped; lines that begin with a
/// space are printed as is.
class HelpFormatter : public CLI::Formatter {
  public:
    /// Option descriptions begin in `column`.
    explicit HelpFormatter(std::size_t column);

    std::string make_help(const CLI::App* app, std::string name,
                          CLI::AppFormatMode mode) const override;
    std::string make_description(const CLI::App* app) const override;
    std::string make_footer(const CLI::App* app) const override;
    std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
    std::string make_option_opts(const CLI::Option* option) const override;
    std::string make_option_desc(const CLI::Option* option) const override;
};

/// Sets the formatter and a uniform --help option.
void set_help(CLI::App& app, std::shared_ptr<HelpFormatter> formatter);

}  // namespace memlab::tools
