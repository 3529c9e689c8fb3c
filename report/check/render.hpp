// Renders an Outcome: text for a terminal, Markdown for a job summary, JUnit XML, annotations of
// GitHub Actions, SARIF for code scanners, JSON for scripts.
#pragma once

#include <string>
#include <vector>

#include "report/check/check.hpp"
#include "report/text/markup.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report::check {

struct View {
    const std::vector<Process>& processes;
    const Outcome& outcome;
    std::string working_directory;      ///< files below it are shown relative to it
    std::string version;                ///< of memlab-report
    std::vector<report::Lack> lacks{};  ///< of the run, beside those of its processes
};

/// Ends with a newline. Without problems and notes: those belong on stderr.
std::string render_text(const View& view, const report::Style& style, std::size_t top);

/// GitHub-flavoured Markdown, for a job summary. Ends with a newline.
std::string render_markdown(const View& view);

/// JUnit XML: a suite per process, a case per limit.
std::string render_junit(const View& view);

/// Workflow commands of GitHub Actions, one per line, at most ten: exceeded limits and problems.
std::string render_annotations(const View& view);

/// SARIF 2.1.0: a result per exceeded limit, at the line with the largest part of it.
std::string render_sarif(const View& view);

/// For scripts; docs/ci.md describes its members.
std::string render_json(const View& view);

/// `text` as the value of a property (`file=`), or as the message, of a workflow command.
std::string escaped_property(const std::string& text);
std::string escaped_message(const std::string& text);

/// `text` escaped for XML text and attributes; characters that XML does not allow become "?".
std::string escaped_xml(const std::string& text);

using report::escaped_markdown;

// ---- shared by several renderings --------------------------------------------------------------

/// "4.00 GiB", "147.00 MiB (+5.0%)", "-".
std::string limit_text(const Row& row);

/// "EXCEEDED by 14.19 MiB (9.5%)", "ok".
std::string verdict_text(const Row& row);

/// "peak_allocated on GPU 0: 164.19 MiB, 14.19 MiB above its limit of 150.00 MiB", with the
/// process in front where there are several.
std::string sentence(const View& view, const Row& row);

/// "64.00 MiB  train.cu:12  forward"; not escaped yet.
std::string responsible_text(const View& view, const Row& row, const Responsible& responsible);

/// "1 of 5 limits exceeded", "5 limits are kept".
std::string conclusion(const Outcome& outcome);

/// A line of source: where an exceeded limit is reported.
struct SourceLine {
    std::string file;  ///< relative when below the working directory
    bool relative = false;
    int line = 0;
};
/// The first responsible place with a source line; std::nullopt where there is none.
std::optional<SourceLine> source_line(const View& view, const Row& row);

}  // namespace memlab::report::check
