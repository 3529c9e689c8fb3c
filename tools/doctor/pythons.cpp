#include "tools/doctor/pythons.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <sstream>

#include "profiler/python/debug_offsets.hpp"
#include "profiler/python/layouts.hpp"
#include "report/text/names.hpp"
#include "tools/doctor/elf_file.hpp"
#include "tools/doctor/environment.hpp"
#include "tools/doctor/pytorch.hpp"

namespace memlab::tools {

namespace {

constexpr std::size_t max_interpreters = 8;

bool all_digits(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(),
                                        [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// python, python3, python3.12, python3.13t
bool is_python_name(std::string_view name) {
    if (!name.starts_with("python")) {
        return false;
    }
    name.remove_prefix(6);
    if (name.empty() || name == "3") {
        return true;
    }
    if (!name.starts_with("3.")) {
        return false;
    }
    name.remove_prefix(2);
    if (name.ends_with("t")) {
        name.remove_suffix(1);
    }
    return all_digits(name);
}

/// Reads "3.12" and "3.13t" behind `prefix` of a file's name into `build`.
void read_name(std::string_view name, std::string_view prefix, PythonBuild* build) {
    if (!name.starts_with(prefix)) {
        return;
    }
    name.remove_prefix(prefix.size());
    const std::size_t end = std::min(name.find_first_not_of("0123456789"), name.size());
    if (end != 0) {
        build->minor = std::atoi(std::string(name.substr(0, end)).c_str());
        build->version = "3." + std::to_string(build->minor);
        build->free_threaded |= name.substr(end).starts_with("t");
    }
}

/// Py_Version: 0x030c03f0 is 3.12.3.
void read_version_variable(const ElfFile& file, PythonBuild* build) {
    const auto bytes = file.contents("Py_Version", 8);
    std::uint64_t version = 0;
    if (bytes.size() != sizeof version) {
        return;
    }
    std::memcpy(&version, bytes.data(), sizeof version);
    if (version >> 24 == 3) {
        build->minor = static_cast<int>(version >> 16 & 0xff);
        build->version =
            "3." + std::to_string(build->minor) + "." + std::to_string(version >> 8 & 0xff);
    }
}

/// What the file that has the interpreter's code and data says of its build.
void read_build(const ElfFile& file, PythonBuild* build) {
    read_version_variable(file, build);
    build->debug |= file.exports("_Py_NegativeRefcount");
    const auto runtime = file.contents("_PyRuntime", profiler::python::debug_offsets_bytes);
    build->free_threaded |= profiler::python::says_free_threaded(runtime);
    const auto* const layout = profiler::python::find_layout(build->minor);
    if (layout != nullptr && build->minor >= profiler::python::debug_offsets_from_minor) {
        build->difference = profiler::python::difference_to(*layout, runtime);
    }
}

std::string resolved(const std::string& path) {
    char real[PATH_MAX];
    return realpath(path.c_str(), real) == nullptr ? std::string() : std::string(real);
}

}  // namespace

std::optional<PythonBuild> read_python(const std::string& path) {
    const std::string real = resolved(path);
    const auto file = ElfFile::open(real);
    if (file == nullptr || !file->is_x86_64()) {
        return std::nullopt;
    }
    PythonBuild build;
    const std::string name = report::base_name(real);
    if (name.starts_with("pypy")) {
        build.other = true;
        build.version = "(PyPy)";
        return build;
    }
    bool is_python = is_python_name(name) || file->exports("Py_GetVersion");
    read_name(name, "python3.", &build);
    if (file->exports("Py_GetVersion")) {
        read_build(*file, &build);
    }
    for (const std::string& library : file->needed()) {
        if (library.starts_with("libpython3.")) {
            is_python = true;
            read_name(library, "libpython3.", &build);
            std::string beside = real.substr(0, real.rfind('/'));
            beside.append("/../lib/").append(library);
            if (const auto found = ElfFile::open(resolved(beside)); found != nullptr) {
                read_build(*found, &build);
            }
        }
    }
    return is_python ? std::optional(build) : std::nullopt;
}

Finding python_finding(const std::string& subject, const std::string& path,
                       const PythonBuild& build) {
    Finding finding{Weight::fine, subject, path, ""};
    if (!build.version.empty()) {
        finding.fact += ", " + build.version + (build.free_threaded ? " (free-threaded)" : "") +
                        (build.debug ? " (debug build)" : "");
    }
    const std::string not_read =
        ": its functions and lines are not read, call sites are native "
        "only";
    if (build.minor == 0 && !build.other) {
        finding.weight = Weight::note;
        finding.fact += ": version not known without running it";
    } else if (build.other || build.free_threaded || build.debug ||
               profiler::python::find_layout(build.minor) == nullptr) {
        finding.weight = Weight::limit;
        finding.fact += not_read;
        finding.advice = "memlab reads CPython " + profiler::python::tested_versions() +
                         ", release builds with the GIL.";
    } else if (!build.difference.empty()) {
        finding.weight = Weight::limit;
        finding.fact += not_read;
        finding.advice = "It " + build.difference + ".";
    } else {
        finding.fact += ": functions and lines are read";
    }
    return finding;
}

std::optional<Finding> names_finding(const std::vector<std::string>& command,
                                     const Variables& variables) {
    if (!effective_settings(variables).settings.names) {
        return std::nullopt;
    }
    // Without a value of its own: -IS is two. What follows -c, -m or a script is the program's.
    for (std::size_t i = 1; i < command.size(); ++i) {
        const std::string_view argument = command[i];
        if (argument.size() < 2 || argument[0] != '-' || argument[1] == '-') {
            break;
        }
        const std::size_t end = std::min(argument.find_first_of("cmWX"), argument.size());
        const std::string_view flags = argument.substr(1, end - 1);
        if (flags.find('S') != std::string_view::npos) {
            return Finding{Weight::limit, "names", "-S: memlab's Python package is not started",
                           "nn.Modules, gradients and optimizer states have no names. Run without "
                           "it, or call memlab.watch(model) in the program."};
        }
        if (flags.find_first_of("IE") != std::string_view::npos) {
            return Finding{
                Weight::note, "names",
                "-I or -E: memlab's Python package is started only if it is installed in "
                "the interpreter's environment (the wheel)",
                "Otherwise nn.Modules, gradients and optimizer states have no names: run "
                "without it, or install the wheel there."};
        }
        if (end < argument.size()) {
            if (argument[end] == 'c' || argument[end] == 'm') {
                break;
            }
            i += end + 1 == argument.size() ? 1 : 0;
        }
    }
    return std::nullopt;
}

Findings examine_pythons(const Variables& variables) {
    Findings found;
    std::set<std::string> seen;
    std::istringstream folders(variable(variables, "PATH"));
    for (std::string folder; std::getline(folders, folder, ':');) {
        const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(folder.c_str()), &closedir);
        if (listing == nullptr) {
            continue;
        }
        std::vector<std::string> names;
        while (const dirent* entry = readdir(listing.get())) {
            if (is_python_name(entry->d_name) || std::string_view(entry->d_name) == "pypy3") {
                names.emplace_back(entry->d_name);
            }
        }
        std::sort(names.begin(), names.end());
        for (const std::string& name : names) {
            std::string path = folder;
            path.append("/").append(name);
            if (seen.size() < max_interpreters && seen.insert(resolved(path)).second) {
                if (const auto build = read_python(path)) {
                    found.push_back(python_finding("Python", path, *build));
                    const Findings pytorch = examine_pytorch(path, build->minor, variables);
                    found.insert(found.end(), pytorch.begin(), pytorch.end());
                }
            }
        }
    }
    return found;
}

}  // namespace memlab::tools
