#include "tools/doctor/command_file.hpp"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string_view>

#include "report/child_output.hpp"
#include "report/text/names.hpp"
#include "tools/doctor/elf_file.hpp"
#include "tools/doctor/pythons.hpp"
#include "tools/doctor/pytorch.hpp"
#include "tools/doctor/small_files.hpp"
#include "tools/doctor/system.hpp"

namespace memlab::tools {

namespace {

constexpr int max_levels = 4;                                  // the kernel's own limit for scripts
constexpr std::uint64_t max_scanned = std::uint64_t{1} << 30;  // bytes of libraries
constexpr std::chrono::seconds loader_patience{30};

bool is_executable_file(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
           access(path.c_str(), X_OK) == 0;
}

std::string search(const std::string& name, const std::string& path_variable) {
    if (name.find('/') != std::string::npos) {
        return is_executable_file(name) ? name : "";
    }
    std::istringstream folders(path_variable);
    for (std::string folder; std::getline(folders, folder, ':');) {
        std::string path = (folder.empty() ? "." : folder) + "/" + name;
        if (is_executable_file(path)) {
            return path;
        }
    }
    return {};
}

/// The interpreter that a script's first line names, behind env as well; empty: it is none.
std::string script_interpreter(const std::string& path, const std::string& path_variable) {
    const std::string line = first_line(path);
    if (line.compare(0, 2, "#!") != 0) {
        return {};
    }
    std::istringstream words(line.substr(2));
    std::string interpreter;
    words >> interpreter;
    if (report::base_name(interpreter) == "env") {
        std::string word;
        while (words >> word && (word[0] == '-' || word.find('=') != std::string::npos)) {
        }
        return search(word, path_variable);
    }
    return interpreter;
}

/// The program that runs a script, or the command itself; empty: none was found. Adds the scripts
/// on the way to `via`: "train.sh, a script of ".
std::string program_of(const std::string& name, const std::string& path_variable,
                       std::string* via) {
    std::string path = search(name, path_variable);
    for (int level = 0; level < max_levels && !path.empty(); ++level) {
        const std::string interpreter = script_interpreter(path, path_variable);
        if (interpreter.empty()) {
            break;
        }
        *via += path + ", a script of ";
        path = interpreter;
    }
    return path;
}

bool is_asan_runtime(const std::string& path) {
    const std::string name = report::base_name(path);
    return name.starts_with("libasan.so") || name.starts_with("libclang_rt.asan");
}

/// Why the kernel runs it with more rights than its caller's, so that nothing is preloaded.
std::string privilege(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
        return {};
    }
    if ((status.st_mode & S_ISUID) != 0 && status.st_uid != geteuid()) {
        return "set-user-id";
    }
    if ((status.st_mode & S_ISGID) != 0 && status.st_gid != getegid()) {
        return "set-group-id";
    }
    char value[64];
    return getuid() != 0 && getxattr(path.c_str(), "security.capability", value, sizeof value) > 0
               ? "with file capabilities"
               : std::string();
}

Finding blocked(const std::string& fact, const std::string& advice) {
    return {Weight::blocked, "program", fact, advice};
}

/// The paths behind "=>" of the loader's list, the preloads among them.
std::vector<std::string> listed_libraries(const std::string& list) {
    std::vector<std::string> found;
    std::istringstream lines(list);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t arrow = line.find("=> ");
        const std::size_t begin =
            arrow == std::string::npos ? line.find_first_not_of(" \t") : arrow + 3;
        if (begin == std::string::npos || line[begin] != '/') {
            continue;
        }
        found.push_back(line.substr(begin, line.find(" (", begin) - begin));
    }
    return found;
}

void add_deep_binding(const std::string& program, const std::vector<std::string>& libraries,
                      const std::string& library, Findings* out) {
    std::vector<std::string> files{program};
    files.insert(files.end(), libraries.begin(), libraries.end());
    std::vector<std::string> deep;
    std::vector<std::string> apart;
    std::uint64_t scanned = 0;
    for (const std::string& path : files) {
        struct stat status {};
        const std::string name = report::base_name(path);
        // The C library's own uses are for its plug-ins (NSS, gconv).
        if (path == library || name.starts_with("libc.so") || name.starts_with("ld-linux") ||
            stat(path.c_str(), &status) != 0) {
            continue;
        }
        scanned += static_cast<std::uint64_t>(status.st_size);
        if (scanned > max_scanned) {
            break;
        }
        const auto file = ElfFile::open(path);
        if (file == nullptr || !file->is_x86_64()) {
            continue;
        }
        if (file->opens_deep_bound()) {
            deep.push_back(name);
        }
        if (file->imports("dlmopen")) {
            apart.push_back(name);
        }
    }
    const auto joined = [](const std::vector<std::string>& names) {
        std::string text;
        for (const std::string& name : names) {
            text += (text.empty() ? "" : ", ") + name;
        }
        return text;
    };
    if (!deep.empty()) {
        out->push_back(
            {Weight::limit, "deep binding", joined(deep) + " uses RTLD_DEEPBIND",
             "A library that is opened that way bypasses every preload, and its own "
             "CUDA calls are not seen. From then on new memory comes from the driver; what "
             "the pool gave out before it cannot free (--no-pool helps). memlab-run "
             "--fail-on-bypass tells whether memory was missed."});
    }
    if (!apart.empty()) {
        out->push_back({Weight::note, "dlmopen", joined(apart) + " uses it",
                        "What is loaded into another namespace has no preloads: from then on new "
                        "memory comes from the driver."});
    }
    if (deep.empty() && apart.empty()) {
        out->push_back({Weight::fine, "deep binding",
                        "none seen in the program and what it is linked with", ""});
    }
}

/// Asks glibc's loader what it would load, memlab included. Runs no code of the program.
void add_loads(const std::string& program, const std::string& loader, const std::string& library,
               const Variables& variables, Findings* out) {
    const report::ChildOutput output =
        report::run_child({loader, "--list", program}, variables, loader_patience);
    const std::vector<std::string> libraries = listed_libraries(output.out);
    std::string missing;
    std::istringstream lines(output.out);
    for (std::string line; std::getline(lines, line);) {
        if (line.find("=> not found") != std::string::npos) {
            const std::size_t begin = line.find_first_not_of(" \t");
            missing += (missing.empty() ? "" : ", ") + line.substr(begin, line.find(" =>") - begin);
        }
    }
    if (!missing.empty()) {
        out->push_back({Weight::blocked, "libraries", "not found: " + missing,
                        "The program does not start, with or without memlab: set LD_LIBRARY_PATH, "
                        "or install them."});
    }
    const bool loads_memlab =
        std::find(libraries.begin(), libraries.end(), library) != libraries.end();
    if (!loads_memlab) {
        out->push_back({Weight::blocked, "preload",
                        "this program's loader does not load " + library,
                        output.err.substr(0, output.err.find('\n'))});
        return;
    }
    std::string linked;
    for (const std::string& path : libraries) {
        const std::string name = report::base_name(path);
        for (const char* cuda : {"libcuda.so", "libcudart.so", "libcublas.so", "libcudnn.so",
                                 "libnccl.so", "libtorch_cuda.so"}) {
            if (name.starts_with(cuda)) {
                linked += (linked.empty() ? "" : ", ") + name;
            }
        }
    }
    out->push_back({Weight::fine, "preload",
                    "libmemlab.so is loaded, with " + std::to_string(libraries.size() - 1) +
                        " libraries" +
                        (linked.empty() ? "; CUDA is not among them (linked statically, or opened "
                                          "later)"
                                        : "; of CUDA " + linked),
                    ""});
    add_deep_binding(program, libraries, library, out);
}

/// What is wrong with the binary for a preload; true if nothing is.
bool add_kind(const std::string& path, const ElfFile& file, Findings* out) {
    if (!file.is_x86_64()) {
        out->push_back(blocked(path + ": a program for " + file.machine(),
                               "memlab is for x86-64: the loader says that it ignores it."));
        return false;
    }
    if (const std::string more = privilege(path); !more.empty()) {
        out->push_back(blocked(path + ": " + more,
                               "The kernel and the loader keep preloads out of it: it runs "
                               "unchanged and nothing is recorded. Run a copy without it."));
        return false;
    }
    if (file.is_static()) {
        out->push_back(blocked(path + ": statically linked",
                               "It loads no libraries, so nothing can be preloaded: it runs "
                               "unchanged and nothing is recorded. Link it dynamically; CUDA's "
                               "runtime may stay static."));
        return false;
    }
    if (is_musl_loader(file.interpreter())) {
        out->push_back(blocked(path + ": linked with musl (" + file.interpreter() + ")",
                               "memlab and CUDA's libraries are for glibc: it runs unchanged and "
                               "nothing is recorded."));
        return false;
    }
    if (!is_glibc_loader(file.interpreter())) {
        out->push_back(
            {Weight::limit, "program", path + ": its loader is " + file.interpreter(),
             "memlab does not know this loader: a run shows whether it preloads libraries."});
        return false;
    }
    return true;
}

}  // namespace

CommandFile examine_command(const std::string& name, const std::string& library,
                            const Variables& variables) {
    CommandFile result;
    const std::string path_variable = variable(variables, "PATH");
    std::string via;
    const std::string path = program_of(name, path_variable, &via);
    if (path.empty()) {
        result.findings.push_back(blocked(name + ": not found, or not executable",
                                          name.find('/') == std::string::npos
                                              ? "Check the name and PATH."
                                              : "Check the path and its permissions."));
        return result;
    }
    const auto file = ElfFile::open(path);
    if (file == nullptr) {
        result.findings.push_back(
            first_line(path).compare(0, 2, "#!") == 0 || !is_executable_file(path)
                ? blocked(via + path + ": cannot be run", "Check the first line of the script.")
                : Finding{Weight::note, "program",
                          via + path + ": a script without a first line #!",
                          "A shell runs it; what that starts is recorded too."});
        return result;
    }
    result.program = path;
    result.loader = file->interpreter();
    if (!add_kind(path, *file, &result.findings)) {
        return result;
    }
    const std::vector<int> needs = file->highest_needed("GLIBC_");
    result.findings.push_back({Weight::fine, "program",
                               via + path + ": dynamically linked, x86-64" +
                                   (needs.empty() ? "" : ", needs glibc " + version_text(needs)),
                               via.empty() ? "" : "What it starts is recorded too."});
    if (const std::string runtime = asan_runtime(name, variables); !runtime.empty()) {
        const auto [option, value] = asan_options(variables);
        result.findings.push_back({Weight::note, "AddressSanitizer", runtime,
                                   "It ends a program in which it is not the first library: "
                                   "memlab-run sets " +
                                       option + "=" + value +
                                       ". With LD_PRELOAD alone set that, or preload " + runtime +
                                       " before memlab."});
    }
    if (const auto python = read_python(path)) {
        result.findings.push_back(python_finding("Python", path, *python));
        const Findings pytorch = examine_pytorch(path, python->minor, variables);
        result.findings.insert(result.findings.end(), pytorch.begin(), pytorch.end());
    }
    add_loads(path, file->interpreter(), library, variables, &result.findings);
    return result;
}

std::string asan_runtime(const std::string& name, const Variables& variables) {
    std::string list = variable(variables, "LD_PRELOAD");
    std::replace(list.begin(), list.end(), ' ', ':');
    std::istringstream preloads(list);
    for (std::string path; std::getline(preloads, path, ':');) {
        if (is_asan_runtime(path)) {
            return path;
        }
    }
    std::string via;
    const auto file = ElfFile::open(program_of(name, variable(variables, "PATH"), &via));
    if (file == nullptr || !file->is_x86_64()) {
        return {};
    }
    const auto& needed = file->needed();
    const auto found = std::find_if(needed.begin(), needed.end(), is_asan_runtime);
    return found == needed.end() ? "" : *found;
}

std::pair<std::string, std::string> asan_options(const Variables& variables) {
    const std::string before = variable(variables, "ASAN_OPTIONS");
    constexpr std::string_view option = "verify_asan_link_order=";
    if (before.find(option) != std::string::npos) {
        return {"ASAN_OPTIONS", before};
    }
    return {"ASAN_OPTIONS", (before.empty() ? "" : before + ":") + std::string(option) + "0"};
}

}  // namespace memlab::tools
