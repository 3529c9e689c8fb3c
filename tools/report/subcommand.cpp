#include "tools/report/subcommand.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <new>
#include <numeric>

#include "tools/diagnostics.hpp"
#include "tools/help_formatter.hpp"

namespace memlab::tools {

namespace {

/// See inspect(); null: none.
const std::function<void(const CLI::App&)>* inspector = nullptr;

/// Levenshtein's distance.
std::size_t distance(const std::string& a, const std::string& b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row.back();
}

/// "; did you mean --sort?" for an option that there is not, else empty.
std::string suggestion(const CLI::App& app, int argc, char** argv) {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) {
            names.push_back("--" + name);
        }
    }
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        const std::string word = argument.substr(0, argument.find('='));
        if (word.starts_with("--") && std::find(names.begin(), names.end(), word) == names.end()) {
            const std::string name = closest(word, names);
            return name.empty() ? "" : "; did you mean " + name + "?";
        }
    }
    return "";
}

/// CLI11's message in plain words.
std::string message_of(const CLI::ParseError& error, const CLI::App& app, int argc, char** argv) {
    std::string text = error.what();
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
        const std::size_t at_most = text.find(": At Most 1 required but received ");
        if (at_most != std::string::npos) {
            return text.substr(0, at_most) + ": one is taken here, " +
                   text.substr(text.rfind(' ') + 1) + " were given";
        }
    }
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
        text += suggestion(app, argc, argv);
    }
    return text;
}

}  // namespace

void inspect(const std::function<void(const CLI::App&)>& visit, const std::function<void()>& run) {
    inspector = &visit;
    try {
        run();
    } catch (const Ended&) {  // by parse()
    }
    inspector = nullptr;
}

std::string closest(const std::string& word, const std::vector<std::string>& names) {
    std::string best;
    std::size_t least = std::max<std::size_t>(word.size() / 3, 1) + 1;
    for (const std::string& name : names) {
        const bool begins = word.size() >= 3 && name.starts_with(word);
        const std::size_t away = begins ? 1 : distance(word, name);
        if (away < least) {
            least = away;
            best = name;
        }
    }
    return best;
}

int fail(const std::string& what) {
    std::cout.flush();
    print_diagnostic(report::printable(what, false));
    return exit_bad_input;
}

int with_memory_for(const std::string& file, const std::function<int()>& run, const char* what) {
    try {
        return run();
    } catch (const std::bad_alloc&) {
        return fail(file + ": needs more memory than there is; " + what + " on a larger machine");
    }
}

int flush_output(int code) {
    std::cout.flush();
    return std::cout ? code : fail("cannot write to standard output; is the disk full?");
}

void add_style_options(CLI::App& app, StyleOptions& style) {
    app.add_option("--color", style.color, "auto (default: on a terminal), always or never")
        ->type_name("WHEN")
        ->check(one_of({"auto", "always", "never"}));
    app.add_flag("--ascii", style.ascii, "Draw with ASCII characters only");
    app.add_option("--width", style.width,
                   "Lines of at most N columns, 40 at least (default: the terminal's width; "
                   "unlimited in a pipe or file)")
        ->type_name("N")
        ->check(check_whole_number);
}

report::Style make_style(const StyleOptions& style) {
    const report::ColorMode mode = style.color == "always"  ? report::ColorMode::always
                                   : style.color == "never" ? report::ColorMode::never
                                                            : report::ColorMode::automatic;
    constexpr std::size_t most = report::unlimited_width;
    report::Style result = report::style_for(STDOUT_FILENO, mode, style.ascii,
                                             static_cast<int>(std::min(style.width, most)));
    if (style.uncut) {
        result.line_width = report::unlimited_width;
    }
    return result;
}

std::string check_whole_number(const std::string& text) {
    if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) {
        return "takes a whole number, not " + text;
    }
    return text.size() < 10 ? std::string() : "takes a whole number up to 999999999, not " + text;
}

std::string alternatives(const std::vector<std::string>& words) {
    std::string list;
    for (std::size_t i = 0; i < words.size(); ++i) {
        list.append(i == 0 ? "" : i + 1 == words.size() ? " or " : ", ").append(words[i]);
    }
    return list;
}

std::function<std::string(const std::string&)> one_of(const std::vector<std::string>& words) {
    return [words](const std::string& text) {
        const bool known = std::find(words.begin(), words.end(), text) != words.end();
        return known ? std::string() : "takes " + alternatives(words) + ", not " + text;
    };
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

void parse(CLI::App& app, int argc, char** argv) {
    set_help(app, std::make_shared<HelpFormatter>(24));
    if (inspector != nullptr) {
        (*inspector)(app);
        throw Ended{EXIT_SUCCESS};
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        throw Ended{error.get_exit_code() == 0 ? app.exit(error)
                                               : fail(message_of(error, app, argc, argv) + "; " +
                                                      app.get_name() + " --help shows the usage")};
    }
}

std::string working_directory() {
    char* path = getcwd(nullptr, 0);
    std::string result = path == nullptr ? "" : path;
    std::free(path);
    return result;
}

}  // namespace memlab::tools
