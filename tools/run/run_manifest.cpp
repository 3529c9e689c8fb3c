#include "tools/run/run_manifest.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "model/manifest_field.hpp"
#include "tools/doctor/small_files.hpp"

namespace memlab::tools {

namespace {

template <class Number>
bool parse_number(std::string_view text, Number* number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
    return error == std::errc() && end == text.data() + text.size();
}

std::vector<std::string_view> split(std::string_view line) {
    std::vector<std::string_view> fields;
    while (true) {
        const std::size_t tab = line.find('\t');
        fields.push_back(line.substr(0, tab));
        if (tab == std::string_view::npos) {
            return fields;
        }
        line.remove_prefix(tab + 1);
    }
}

bool parse_line(std::string_view line, RunFiles* files) {
    const std::vector<std::string_view> fields = split(line);
    if (fields.size() < 3 || !parse_number(fields[0], &files->pid) || files->pid <= 0 ||
        fields[2].empty()) {
        return false;
    }
    files->log = model::unescaped_field(fields[1]);
    files->json = model::unescaped_field(fields[2]);
    if (fields.size() >= 5 && (!parse_number(fields[3], &files->pid_namespace) ||
                               !parse_number(fields[4], &files->start_ticks))) {
        files->pid_namespace = files->start_ticks = 0;
    }
    for (std::size_t i = 5; i < fields.size(); ++i) {
        Ancestor ancestor;
        const std::size_t equals = fields[i].find('=');
        if (equals == std::string_view::npos ||
            !parse_number(fields[i].substr(0, equals), &ancestor.pid)) {
            break;
        }
        ancestor.command = fields[i].substr(equals + 1);
        files->ancestors.push_back(std::move(ancestor));
    }
    return true;
}

}  // namespace

RunManifest::RunManifest() {
    const char* folder = std::getenv("TMPDIR");
    std::string name = folder == nullptr || folder[0] != '/' ? "/tmp" : folder;
    name += "/memlab-run.XXXXXX";
    const int fd = mkostemp(name.data(), O_CLOEXEC);
    if (fd < 0) {
        error_ = "cannot create " + name + " (" + std::strerror(errno) +
                 "); point TMPDIR to a folder that can be written to";
        return;
    }
    close(fd);
    path_ = name;
}

RunManifest::~RunManifest() {
    remove();
}

void RunManifest::remove() {
    if (!path_.empty()) {
        unlink(path_.c_str());
        path_.clear();
    }
}

std::vector<RunFiles> RunManifest::take() const {
    return parse_manifest(whole_file(path_));
}

bool file_exists(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0;
}

std::vector<RunFiles> parse_manifest(const std::string& text) {
    std::vector<RunFiles> all;
    std::size_t begin = 0;
    while (begin < text.size()) {
        const std::size_t end = text.find('\n', begin);
        if (end == std::string::npos) {
            break;  // incomplete: its writer died
        }
        RunFiles files;
        if (parse_line(std::string_view(text).substr(begin, end - begin), &files) &&
            std::find(all.begin(), all.end(), files) == all.end()) {
            all.push_back(std::move(files));
        }
        begin = end + 1;
    }
    return all;
}

void pass_on(const std::vector<RunFiles>& files, const std::string& manifest_path) {
    const int fd = open(manifest_path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) {
        return;  // the outer run has ended; ours is complete without it
    }
    for (const RunFiles& item : files) {
        std::string line = std::to_string(item.pid) + "\t" + model::escaped_field(item.log) + "\t" +
                           model::escaped_field(item.json) + "\t" +
                           std::to_string(item.pid_namespace) + "\t" +
                           std::to_string(item.start_ticks);
        for (const Ancestor& ancestor : item.ancestors) {
            line += "\t" + std::to_string(ancestor.pid) + "=" + ancestor.command;
        }
        line += "\n";
        if (write(fd, line.data(), line.size()) < 0) {
            break;
        }
    }
    close(fd);
}

}  // namespace memlab::tools
