#include "tools/doctor/small_files.hpp"

#include <dirent.h>

#include <algorithm>
#include <fstream>
#include <memory>
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

ProcessStat process_stat(const std::string& folder) {
    constexpr std::size_t most_fields = 20;
    const std::string text = whole_file(folder + "/stat");
    ProcessStat stat;
    const std::size_t open = text.find('(');
    const std::size_t end = text.rfind(')');
    if (open == std::string::npos || end == std::string::npos || end < open) {
        return stat;
    }
    stat.name = text.substr(open + 1, end - open - 1);
    std::istringstream rest(text.substr(end + 1));
    for (std::string field; stat.fields.size() < most_fields && rest >> field;) {
        stat.fields.push_back(field);
    }
    return stat;
}

std::string command_line_of(const std::string& folder, bool with_arguments) {
    std::string command = whole_file(folder + "/cmdline");
    if (!with_arguments) {
        command.resize(std::min(command.size(), command.find('\0')));
    }
    while (!command.empty() && command.back() == '\0') {
        command.pop_back();
    }
    std::replace(command.begin(), command.end(), '\0', ' ');
    return command;
}

std::vector<std::string> entries_of(const std::string& folder) {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), &closedir);
    for (const dirent* each = nullptr;
         open != nullptr && (each = readdir(open.get())) != nullptr;) {
        names.emplace_back(each->d_name);
    }
    return names;
}

}  // namespace memlab::tools
