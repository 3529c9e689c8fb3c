#include "report/html/page_sources.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "report/lines/source_text.hpp"
#include "report/text/names.hpp"

namespace memlab::report {

namespace {

constexpr int lines_around = 8;
constexpr std::size_t max_lines = 20'000;
constexpr std::size_t max_line = 300;  ///< bytes; of a longer one the beginning

bool has_name_of_a_source(std::string_view path) {
    constexpr std::array<std::string_view, 26> endings = {
        "c",   "cc",  "cpp", "cxx", "c++", "cu", "cuh", "h",  "hh", "hpp",  "hxx", "inl", "inc",
        "ipp", "tpp", "py",  "pyx", "pxd", "f",  "f90", "rs", "go", "java", "jl",  "hip", "ptx"};
    const std::string name = base_name(path);
    const std::size_t dot = name.rfind('.');
    return dot != std::string::npos && dot != 0 &&
           std::find(endings.begin(), endings.end(), std::string_view(name).substr(dot + 1)) !=
               endings.end();
}

/// The ranges of lines around those wanted, apart from each other.
std::vector<LineRange> ranges_around(const std::set<int>& lines, int last) {
    std::vector<LineRange> ranges;
    for (const int line : lines) {
        if (line > last) {
            break;
        }
        const int first = std::max(line - lines_around, 1);
        const int end = line > last - lines_around ? last : line + lines_around;
        if (!ranges.empty() && first <= ranges.back().last + 1) {
            ranges.back().last = end;
        } else {
            ranges.push_back({first, end});
        }
    }
    return ranges;
}

}  // namespace

std::vector<PageSource> read_page_sources(const WantedLines& wanted,
                                          const std::vector<std::string>& folders,
                                          std::uint64_t recorded_wall_ns,
                                          std::vector<std::string>& newer) {
    std::vector<PageSource> sources;
    std::size_t left = max_lines;
    for (const auto& [path, lines] : wanted) {
        if (!has_name_of_a_source(path)) {
            continue;
        }
        const SourceText text = read_source(find_source(path, folders));
        if (!text.problem.empty()) {
            continue;
        }
        if (recorded_wall_ns != 0 && std::cmp_greater(text.modified_ns, recorded_wall_ns)) {
            newer.push_back(path);
        }
        for (const LineRange& range : ranges_around(lines, static_cast<int>(text.lines.size()))) {
            PageSource source{path, range.first, {}};
            for (int line = range.first; line <= range.last && left != 0; ++line, --left) {
                source.lines.push_back(
                    text.lines[static_cast<std::size_t>(line) - 1].substr(0, max_line));
            }
            if (!source.lines.empty()) {
                sources.push_back(std::move(source));
            }
        }
    }
    return sources;
}

}  // namespace memlab::report
