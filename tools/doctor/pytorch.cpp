#include "tools/doctor/pytorch.hpp"

#include <sys/stat.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <memory>
#include <regex>
#include <sstream>
#include <vector>

#include "interpose/options/pytorch_doors.hpp"
#include "tools/doctor/elf_file.hpp"
#include "tools/doctor/small_files.hpp"

namespace memlab::tools {

namespace {

using interpose::PytorchDoor;
using interpose::PytorchFeature;

bool is_there(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0;
}

std::string parent_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::string real_path(const std::string& path) {
    char real[PATH_MAX];
    return realpath(path.c_str(), real) == nullptr ? std::string() : std::string(real);
}

/// The folders of packages below an interpreter's own folder, as Python and Debian have them.
void add_packages_below(const std::string& prefix, int minor, std::vector<std::string>* out) {
    const std::string version = "/python3." + std::to_string(minor);
    for (const char* below : {"/lib", "/lib64", "/local/lib"}) {
        for (const char* packages : {"/site-packages", "/dist-packages"}) {
            std::string& folder = out->emplace_back(prefix);
            folder.append(below).append(version).append(packages);
        }
    }
    out->push_back(prefix + "/lib/python3/dist-packages");
}

/// In the order in which Python looks.
std::vector<std::string> package_folders(const std::string& interpreter, int minor,
                                         const Variables& variables) {
    std::vector<std::string> folders;
    std::istringstream own(variable(variables, "PYTHONPATH"));
    for (std::string folder; std::getline(own, folder, ':');) {
        folders.push_back(folder);
    }
    const std::string home = variable(variables, "HOME");
    if (!home.empty()) {
        folders.push_back(home + "/.local/lib/python3." + std::to_string(minor) + "/site-packages");
    }
    const std::string prefix = parent_of(parent_of(interpreter));
    add_packages_below(prefix, minor, &folders);
    const std::string environment = whole_file(prefix + "/pyvenv.cfg");
    if (environment.empty() ||
        environment.find("include-system-site-packages = true") != std::string::npos) {
        const std::string real = real_path(interpreter);
        add_packages_below(parent_of(parent_of(real)), minor, &folders);
        add_packages_below("/usr/local", minor, &folders);
    }
    return folders;
}

/// PyTorch's libraries, opened when they are asked for.
class Libraries {
  public:
    explicit Libraries(std::string folder) : folder_(std::move(folder)) {}

    /// Null: it is not there.
    const ElfFile* find(const std::string& name) {
        const bool cuda = name == "libc10_cuda.so";
        std::unique_ptr<ElfFile>& file = name == "libc10.so" ? c10_ : cuda ? c10_cuda_ : cpu_;
        if (file == nullptr) {
            file = ElfFile::open(folder_ + "/" + name);
        }
        return file != nullptr && file->is_x86_64() ? file.get() : nullptr;
    }

  private:
    const std::string folder_;
    std::unique_ptr<ElfFile> c10_;
    std::unique_ptr<ElfFile> c10_cuda_;
    std::unique_ptr<ElfFile> cpu_;
};

/// Why nothing comes through the door; empty: it is open.
std::string why_closed(const PytorchDoor& door, Libraries* libraries) {
    const ElfFile* const library = libraries->find(door.library);
    const auto some = [&door](const auto& has) {
        return has(door.symbol) || (door.older_symbol != nullptr && has(door.older_symbol));
    };
    if (library == nullptr ||
        !some([library](const char* symbol) { return library->exports(symbol); })) {
        return std::string(door.name) + " is not exported";
    }
    if (door.caller == nullptr) {
        return {};
    }
    const ElfFile* const caller = libraries->find(door.caller);
    if (caller == nullptr ||
        !some([caller](const char* symbol) { return caller->calls_through_loader(symbol); })) {
        return door.feature == PytorchFeature::forward_lines
                   ? "its operators make their backward graph unseen"
                   : std::string("it does not call ") + door.name;
    }
    return {};
}

/// The functions of Python that report/symbols/category knows calls of nn.Module by.
std::string why_calls_are_unknown(const std::string& package) {
    const std::string source = whole_file(package + "/nn/modules/module.py");
    for (const char* name : {"_call_impl", "_wrapped_call_impl"}) {
        if (!source.empty() && source.find("def " + std::string(name) + "(") == std::string::npos) {
            return std::string("nn.Module.") + name + " is not there";
        }
    }
    return {};
}

using Closed = std::array<std::string, 4>;  ///< by PytorchFeature; empty: open

/// The first reason of each feature; what needs libc10_cuda.so only where there is one.
Closed closed_features(Libraries* libraries, bool has_cuda) {
    Closed closed;
    for (const PytorchDoor& door : interpose::pytorch_doors) {
        std::string& why = closed[static_cast<std::size_t>(door.feature)];
        if (why.empty() && (has_cuda || door.feature == PytorchFeature::forward_lines)) {
            why = why_closed(door, libraries);
        }
    }
    return closed;
}

/// By PyTorch's headers, which its wheels have; nothing where they are not.
std::optional<bool> nodes_are_known(const std::string& package) {
    std::vector<std::string> folders{package + "/include"};
    if (real_path(package + "/lib/libtorch_cpu.so").starts_with("/usr/lib/")) {
        folders.emplace_back("/usr/include");  // Debian's
    }
    for (const std::string& folder : folders) {
        for (const char* name : {"/node.h", "/function.h"}) {
            const std::string path = folder + "/torch/csrc/autograd" + name;
            if (const auto known = has_known_nodes(whole_file(path))) {
                return known;
            }
        }
    }
    return std::nullopt;
}

Findings examine_package(const std::string& package) {
    const std::string libraries_folder = package + "/lib";
    std::string version = interpose::parse_pytorch_version(whole_file(package + "/version.py"));
    Libraries libraries(libraries_folder);
    const bool has_cuda = libraries.find("libc10_cuda.so") != nullptr;
    Closed closed = closed_features(&libraries, has_cuda);
    closed[static_cast<std::size_t>(PytorchFeature::nn_module_calls)] =
        why_calls_are_unknown(package);
    std::string& forward = closed[static_cast<std::size_t>(PytorchFeature::forward_lines)];
    const std::optional<bool> known = nodes_are_known(package);
    if (forward.empty() && known == false) {
        forward = interpose::pytorch_layout_unknown;
    }
    Findings found;
    for (std::size_t i = 0; i < closed.size(); ++i) {
        if (!closed[i].empty()) {
            found.push_back(
                {Weight::limit, "PyTorch",
                 interpose::pytorch_not_read(version, static_cast<PytorchFeature>(i), closed[i]),
                 i == 0 ? "Its cache's segments are recorded in place of the tensors (--replace "
                          "shows each tensor)."
                        : ""});
        }
    }
    if (found.empty()) {
        const std::string what = package + (version.empty() ? "" : ", " + version);
        found.push_back(
            {Weight::fine, "PyTorch",
             what + (has_cuda ? ": tensors and forward lines are read" : ": built without CUDA"),
             known.has_value() ? ""
                               : "It has no headers here: whether the layout of its "
                                 "backward graph is known shows when it runs."});
    }
    return found;
}

}  // namespace

std::optional<bool> has_known_nodes(const std::string& header) {
    static const std::regex head(
        R"(\n(?:struct|class)(?: TORCH_API)? Node\s*(?:final\s*)?:\s*(?:public\s+)?([\w:<>]+)\s*\{)");
    // Members are one level deep, and their names end so; functions have parentheses.
    static const std::regex member(
        R"(\n  ([A-Za-z_][^\n();]*?)\s(\w+_)(?:\s*=[^;\n]*|\{[^;\n]*\})?;)");
    std::smatch found;
    if (!std::regex_search(header, found, head)) {
        return std::nullopt;
    }
    const std::string base = found[1];
    if (base != "std::enable_shared_from_this<Node>" && base != "c10::intrusive_ptr_target") {
        return false;
    }
    const std::size_t begin = static_cast<std::size_t>(found.position() + found.length());
    const std::string body = header.substr(begin, header.find("\n};", begin) - begin);
    std::vector<std::pair<std::string, std::string>> members;
    for (std::sregex_iterator each(body.begin(), body.end(), member), end; each != end; ++each) {
        std::string type = (*each)[1];
        for (const std::string prefix : {"const ", "mutable "}) {
            type = type.starts_with(prefix) ? type.substr(prefix.size()) : type;
        }
        members.emplace_back(std::move(type), (*each)[2]);
    }
    std::size_t flags = 0;
    while (flags + 2 < members.size() && members[flags + 2].first == "bool") {
        ++flags;
    }
    const auto is = [&members](std::size_t at, const char* name) {
        return at < members.size() && members[at].first == "uint64_t" && members[at].second == name;
    };
    return is(0, "sequence_nr_") && is(1, "topological_nr_") && flags >= 1 && flags <= 8 &&
           is(flags + 2, "thread_id_");
}

Findings examine_pytorch(const std::string& interpreter, int minor, const Variables& variables) {
    if (minor == 0) {
        return {};
    }
    for (const std::string& folder : package_folders(interpreter, minor, variables)) {
        const std::string package = folder + "/torch";
        if (is_there(package + "/version.py") && is_there(package + "/lib/libtorch_cpu.so")) {
            return examine_package(package);
        }
    }
    return {};
}

}  // namespace memlab::tools
