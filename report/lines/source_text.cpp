#include "report/lines/source_text.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

namespace memlab::report {

namespace {

constexpr std::int64_t max_source = 64LL << 20;
constexpr int context_lines = 3;

/// Columns before the text; -1 for a blank line.
int indentation(const std::string& line) {
    const std::size_t at = line.find_first_not_of(' ');
    return at == std::string::npos ? -1 : static_cast<int>(at);
}

/// Expands tabs to multiples of eight columns.
std::string without_tabs(std::string_view line) {
    std::string result;
    for (const char c : line) {
        if (c == '\t') {
            result.append(8 - result.size() % 8, ' ');
        } else if (c != '\r') {
            result += c;
        }
    }
    return result;
}

bool starts_function(const std::string& line) {
    const std::string_view text = std::string_view(line).substr(
        std::min(line.size(), static_cast<std::size_t>(std::max(indentation(line), 0))));
    return text.starts_with("def ") || text.starts_with("async def ") || text.starts_with("class ");
}

/// The last line of the head of a function: that of the colon outside of brackets. Brackets in
/// strings are not recognized; they are rare there and only extend the function.
int find_head_end(const SourceText& source, int first) {
    int depth = 0;
    for (int line = first; line <= static_cast<int>(source.lines.size()); ++line) {
        for (const char c : source.lines[static_cast<std::size_t>(line) - 1]) {
            if (c == '(' || c == '[' || c == '{') {
                ++depth;
            } else if (c == ')' || c == ']' || c == '}') {
                --depth;
            } else if (c == '#') {
                break;
            } else if (c == ':' && depth <= 0) {
                return line;
            }
        }
    }
    return first;
}

bool is_there(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0;
}

}  // namespace

std::string find_source(const std::string& path, const std::vector<std::string>& folders) {
    if (is_there(path)) {
        return path;
    }
    for (const std::string& folder : folders) {
        std::size_t from = 0;
        while (from != std::string::npos) {
            std::string candidate = folder + "/" + path.substr(from);
            if (is_there(candidate)) {
                return candidate;
            }
            const std::size_t slash = path.find('/', from);
            from = slash == std::string::npos ? slash : slash + 1;
        }
    }
    return path;
}

SourceText read_source(const std::string& path) {
    SourceText result;
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
        result.problem = errno == ENOENT ? "no such file here" : std::strerror(errno);
        return result;
    }
    if (!S_ISREG(status.st_mode) || status.st_size > max_source) {
        result.problem = "not a source file";
        return result;
    }
    result.modified_ns =
        std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
    std::ifstream file(path, std::ios::binary);
    std::string line;
    while (std::getline(file, line)) {
        if (line.find('\0') != std::string::npos) {
            result.lines.clear();
            result.problem = "not a source file";
            return result;
        }
        result.lines.push_back(without_tabs(line));
    }
    if (file.bad() || (result.lines.empty() && status.st_size != 0)) {
        result.problem = "cannot be read";
    }
    return result;
}

LineRange python_function(const SourceText& source, int first_line, int covered) {
    const int size = static_cast<int>(source.lines.size());
    const auto text = [&](int line) -> const std::string& {
        return source.lines[static_cast<std::size_t>(line) - 1];
    };
    if (first_line < 1 || first_line > size) {
        return {covered, covered};
    }
    int head = first_line;  // decorators come before it
    while (head < size && head < covered && !starts_function(text(head))) {
        ++head;
    }
    if (!starts_function(text(head))) {
        return {first_line, std::min(std::max(first_line, covered), size)};  // a module, a lambda
    }
    const int level = indentation(text(head));
    int last = find_head_end(source, head);
    for (int line = last + 1; line <= size; ++line) {
        const int indent = indentation(text(line));
        if (indent > level || (indent >= 0 && line <= covered)) {
            last = line;
        } else if (indent >= 0) {
            break;
        }
    }
    return {first_line, std::min(std::max(last, covered), size)};
}

LineRange surroundings(const SourceText& source, int first, int last) {
    const int size = static_cast<int>(source.lines.size());
    const auto blank = [&](int line) {
        return indentation(source.lines[static_cast<std::size_t>(line) - 1]) < 0;
    };
    LineRange range{std::clamp(first, 1, std::max(size, 1)), std::min(last, size)};
    for (int i = 0; i < context_lines && range.first > 1 && !blank(range.first - 1); ++i) {
        --range.first;
    }
    for (int i = 0; i < context_lines && range.last < size && !blank(range.last + 1); ++i) {
        ++range.last;
    }
    return range;
}

}  // namespace memlab::report
