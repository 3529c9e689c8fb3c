#include "tools/doctor/environment.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string_view>

#include "report/text/units.hpp"
#include "tools/doctor/elf_file.hpp"
#include "tools/doctor/known_preloads.hpp"
#include "tools/doctor/small_files.hpp"

namespace memlab::tools {

namespace {

Finding preload_finding(const std::string& path, std::size_t place, const std::string& library,
                        const std::string& list) {
    Finding finding{Weight::fine, "preload " + std::to_string(place), path, ""};
    if (path == library) {
        finding.fact += " (memlab)";
        return finding;
    }
    finding.fact += list;
    if (const KnownPreload* known = known_preload(path)) {
        finding.weight = Weight::note;
        finding.fact += std::string(", ") + known->name;
        finding.advice = known->meaning;
    }
    const auto advise = [&finding](const std::string& text) {
        finding.weight = Weight::note;
        finding.advice += (finding.advice.empty() ? "" : " ") + text;
    };
    if (path.find('/') == std::string::npos || path.find('$') != std::string::npos) {
        finding.weight = Weight::note;  // the loader searches it
        return finding;
    }
    const auto file = ElfFile::open(path);
    if (file == nullptr || !file->is_x86_64()) {
        advise(file == nullptr ? "It cannot be read: the loader says so and ignores it."
                               : "It is for " + file->machine() + ": the loader ignores it.");
        return finding;
    }
    const bool wraps = file->exports("cuMemAlloc_v2") || file->exports("cuGetProcAddress") ||
                       file->exports("cuGetProcAddress_v2");
    if (wraps || file->exports("dlsym")) {
        advise(std::string(wraps ? "It wraps the CUDA driver" : "It wraps dlsym") +
               ": before memlab it sees the program's calls, after it memlab's calls of the "
               "driver.");
        if (file->exports("dlsym") && !file->imports("dlvsym")) {
            advise(
                "Keep it after memlab: it does not ask dlvsym for the next dlsym, so before memlab "
                "it "
                "would bypass memlab.");
        }
    }
    return finding;
}

void add_preloads(const std::string& library, const Variables& variables, Findings* out) {
    std::size_t place = 0;
    const auto add = [&](const std::string& text, const std::string& list) {
        std::size_t at = 0;
        while ((at = text.find_first_not_of(": \t\n", at)) != std::string::npos) {
            const std::size_t end = std::min(text.find_first_of(": \t\n", at), text.size());
            out->push_back(preload_finding(text.substr(at, end - at), ++place, library, list));
            at = end;
        }
    };
    add(variable(variables, "LD_PRELOAD"), "");
    add(whole_file("/etc/ld.so.preload"), " (/etc/ld.so.preload)");
    const std::string audit = variable(variables, "LD_AUDIT");
    if (!audit.empty()) {
        out->push_back({Weight::note, "LD_AUDIT", audit,
                        "An audit library may redirect symbols past memlab; unset it if "
                        "something is missed."});
    }
}

/// A tool among the processes that this one was started by; empty: none.
std::string tool_above() {
    constexpr std::array<std::string_view, 12> tools{
        "nsys",     "nsys-launcher",   "ncu", "nv-nsight-cu-cl", "compute-sanitiz", "cuda-gdb",
        "valgrind", "memcheck-amd64-", "rr",  "strace",          "ltrace",          "gdb"};
    std::string process = "self";
    for (int level = 0; level < 32 && !process.empty() && process != "0"; ++level) {
        std::string name = status_value(process, "Name");
        if (std::find(tools.begin(), tools.end(), name) != tools.end()) {
            return name;
        }
        process = status_value(process, "PPid");
    }
    return {};
}

void add_profilers(const std::string& library, const Variables& variables,
                   const interpose::Settings& settings, Findings* out) {
    const bool wanted =
        settings.audit || settings.kernels || settings.cupti == interpose::CuptiUse::on;
    const std::string injected = variable(variables, "CUDA_INJECTION64_PATH");
    const std::string tool = tool_above();
    const std::string holder = !injected.empty() ? "CUDA_INJECTION64_PATH=" + injected
                               : tool.empty()    ? ""
                                                 : tool;
    if (holder.empty()) {
        out->push_back({Weight::fine, "CUPTI",
                        wanted ? "free: memlab subscribes"
                               : "free; memlab does not use it (MEMLAB_AUDIT, MEMLAB_KERNELS)",
                        ""});
    } else {
        out->push_back({wanted ? Weight::limit : Weight::note, "CUPTI", "taken by " + holder,
                        wanted ? "CUPTI has one subscriber, and memlab leaves it to that tool: no "
                                 "audit, no kernels. Run them one after the other."
                               : "memlab does not use CUPTI here, so both work side by side."});
    }
    if (tool == "compute-sanitiz" || tool == "cuda-gdb") {
        out->push_back({Weight::limit, "debugger", tool,
                        "memlab records, but does not pool: a pool hides overruns."});
    }
    const std::string nvtx = variable(variables, "NVTX_INJECTION64_PATH");
    if (!nvtx.empty() && nvtx != library) {
        out->push_back({Weight::limit, "NVTX", nvtx,
                        "NVTX talks to one tool, and this one is not memlab: its ranges and names "
                        "are not in the report. Unset NVTX_INJECTION64_PATH, or use memlab.h."});
    }
}

void add_options(const interpose::LoadedSettings& loaded, Findings* out) {
    for (const std::string& problem : loaded.problems) {
        out->push_back({Weight::limit, "options", problem, ""});
    }
    if (loaded.settings.disabled) {
        out->push_back({Weight::blocked, "options", "MEMLAB_DISABLE=on",
                        "memlab is loaded and does nothing; unset it."});
    } else if (!loaded.settings.record) {
        out->push_back({Weight::limit, "options", "MEMLAB_RECORD=off",
                        "The pool serves the program, but nothing is recorded; unset it."});
    }
}

/// The folder that a pattern of names leads to, as far as it is known before the program runs.
std::string folder_of(const std::string& pattern) {
    const std::string known = pattern.substr(0, pattern.find('%'));
    const std::size_t slash = known.rfind('/');
    return slash == std::string::npos ? "." : known.substr(0, std::max<std::size_t>(slash, 1));
}

/// Whether a file can be made in the folder or, where it is missing, in what it would be made in.
bool can_write(std::string folder, std::string* at, int* error) {
    struct stat status {};
    while (stat(folder.c_str(), &status) != 0) {
        const std::size_t slash = folder.rfind('/');
        if (errno != ENOENT || slash == std::string::npos) {
            *error = errno;
            *at = folder;
            return false;
        }
        folder.resize(std::max<std::size_t>(slash, 1));
    }
    *at = folder;
    std::string name = folder + "/memlab-doctor.XXXXXX";
    const int fd = mkostemp(name.data(), O_CLOEXEC);
    *error = errno;
    if (fd < 0) {
        return false;
    }
    unlink(name.c_str());
    close(fd);
    return true;
}

bool is_working_directory(const std::string& folder) {
    struct stat one {};
    struct stat other {};
    return stat(folder.c_str(), &one) == 0 && stat(".", &other) == 0 &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

Finding output_finding(const Variables& variables) {
    const std::string pattern = variable(variables, "MEMLAB_OUTPUT");
    const std::string folder = folder_of(pattern);
    Finding finding{Weight::fine, "output", pattern, ""};
    std::string at;
    int error = 0;
    if (can_write(folder, &at, &error)) {
        struct statvfs space {};
        if (statvfs(at.c_str(), &space) == 0) {
            const std::uint64_t left = std::uint64_t{space.f_bavail} * space.f_frsize;
            finding.fact += ", " + report::format_bytes(left) + " left there";
            if (left < (std::uint64_t{64} << 20)) {
                finding.weight = Weight::limit;
                finding.advice =
                    "Little: the log stops when the disk is full. Choose another "
                    "folder with -o.";
            }
        }
        if (finding.advice.empty() && is_working_directory(at)) {
            finding.advice =
                "A program that removes its working directory fails while these files are in it: "
                "then choose another folder with -o.";
        }
        return finding;
    }
    const std::string problem = "cannot write in " + at + " (" + std::strerror(error) + ")";
    std::string temporary = variable(variables, "TMPDIR");
    if (temporary.empty() || temporary[0] != '/') {
        temporary = "/tmp";
    }
    if (can_write(temporary, &at, &error)) {
        finding.weight = Weight::limit;
        finding.fact += "; " + problem;
        finding.advice = "The files go to " + temporary +
                         " instead, and memlab says so; choose a folder with -o or MEMLAB_OUTPUT.";
    } else {
        finding.weight = Weight::blocked;
        finding.fact += "; " + problem + ", nor in " + temporary;
        finding.advice =
            "The program runs, but nothing is kept. Mount a writable folder and name "
            "it with -o or MEMLAB_OUTPUT.";
    }
    return finding;
}

/// The kind of container, by what its engine leaves inside; empty: none is seen.
std::string container() {
    if (getenv("KUBERNETES_SERVICE_HOST") != nullptr) {
        return "Kubernetes";
    }
    if (getenv("APPTAINER_NAME") != nullptr || getenv("SINGULARITY_NAME") != nullptr) {
        return "Apptainer";
    }
    if (access("/.dockerenv", F_OK) == 0) {
        return "Docker";
    }
    if (access("/run/.containerenv", F_OK) == 0) {
        return "Podman";
    }
    const std::string groups = whole_file("/proc/1/cgroup");
    for (const char* name : {"docker", "kubepods", "containerd", "lxc"}) {
        if (groups.find(name) != std::string::npos) {
            return name;
        }
    }
    return {};
}

void add_container(Findings* out) {
    const std::string kind = container();
    const std::string first = status_value("1", "Name");
    const bool is_first = getpid() == 1;
    std::string fact = kind.empty() ? "no container seen" : kind;
    fact += is_first ? "; memlab-run is pid 1" : first.empty() ? "" : "; pid 1 is " + first;
    out->push_back({Weight::fine, "container", fact, ""});
    const std::string users = first_line("/proc/self/uid_map");
    std::istringstream words(users);
    unsigned long long inside = 0;
    unsigned long long outside = 0;
    unsigned long long count = 0;
    if (words >> inside >> outside >> count && (inside != outside || count < 0xffff'fffe)) {
        out->push_back({Weight::note, "user",
                        "in a user namespace (" + std::to_string(count) + " ids mapped)",
                        "Files belong to the mapped user outside of it."});
    }
}

void add_limits(Findings* out) {
    const std::string seccomp = status_value("self", "Seccomp");
    if (seccomp == "1") {
        out->push_back(
            {Weight::blocked, "seccomp", "strict mode", "No program can run like that."});
    } else {
        out->push_back({Weight::fine, "seccomp",
                        seccomp == "2"   ? "a filter is active; memlab makes only calls that "
                                           "container engines allow by default"
                        : seccomp == "0" ? "off"
                                         : "unknown",
                        ""});
    }
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        out->push_back({Weight::limit, "file size",
                        "RLIMIT_FSIZE is " + report::format_bytes(limit.rlim_cur),
                        "The event log stays below it; its end is lost where it is longer than "
                        "that. Set MEMLAB_LOG_LIMIT below it: then the newest part is kept."});
    }
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        out->push_back({Weight::limit, "memory",
                        "RLIMIT_AS is " + report::format_bytes(limit.rlim_cur),
                        "CUDA and memlab reserve addresses by the gigabyte: raise it (ulimit -v "
                        "unlimited) if the program fails."});
    }
    const std::string tracer = status_value("self", "TracerPid");
    if (!tracer.empty() && tracer != "0") {
        out->push_back({Weight::note, "ptrace",
                        "traced by " + status_value(tracer, "Name") + " (pid " + tracer + ")",
                        "Set-user-id programs lose their privilege, and cuda-gdb turns the pool "
                        "off."});
    }
}

}  // namespace

std::string variable(const Variables& variables, const std::string& name) {
    const auto found = std::find_if(variables.rbegin(), variables.rend(),
                                    [&name](const auto& entry) { return entry.first == name; });
    if (found != variables.rend()) {
        return found->second;
    }
    const char* const value = std::getenv(name.c_str());
    return value == nullptr ? "" : value;
}

interpose::LoadedSettings effective_settings(const Variables& variables) {
    std::map<std::string, std::string> all;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const std::size_t equals = text.find('=');
        if (equals != std::string_view::npos) {
            all.try_emplace(std::string(text.substr(0, equals)), text.substr(equals + 1));
        }
    }
    for (const auto& [name, value] : variables) {
        all[name] = value;
    }
    std::vector<std::string> entries;
    entries.reserve(all.size());
    for (const auto& [name, value] : all) {
        entries.emplace_back(name).append("=").append(value);
    }
    std::vector<const char*> texts;
    texts.reserve(entries.size() + 1);
    for (const std::string& entry : entries) {
        texts.push_back(entry.c_str());
    }
    texts.push_back(nullptr);
    return interpose::load_settings(texts.data());
}

Findings examine_environment(const std::string& library, const Variables& variables) {
    Findings found;
    add_preloads(library, variables, &found);
    const interpose::LoadedSettings loaded = effective_settings(variables);
    add_options(loaded, &found);
    add_profilers(library, variables, loaded.settings, &found);
    found.push_back(output_finding(variables));
    add_container(&found);
    add_limits(&found);
    return found;
}

}  // namespace memlab::tools
