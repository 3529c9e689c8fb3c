#include "tools/report/subcommand.hpp"

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>

#include "tools/diagnostics.hpp"
#include "tools/help_formatter.hpp"

namespace memlab::tools {

namespace {

std::string color_word(const std::string& text) {
    return text == "auto" || text == "always" || text == "never"
               ? std::string()
               : "takes auto, always or never, not " + text;
}

}  // namespace

int fail(const std::string& what) {
    std::cout.flush();
    diagnostics().error("{}", report::printable(what, false));
    return exit_bad_input;
}

int flush_output(int code) {
    std::cout.flush();
    return std::cout ? code : fail("cannot write to standard output; is the disk full?");
}

void add_style_options(CLI::App& app, StyleOptions& style) {
    app.add_option("--color", style.color, "auto (default: on a terminal), always or never")
        ->type_name("WHEN")
        ->check(color_word);
    app.add_flag("--ascii", style.ascii, "Draw with ASCII characters only");
}

report::Style make_style(const StyleOptions& style) {
    const report::ColorMode mode = style.color == "always"  ? report::ColorMode::always
                                   : style.color == "never" ? report::ColorMode::never
                                                            : report::ColorMode::automatic;
    return report::style_for(STDOUT_FILENO, mode, style.ascii);
}

std::string check_whole_number(const std::string& text) {
    const bool digits = !text.empty() && text.size() < 10 &&
                        text.find_first_not_of("0123456789") == std::string::npos;
    return digits ? std::string() : "takes a whole number, not " + text;
}

CLI::Option* add_repeated(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                          const std::string& what) {
    return app.add_option(name, values, what)->expected(1)->allow_extra_args(false)->take_all();
}

CLI::Option* add_repeated(CLI::App& app, const std::string& name,
                          const std::function<void(const std::vector<std::string>&)>& take,
                          const std::string& what) {
    return app.add_option_function<std::vector<std::string>>(name, take, what)
        ->expected(1)
        ->allow_extra_args(false)
        ->take_all();
}

std::optional<int> parse(CLI::App& app, int argc, char** argv, const std::string& command) {
    set_help(app, std::make_shared<HelpFormatter>(24));
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {
            return app.exit(error);
        }
        return fail(std::string(error.what()) + "; " + command + " --help shows the usage");
    }
    return std::nullopt;
}

std::string working_directory() {
    char* path = getcwd(nullptr, 0);
    std::string result = path == nullptr ? "" : path;
    std::free(path);
    return result;
}

}  // namespace memlab::tools
