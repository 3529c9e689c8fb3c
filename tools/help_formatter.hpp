// How --help looks in all tools: text wrapped to 80 columns, options with what they mean beside
// them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <memory>
#include <string>

namespace memlab::tools {

/// Each line of the description, of the footer and of what an option means is a paragraph, which is
/// wrapped; lines that begin with a blank are shown as they are.
class HelpFormatter : public CLI::Formatter {
  public:
    /// What options mean begins in `column`.
    explicit HelpFormatter(std::size_t column);

    std::string make_help(const CLI::App* app, std::string name,
                          CLI::AppFormatMode mode) const override;
    std::string make_description(const CLI::App* app) const override;
    std::string make_footer(const CLI::App* app) const override;
    std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
    std::string make_option_opts(const CLI::Option* option) const override;
    std::string make_option_desc(const CLI::Option* option) const override;
};

/// Gives `app` this formatter, and its --help words like the others'.
void set_help(CLI::App& app, std::shared_ptr<HelpFormatter> formatter);

}  // namespace memlab::tools
