#include "tools/run/run_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <set>

#include "model/json_output.hpp"
#include "model/report_file.hpp"

namespace memlab::tools {

namespace {

using model::JsonOutput;

std::string host_name() {
    char name[HOST_NAME_MAX + 1] = "";
    gethostname(name, sizeof name - 1);
    return name;
}

/// Relative names for files in the folder, so that the folder can be moved.
std::string in_folder(const std::string& path, const std::string& folder) {
    return path.compare(0, folder.size(), folder) == 0 ? path.substr(folder.size()) : path;
}

void string_list(JsonOutput& json, const std::vector<std::string>& texts) {
    json.begin_array();
    for (const std::string& text : texts) {
        json.string(text);
    }
    json.end_array();
}

template <class Pairs>
void string_object(JsonOutput& json, const Pairs& pairs) {
    json.begin_object();
    for (const auto& [name, value] : pairs) {
        json.member(name, value);
    }
    json.end_object();
}

void end_of(JsonOutput& json, const std::string& signal, const std::int64_t* exit_code) {
    json.key("signal");
    signal.empty() ? json.null() : json.string(signal);
    json.key("exit_code");
    exit_code == nullptr ? json.null() : json.number(*exit_code);
}

void write_process(JsonOutput& json, const RunProcess& one, const std::string& folder) {
    const model::Process& process = one.process;
    json.new_line();
    json.begin_object();
    json.member("pid", one.files.pid);
    json.member("parent_pid", process.parent_pid);
    json.member("start_ticks", one.files.start_ticks);
    json.member("executable", process.executable);
    json.key("arguments");
    string_list(json, process.arguments);
    json.member("host", process.host);
    json.member("start_wall_ns", process.start_wall_ns);
    json.member("duration_ns", process.duration_ns);
    json.member("ended", one.running ? "running" : process.ended.c_str());
    const std::int64_t code = static_cast<std::int64_t>(process.exit_code.value_or(0));
    end_of(json, process.signal, process.exit_code ? &code : nullptr);
    json.key("ranks");
    string_object(json, process.ranks);
    const bool has_report = file_exists(one.files.json);
    json.key("report");
    has_report ? json.string(in_folder(one.files.json, folder)) : json.null();
    json.key("log");
    file_exists(one.files.log) ? json.string(in_folder(one.files.log, folder)) : json.null();
    json.member("recovered", one.recovered);
    json.key("held_bytes");
    one.running ? json.number(one.held_bytes) : json.null();
    json.end_object();
}

/// The processes between memlab-run and the recorded ones. Only chains that lead to this process
/// count; a daemon's do not.
void write_ancestors(JsonOutput& json, const std::vector<RunProcess>& processes) {
    std::set<pid_t> written;
    for (const RunProcess& one : processes) {
        const std::vector<Ancestor>& chain = one.files.ancestors;
        std::size_t ours = 0;
        while (ours < chain.size() && chain[ours].pid != getpid()) {
            ++ours;
        }
        for (std::size_t i = 0; ours < chain.size() && i < ours; ++i) {
            if (!written.insert(chain[i].pid).second) {
                continue;
            }
            json.new_line();
            json.begin_object();
            json.member("pid", chain[i].pid);
            json.member("parent_pid", chain[i + 1].pid);
            json.member("command", chain[i].command);
            json.end_object();
        }
    }
}

}  // namespace

std::string render_run_file(const RunDescription& run, const LaunchResult& result,
                            const std::vector<RunProcess>& processes) {
    model::StringSink sink;
    JsonOutput json(sink);
    json.begin_object();
    json.member("format", "memlab-run");
    json.member("version", 1);
    json.member("memlab_version", run.memlab_version);
    json.member("host", host_name());
    json.member("pid", getpid());
    json.key("command");
    string_list(json, run.command);
    json.member("directory", run.working_directory);
    json.member("start_wall_ns", run.start_wall_ns);
    json.member("end_wall_ns", run.end_wall_ns);
    json.member("command_pid", result.pid);
    const int status = result.wait_status;
    const std::int64_t code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    end_of(json, WIFSIGNALED(status) ? signal_name(WTERMSIG(status)) : "",
           WIFEXITED(status) ? &code : nullptr);
    json.key("replaced");
    string_object(json, run.replaced);
    json.new_line();
    json.key("processes");
    json.begin_array();
    for (const RunProcess& one : processes) {
        write_process(json, one, run.folder);
    }
    json.end_array();
    json.new_line();
    json.key("ancestors");
    json.begin_array();
    write_ancestors(json, processes);
    json.end_array();
    json.end_object();
    json.finish();
    return std::move(sink.text);
}

std::string write_run_file(const RunDescription& run, const std::string& text) {
    constexpr int max_tries = 1000;
    std::string host = host_name();
    for (char& c : host) {
        c = c == '/' ? '_' : c;
    }
    const std::string stem = run.folder + "memlab-run." + host + "." + std::to_string(getpid());
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

}  // namespace memlab::tools
