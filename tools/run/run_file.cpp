#include "tools/run/run_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "model/json_members.hpp"
#include "model/report_file.hpp"

namespace memlab::tools {

namespace {

using model::RunFile;

std::string host_name() {
    char name[HOST_NAME_MAX + 1] = "";
    gethostname(name, sizeof name - 1);
    return name;
}

/// Relative names for files in the folder, so that the folder can be moved.
std::string in_folder(const std::string& path, const std::string& folder) {
    return path.compare(0, folder.size(), folder) == 0 ? path.substr(folder.size()) : path;
}

std::optional<std::string> if_any(const std::string& text) {
    return text.empty() ? std::nullopt : std::optional(text);
}

/// None where there is no such file.
std::optional<std::string> if_exists(const std::string& path, const std::string& folder) {
    return file_exists(path) ? std::optional(in_folder(path, folder)) : std::nullopt;
}

RunFile::Recorded describe(const RunProcess& one, const std::string& folder) {
    const model::Process& process = one.process;
    return {.pid = static_cast<std::uint64_t>(one.files.pid),
            .parent_pid = process.parent_pid,
            .start_ticks = one.files.start_ticks,
            .executable = process.executable,
            .arguments = process.arguments,
            .host = process.host,
            .start_wall_ns = process.start_wall_ns,
            .duration_ns = process.duration_ns,
            .ended = one.running ? "running" : process.ended,
            .signal = if_any(process.signal),
            .exit_code = process.exit_code,
            .ranks = process.ranks,
            .report = if_exists(one.files.json, folder),
            .log = if_exists(one.files.log, folder),
            .recovered = one.recovered,
            .held_bytes = one.running ? std::optional(one.held_bytes) : std::nullopt};
}

/// The processes between memlab-run and the recorded ones. Only chains that lead to this process
/// count; a daemon's do not.
std::vector<RunFile::Ancestor> find_ancestors(const std::vector<RunProcess>& processes) {
    std::vector<RunFile::Ancestor> found;
    std::set<pid_t> known;
    for (const RunProcess& one : processes) {
        const std::vector<Ancestor>& chain = one.files.ancestors;
        std::size_t ours = 0;
        while (ours < chain.size() && chain[ours].pid != getpid()) {
            ++ours;
        }
        for (std::size_t i = 0; ours < chain.size() && i < ours; ++i) {
            if (known.insert(chain[i].pid).second) {
                found.push_back({static_cast<std::uint64_t>(chain[i].pid),
                                 static_cast<std::uint64_t>(chain[i + 1].pid), chain[i].command});
            }
        }
    }
    return found;
}

class RunFileWriter : public model::JsonMembers<RunFileWriter> {
    using JsonMembers::JsonMembers;
};

}  // namespace

std::string render_run_file(RunFile run, const std::string& folder, const LaunchResult& result,
                            const std::vector<RunProcess>& processes) {
    run.host = host_name();
    run.pid = static_cast<std::uint64_t>(getpid());
    run.command_pid = static_cast<std::uint64_t>(result.pid);
    const int status = result.wait_status;
    if (WIFEXITED(status)) {
        run.exit_code = static_cast<std::uint64_t>(WEXITSTATUS(status));
    } else if (WIFSIGNALED(status)) {
        run.signal = if_any(signal_name(WTERMSIG(status)));
    }
    for (const RunProcess& one : processes) {
        run.processes.push_back(describe(one, folder));
    }
    run.ancestors = find_ancestors(processes);
    model::StringSink sink;
    model::JsonOutput json(sink);
    RunFileWriter(json).write(run);
    json.finish();
    return std::move(sink.text);
}

std::string write_run_file(const std::string& folder, const std::string& text) {
    constexpr int max_tries = 1000;
    std::string host = host_name();
    for (char& c : host) {
        c = c == '/' ? '_' : c;
    }
    const std::string stem = folder + "memlab-run." + host + "." + std::to_string(getpid());
    int error = EEXIST;
    for (int attempt = 1; error == EEXIST && attempt <= max_tries; ++attempt) {
        const std::string path =
            stem + (attempt == 1 ? "" : "." + std::to_string(attempt)) + ".json";
        error = model::write_text(text, path, model::Existing::refuse).error_number;
    }
    return error == 0 ? std::string()
                      : "cannot write " + stem + ".json (" + std::strerror(error) +
                            "); the reports are complete without it";
}

std::string run_folder(const std::string& pattern) {
    if (pattern.empty() || pattern.back() != '/') {
        return {};
    }
    std::string folder;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] != '%') {
            folder += pattern[i];
            continue;
        }
        const char what = ++i < pattern.size() ? pattern[i] : '%';
        if (what == 'h') {
            folder += host_name();
        } else if (what == '%') {
            folder += '%';
        } else {
            return {};  // one folder per process or rank
        }
    }
    return folder;
}

std::string as_folder_if_there(const std::string& pattern) {
    const std::string folder = run_folder(pattern + "/");
    std::error_code problem;
    return std::filesystem::is_directory(folder, problem)
               ? std::filesystem::path(pattern + "/").lexically_normal().string()
               : pattern;
}

}  // namespace memlab::tools
