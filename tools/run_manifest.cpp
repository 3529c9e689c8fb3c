#include "tools/run_manifest.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace memlab::tools {

namespace {

bool parse_line(const std::string& line, RunFiles* files) {
    const std::size_t first = line.find('\t');
    const std::size_t second = line.find('\t', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) {
        return false;
    }
    const auto [end, error] = std::from_chars(line.data(), line.data() + first, files->pid);
    files->log = line.substr(first + 1, second - first - 1);
    files->json = line.substr(second + 1);
    return error == std::errc() && end == line.data() + first && files->pid > 0 &&
           !files->json.empty();
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
    std::ifstream file(path_, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return parse_manifest(text.str());
}

std::vector<RunFiles> parse_manifest(const std::string& text) {
    std::vector<RunFiles> all;
    std::size_t begin = 0;
    while (begin < text.size()) {
        const std::size_t end = text.find('\n', begin);
        if (end == std::string::npos) {
            break;  // not finished: its writer died
        }
        RunFiles files;
        if (parse_line(text.substr(begin, end - begin), &files) &&
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
        return;  // the outer run is gone; ours is complete without it
    }
    for (const RunFiles& item : files) {
        const std::string line =
            std::to_string(item.pid) + "\t" + item.log + "\t" + item.json + "\n";
        if (write(fd, line.data(), line.size()) < 0) {
            break;
        }
    }
    close(fd);
}

}  // namespace memlab::tools
