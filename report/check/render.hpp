// The gate's outcome for everybody who reads it: a terminal, a job summary, a CI server's list of
// tests, annotations beside the code, a code scanner, a script. All say the same, from one Outcome.
#pragma once

#include <string>
#include <vector>

#include "report/check/check.hpp"
#include "report/text/terminal.hpp"

namespace memlab::check {

struct View {
    const std::vector<Process>& processes;
    const Outcome& outcome;
    std::string working_directory;  ///< files below it are shown relative to it
    std::string version;            ///< of memlab-report
};

/// Ends with a newline. Problems and notes are not in it: they belong on stderr.
std::string render_text(const View& view, const report::Style& style, std::size_t top);

/// GitHub-flavoured Markdown, for a job summary. Ends with a newline.
std::string render_markdown(const View& view);

/// JUnit's XML: a suite per process, a case per limit.
std::string render_junit(const View& view);

/// Workflow commands of GitHub Actions, a line each, at most ten: what is exceeded, and problems.
std::string render_annotations(const View& view);

/// SARIF 2.1.0: a result per limit that is exceeded, at the line that is responsible for most of
/// it.
std::string render_sarif(const View& view);

/// For scripts; docs/ci.md describes its members.
std::string render_json(const View& view);

/// `text` as the value of a property (`file=`), or as the message, of a workflow command.
std::string escaped_property(const std::string& text);
std::string escaped_message(const std::string& text);

/// `text` between XML tags and in attributes: what XML cannot hold becomes "?".
std::string escaped_xml(const std::string& text);

/// `text` in a cell of a Markdown table.
std::string escaped_markdown(const std::string& text);

// ---- what several renderings have in common
// ------------------------------------------------------

/// "4.00 GiB", "147.00 MiB (+5.0%)", "-".
std::string limit_text(const Row& row);

/// "EXCEEDED by 14.19 MiB (9.5%)", "ok".
std::string verdict_text(const Row& row);

/// "peak_allocated on GPU 0: 164.19 MiB, 14.19 MiB above its limit of 150.00 MiB", with the
/// process in front where there are several.
std::string sentence(const View& view, const Row& row);

/// "64.00 MiB  train.cu:12  forward": not printable yet.
std::string responsible_text(const View& view, const Row& row, const Responsible& responsible);

/// "1 of 5 limits is exceeded", "5 limits are kept".
std::string conclusion(const Outcome& outcome);

/// The first line of source that is responsible, as a path below the working directory; null where
/// there is none.
struct SourceLine {
    std::string file;  ///< relative where it lies below the working directory
    bool relative = false;
    int line = 0;
};
std::optional<SourceLine> source_line(const View& view, const Row& row);

}  // namespace memlab::check
