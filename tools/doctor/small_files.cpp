#include "tools/doctor/small_files.hpp"

#include <fstream>
#include <sstream>

namespace memlab::tools {

std::string whole_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::string first_line(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string line;
    std::getline(file, line);
    return line;
}

std::string status_value(const std::string& process, std::string_view name) {
    std::istringstream lines(whole_file("/proc/" + process + "/status"));
    for (std::string line; std::getline(lines, line);) {
        if (line.compare(0, name.size(), name) == 0 && line.size() > name.size() &&
            line[name.size()] == ':') {
            const std::size_t value = line.find_first_not_of(" \t", name.size() + 1);
            return value == std::string::npos ? "" : line.substr(value);
        }
    }
    return {};
}

}  // namespace memlab::tools
