// Output for CI servers: job summary, JUnit XML, annotations. Text from a recording is escaped for
// each format, so it cannot end a cell, an element or a command.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "report/check/render.hpp"
#include "report/device_label.hpp"
#include "report/text/units.hpp"

namespace memlab::report::check {

namespace {

std::string with_replaced(const std::string& text, std::string_view special,
                          const auto& replacement) {
    std::string out;
    for (const char c : text) {
        if (special.find(c) != std::string_view::npos) {
            out += replacement(c);
        } else {
            out += c;
        }
    }
    return out;
}

std::string percent_code(char c) {
    static constexpr std::string_view digits = "0123456789ABCDEF";
    const auto byte = static_cast<unsigned char>(c);
    return {'%', digits[byte >> 4], digits[byte & 15]};
}

/// One line of UTF-8 without control characters.
std::string clean(const std::string& text) {
    return report::printable(text, false);
}

std::string where(const View& view, const Row& row, std::size_t most) {
    std::string text;
    for (std::size_t i = 0; i < std::min(most, row.measured.responsible.size()); ++i) {
        text += text.empty() ? "" : "; ";
        text += responsible_text(view, row, row.measured.responsible[i]);
    }
    return text;
}

/// "GPU 0", "train.py, GPU 0".
std::string whose(const View& view, const Row& row) {
    if (is_of_run(row.metric)) {
        return "all ranks";
    }
    std::string text = view.processes.size() > 1 ? view.processes[row.process].name : "";
    if (row.measured.device) {
        text += (text.empty() ? "" : ", ") +
                report::label_of(*view.processes[row.process].summary.report, *row.measured.device);
    }
    return text;
}

class Junit {
  public:
    explicit Junit(const View& view) : view_(view) {}

    std::string render() {
        out_ = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
        std::size_t tests = view_.outcome.problems.size();
        std::size_t failures = 0;
        std::string suites;
        for (std::size_t p = 0; p < view_.processes.size(); ++p) {
            suites += suite(p, &tests, &failures);
        }
        const std::string errors = std::to_string(view_.outcome.problems.size());
        out_ += "<testsuites name=\"memlab\" tests=\"" + std::to_string(tests) + "\" failures=\"" +
                std::to_string(failures) + "\" errors=\"" + errors + "\">\n" + suites;
        if (!view_.outcome.problems.empty()) {
            out_ += " <testsuite name=\"memlab\" tests=\"" + errors +
                    "\" failures=\"0\" errors=\"" + errors + "\" skipped=\"0\">\n";
            for (std::size_t i = 0; i < view_.outcome.problems.size(); ++i) {
                // The same in each build: servers follow a case by its name.
                out_ += "  <testcase classname=\"memlab\" name=\"everything could be checked" +
                        (i == 0 ? std::string() : " (" + std::to_string(i + 1) + ")") +
                        "\">\n   <error message=\"" + escaped_xml(view_.outcome.problems[i]) +
                        "\"/>\n  </testcase>\n";
            }
            out_ += " </testsuite>\n";
        }
        return out_ + "</testsuites>\n";
    }

  private:
    /// The figures are properties of the suite: the schema that Jenkins holds files to
    /// (junit-10.xsd) has none of a case.
    std::string suite(std::size_t process, std::size_t* tests, std::size_t* failures) const {
        std::string cases;
        std::string figures;
        std::size_t count = 0;
        std::size_t failed = 0;
        std::size_t skipped = 0;
        const std::string name = escaped_xml(view_.processes[process].name);
        std::map<std::string, int> titles;
        for (const Row& row : view_.outcome.rows) {
            if (row.process != process || !row.limit || row.verdict == Verdict::unknown) {
                continue;  // unknown: listed among the problems
            }
            ++count;
            std::string title = name_of(row.metric, row.subject);
            if (row.measured.device) {
                title += " on " + report::label_of(*view_.processes[process].summary.report,
                                                   *row.measured.device);
            }
            // A name is the same in each build, wherever the limit was given: servers follow a case
            // by it. Only the second limit of one figure has to differ.
            const int times = ++titles[title];
            title += times == 1 ? "" : " (limit " + std::to_string(times) + ")";
            figures += properties(title, row);
            cases += "  <testcase classname=\"memlab." + name + "\" name=\"" + escaped_xml(title) +
                     "\">\n";
            if (row.verdict == Verdict::exceeded) {
                ++failed;
                cases += "   <failure message=\"" + escaped_xml(sentence(view_, row)) + "\">";
                for (const Responsible& each : row.measured.responsible) {
                    cases += escaped_xml(responsible_text(view_, row, each)) + "\n";
                }
                cases += "</failure>\n";
            } else if (row.verdict != Verdict::kept) {
                ++skipped;
                cases += "   <skipped message=\"" + escaped_xml(name_of(row.verdict)) + "\"/>\n";
            } else {
                cases += "   <system-out>" + escaped_xml(sentence(view_, row)) + "</system-out>\n";
            }
            cases += "  </testcase>\n";
        }
        *tests += count;
        *failures += failed;
        return " <testsuite name=\"" + name + "\" tests=\"" + std::to_string(count) +
               "\" failures=\"" + std::to_string(failed) + "\" errors=\"0\" skipped=\"" +
               std::to_string(skipped) + "\">\n" +
               (figures.empty() ? figures : "  <properties>\n" + figures + "  </properties>\n") +
               cases + " </testsuite>\n";
    }

    /// What was measured, as a number in bytes or a count, and as text; and the limit. Their names
    /// begin with that of the case.
    static std::string properties(const std::string& title, const Row& row) {
        const auto property = [&title](const char* name, const std::string& value) {
            return "   <property name=\"" + escaped_xml(title + ": " + name) + "\" value=\"" +
                   escaped_xml(value) + "\"/>\n";
        };
        const Unit unit = info(row.metric).unit;
        const Figure measured = row.measured.figure;
        const bool known = row.verdict == Verdict::kept || row.verdict == Verdict::exceeded;
        return (known ? property("measured", plain_number(measured)) +
                            property("measured_text", figure_text(measured, unit))
                      : std::string()) +
               property("limit", limit_text(row)) + property("limited_by", row.limit->origin);
    }

    static std::string plain_number(Figure figure) {
        if (figure.is_whole() && figure >= Figure()) {
            return std::to_string(figure.as_whole());
        }
        std::array<char, 64> text{};
        std::snprintf(text.data(), text.size(), "%.6f", figure.as_double());
        return text.data();
    }

    const View& view_;
    std::string out_;
};

}  // namespace

std::string escaped_property(const std::string& text) {
    return with_replaced(text, "%\r\n:,", percent_code);
}

std::string escaped_message(const std::string& text) {
    return with_replaced(text, "%\r\n", percent_code);
}

std::string escaped_xml(const std::string& text) {
    std::string safe = clean(text);
    // XML does not allow U+FFFE and U+FFFF.
    for (const std::string_view none : {"\xef\xbf\xbe", "\xef\xbf\xbf"}) {
        for (std::size_t at = safe.find(none); at != std::string::npos; at = safe.find(none)) {
            safe.replace(at, none.size(), "?");
        }
    }
    return with_replaced(safe, "&<>\"'", [](char c) -> std::string {
        switch (c) {
            case '&':
                return "&amp;";
            case '<':
                return "&lt;";
            case '>':
                return "&gt;";
            case '"':
                return "&quot;";
            default:
                return "&#39;";
        }
    });
}

std::string render_markdown(const View& view) {
    const int code = view.outcome.exit_code();
    std::string out = "### memlab: ";
    out += code == 0 ? "✅ " : "❌ ";
    out += conclusion(view.outcome) + "\n\n";
    if (!view.outcome.rows.empty()) {
        out += "| | | limit | measured | verdict | where |\n|---|---|--:|--:|---|---|\n";
    }
    for (const Row& row : view.outcome.rows) {
        const bool exceeded = row.verdict == Verdict::exceeded;
        const std::string verdict = escaped_markdown(verdict_text(row));
        out += "| " + escaped_markdown(whose(view, row));
        out += " | " + escaped_markdown(name_of(row.metric, row.subject));
        out += " | " + escaped_markdown(limit_text(row));
        out += " | " + escaped_markdown(figure_text(row.measured.figure, info(row.metric).unit));
        out += " | " + (exceeded ? "**" + verdict + "**" : verdict);
        out += " | " + escaped_markdown(exceeded ? where(view, row, 3) : "") + " |\n";
    }
    for (const auto* list : {&view.outcome.problems, &view.outcome.notes}) {
        for (const std::string& text : *list) {
            out += "\n- " + escaped_markdown(text);
        }
    }
    if (!view.outcome.problems.empty() || !view.outcome.notes.empty()) {
        out += "\n";
    }
    return out + "\n";
}

std::string render_junit(const View& view) {
    return Junit(view).render();
}

std::string render_annotations(const View& view) {
    constexpr std::size_t max_shown = 10;  // GitHub shows no more per step
    std::vector<std::string> lines;
    for (const Row& row : view.outcome.rows) {
        if (row.verdict != Verdict::exceeded) {
            continue;
        }
        std::string line = "::error ";
        const std::optional<SourceLine> source = source_line(view, row);
        if (source && source->relative) {
            line += "file=" + escaped_property(clean(source->file)) +
                    ",line=" + std::to_string(source->line) + ",";
        }
        line += "title=" + escaped_property(clean("memlab: " + name_of(row.metric, row.subject)));
        std::string message = clean(sentence(view, row));
        for (std::size_t i = 0; i < std::min<std::size_t>(3, row.measured.responsible.size());
             ++i) {
            message += "\n" + clean(responsible_text(view, row, row.measured.responsible[i]));
        }
        lines.push_back(line + "::" + escaped_message(message));
    }
    for (const std::string& problem : view.outcome.problems) {
        lines.push_back("::error title=memlab::" + escaped_message(clean(problem)));
    }
    if (lines.size() > max_shown) {
        const std::size_t more = lines.size() - (max_shown - 1);
        lines.resize(max_shown - 1);
        lines.push_back("::error title=memlab::" + std::to_string(more) +
                        " more; memlab-report check lists them all");
    }
    std::string out;
    for (const std::string& line : lines) {
        out += line + "\n";
    }
    return out;
}

}  // namespace memlab::report::check
