#include "tools/doctor/system.hpp"

#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include "report/child_output.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"
#include "tools/doctor/elf_file.hpp"

namespace memlab::tools {

namespace {

using report::base_name;

constexpr int context_events = 12050;  // cuCtxRecordEvent, cuCtxWaitEvent
constexpr std::chrono::seconds driver_patience{30};

std::string cuda_version(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// What libmemlab.so printed as a program.
struct Probe {
    std::string glibc;
    std::string libcuda;
    std::string no_libcuda;
    int cuda = 0;
    int knows_cuda = 0;  ///< the newest CUDA whose functions memlab knows
    std::vector<std::string> unknown_functions;
    int init = -1;  ///< cuInit's result; -1: it did not return
    int devices = 0;
    std::vector<std::string> device_names;
    std::string cgroup;  ///< its path; empty: none of version 2 is visible
    bool nvml_limits = false;
    std::vector<std::string>
        limits;  ///< what follows "limit " (interpose/process/driver_probe.cpp)
    bool complete = false;
};

Probe parse_probe(const std::string& text) {
    Probe probe;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t space = std::min(line.find(' '), line.size());
        const std::string name = line.substr(0, space);
        const std::string value = line.substr(std::min(space + 1, line.size()));
        if (name == "glibc") {
            probe.glibc = value;
        } else if (name == "libcuda") {
            probe.libcuda = value;
        } else if (name == "no_libcuda") {
            probe.no_libcuda = value;
        } else if (name == "cuda") {
            probe.cuda = std::atoi(value.c_str());
        } else if (name == "knows_cuda") {
            probe.knows_cuda = std::atoi(value.c_str());
        } else if (name == "unknown_function") {
            probe.unknown_functions.push_back(value);
        } else if (name == "cuInit") {
            probe.init = std::atoi(value.c_str());
        } else if (name == "devices") {
            probe.devices = std::atoi(value.c_str());
        } else if (name == "device") {
            const std::size_t end = std::min(value.find(' '), value.size());
            probe.device_names.push_back(
                value.substr(std::min(end + 1, value.size())) + " (" +
                report::format_bytes(std::strtoull(value.c_str(), nullptr, 10)) + ")");
        } else if (name == "cgroup") {
            probe.cgroup = value;
        } else if (name == "nvml_limits") {
            probe.nvml_limits = value == "1";
        } else if (name == "limit") {
            probe.limits.push_back(value);
        } else if (name == "end") {
            probe.complete = true;
        }
    }
    return probe;
}

/// The first line of what a loader or a driver said.
std::string first_words(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

std::string how_it_ended(const report::ChildOutput& output) {
    if (output.timed_out) {
        return "did not answer within " + std::to_string(driver_patience.count()) + " s";
    }
    if (output.started() && WIFSIGNALED(output.wait_status)) {
        const char* const name = strsignal(WTERMSIG(output.wait_status));
        return std::string("crashed: ") + (name == nullptr ? "a signal" : name);
    }
    return "ended with code " +
           std::to_string(output.started() ? WEXITSTATUS(output.wait_status) : -1);
}

Finding libc_finding(const std::string& library, const std::string& loader, const Probe& probe,
                     const report::ChildOutput& output) {
    Finding finding{Weight::fine, "libc", "", ""};
    const auto file = ElfFile::open(library);
    const std::string needed = file == nullptr ? "" : version_text(file->highest_needed("GLIBC_"));
    const std::string needs = needed.empty() ? "" : "; libmemlab.so needs " + needed;
    if (!probe.glibc.empty()) {
        finding.fact = "glibc " + probe.glibc + needs;
        return finding;
    }
    finding.weight = Weight::blocked;
    if (access(loader.c_str(), X_OK) != 0) {
        finding.fact = "no glibc for x86-64: there is no " + loader + needs;
        finding.advice =
            "Programs of another libc (musl, as in Alpine) are not recorded; use an image with "
            "glibc.";
    } else if (output.err.find("GLIBC_") != std::string::npos) {
        finding.fact = "glibc is too old" + needs + ": " + first_words(output.err);
        finding.advice = "Use an image with a newer glibc, or a memlab that was built for it.";
    } else {
        finding.fact = "libmemlab.so cannot be loaded: " +
                       (output.err.empty() ? how_it_ended(output) : first_words(output.err));
        finding.advice = "Check that the file is complete and readable: " + library;
    }
    return finding;
}

const char* advice_for_init(int result) {
    switch (result) {
        case 34:
            return "This is the toolkit's stub, for linking only: take its folder out of "
                   "LD_LIBRARY_PATH.";
        case 100:
            return "The driver sees no GPU: check CUDA_VISIBLE_DEVICES, and in a container that "
                   "it has one (docker run --gpus all; nvidia.com/gpu in Kubernetes).";
        case 802:
            return "The GPUs are not ready yet: on machines with NVSwitch the fabric manager must "
                   "run.";
        case 803:
        case 804:
            return "libcuda.so.1 and the kernel's driver do not match: remove the "
                   "container's own libcuda (cuda-compat), or update the driver.";
        default:
            return "CUDA programs fail here without memlab as well; nvidia-smi may say why.";
    }
}

/// The version in the names of the driver's files ("libcuda.so.580.65.06"); empty: none.
std::string version_of_file(const std::string& path) {
    char resolved[PATH_MAX];
    if (realpath(path.c_str(), resolved) == nullptr) {
        return {};
    }
    const std::string name = base_name(resolved);
    constexpr std::string_view prefix = "libcuda.so.";
    return name.starts_with(prefix) && name.size() > prefix.size() + 1 ? name.substr(prefix.size())
                                                                       : std::string();
}

Finding driver_finding(const Probe& probe, const report::ChildOutput& output) {
    Finding finding{Weight::fine, "driver", "", ""};
    if (!probe.no_libcuda.empty()) {
        finding.weight = Weight::blocked;
        finding.fact = "none: " + probe.no_libcuda;
        finding.advice =
            "Programs run unchanged and nothing is recorded. In a container, start it with the "
            "GPU (docker run --gpus all).";
        return finding;
    }
    const std::string version = version_of_file(probe.libcuda);
    finding.fact = probe.libcuda + (version.empty() ? "" : ", driver " + version) +
                   (probe.cuda == 0 ? "" : ", CUDA " + cuda_version(probe.cuda));
    if (!probe.complete && probe.init < 0) {
        finding.weight = Weight::blocked;
        finding.fact += (finding.fact.empty() ? "" : "; ") + std::string("the driver ") +
                        how_it_ended(output) + " when it was initialized";
        finding.advice = advice_for_init(-1);
    } else if (probe.init != 0) {
        finding.weight = Weight::blocked;
        finding.fact += "; cuInit fails with error " + std::to_string(probe.init);
        finding.advice = advice_for_init(probe.init);
    } else if (probe.cuda < context_events) {
        finding.weight = Weight::limit;
        finding.advice =
            "Before CUDA 12.5 there are no context events: a cudaFree waits for the GPU, as plain "
            "CUDA's does.";
    }
    return finding;
}

/// What the driver has beyond what memlab knows. A program that does not ask for it is not
/// concerned.
void add_unknown_functions(const Probe& probe, Findings* out) {
    if (probe.unknown_functions.empty() && probe.cuda <= probe.knows_cuda) {
        return;
    }
    constexpr std::size_t named = 12;
    std::vector<std::string> names = probe.unknown_functions;
    std::sort(names.begin(), names.end());
    std::string text = "memlab knows those up to CUDA " + cuda_version(probe.knows_cuda);
    for (std::size_t i = 0; i < std::min(names.size(), named); ++i) {
        text += (i == 0 ? ", not " : ", ") + names[i];
    }
    if (names.size() > named) {
        text += " and " + std::to_string(names.size() - named) + " more";
    }
    out->push_back(
        {Weight::note, "functions", text,
         "When a program uses a function of a later CUDA, its report names the function, and "
         "new memory may come from the driver from then on."});
}

/// What this process's cgroup may have of the GPUs' memory.
void add_gpu_limits(const Probe& probe, Findings* out) {
    bool dmem = false;
    bool nvml = false;
    for (const std::string& text : probe.limits) {
        std::istringstream words(text);
        std::string source;
        std::string limit;
        std::uint64_t used = 0;
        int device = 0;
        words >> source >> limit >> used >> device;
        std::string group;
        std::getline(words >> std::ws, group);
        (source == "dmem" ? dmem : nvml) = true;
        if (limit == "max") {
            continue;
        }
        out->push_back({Weight::note, "GPU limit",
                        "GPU " + std::to_string(device) + ": the cgroup " + group + " may have " +
                            report::format_bytes(std::strtoull(limit.c_str(), nullptr, 10)) + " (" +
                            (source == "dmem" ? "dmem.max" : "by NVML") + "), its processes have " +
                            report::format_bytes(used),
                        "Above that, allocations fail although the GPU has free memory: "
                        "memlab-report oom says so."});
    }
    const bool limited = std::any_of(out->begin(), out->end(), [](const Finding& finding) {
        return finding.subject == "GPU limit";
    });
    if (!limited) {
        std::string fact =
            probe.cgroup.empty()
                ? "none known: no cgroup of version 2 is visible"
                : "none: " + std::string(dmem ? "dmem sets none" : "no dmem controller");
        if (!probe.cgroup.empty()) {
            fact += nvml                ? "; none by NVML"
                    : probe.nvml_limits ? "; NVML reports none"
                                        : "; NVML cannot tell (needs CUDA 13.4)";
        }
        out->push_back({Weight::fine, "GPU limit", fact, ""});
    }
}

}  // namespace

bool is_glibc_loader(const std::string& path) {
    return base_name(path).starts_with("ld-linux-x86-64.so");
}

bool is_musl_loader(const std::string& path) {
    return base_name(path).starts_with("ld-musl-");
}

Findings examine_system(const std::string& library, const std::string& loader,
                        const Variables& variables) {
    Findings found;
    Variables probing = variables;
    // Nothing but the driver: another tool's library would start to profile.
    for (const char* name : {"LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
        probing.emplace_back(name, "");
    }
    const report::ChildOutput output =
        report::run_child({loader, library}, probing, driver_patience);
    const Probe probe = parse_probe(output.out);
    found.push_back(libc_finding(library, loader, probe, output));
    utsname system{};
    if (uname(&system) == 0) {
        const bool right = std::strcmp(system.machine, "x86_64") == 0;
        found.push_back({right ? Weight::fine : Weight::blocked, "machine",
                         std::string(system.machine) + ", Linux " + system.release,
                         right ? "" : "memlab is for x86-64."});
    }
    if (probe.glibc.empty()) {
        found.push_back(
            {Weight::note, "driver", "not queried, since libmemlab.so cannot be loaded", ""});
        return found;
    }
    found.push_back(driver_finding(probe, output));
    add_unknown_functions(probe, &found);
    if (probe.init == 0 && probe.devices == 0) {
        found.push_back({Weight::blocked, "GPU", "none is visible", "Check CUDA_VISIBLE_DEVICES."});
    }
    for (const std::string& name : probe.device_names) {
        found.push_back({Weight::fine, "GPU", name, ""});
    }
    if (probe.complete && probe.init == 0) {
        add_gpu_limits(probe, &found);
    }
    if (probe.devices > 1) {
        found.push_back({Weight::note, "pool", "several GPUs are visible",
                         "The pool takes segments from cuMemAlloc; with one GPU visible its memory "
                         "grows and shrinks in place."});
    }
    return found;
}

}  // namespace memlab::tools
