// What LD_PRELOAD=libmemlab.so adds to the start of a program that has nothing to do with CUDA, and
// to that of one that allocates once: without and with CUPTI.
//
// Each command is started in turns without and with the preload, a few hundred times (a CUDA
// process takes a quarter of a second: a few dozen times); printed are the medians, their
// difference in milliseconds and their ratio.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/bench/timing.hpp"

namespace {

using memlab::bench::Clock;
using memlab::bench::median;

struct Command {
    const char* name;
    std::vector<const char*> arguments;
    int rounds;
};

double milliseconds_of(const Command& command, const std::vector<const char*>& environment) {
    std::vector<char*> arguments;
    arguments.reserve(command.arguments.size() + 1);
    for (const char* argument : command.arguments) {
        arguments.push_back(const_cast<char*>(argument));
    }
    arguments.push_back(nullptr);
    std::vector<char*> variables;
    variables.reserve(environment.size() + 1);
    for (const char* variable : environment) {
        variables.push_back(const_cast<char*>(variable));
    }
    variables.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    const Clock::time_point start = Clock::now();
    pid_t child = 0;
    int status = 1;
    if (::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(),
                       variables.data()) == 0) {
        ::waitpid(child, &status, 0);
    }
    const std::chrono::duration<double, std::milli> time = Clock::now() - start;
    ::posix_spawn_file_actions_destroy(&actions);
    return status == 0 ? time.count() : -1;
}

struct Mode {
    const char* name;
    bool preloaded;
    std::vector<const char*> settings;
};

/// The start of a CUDA process, by mode. `plain` is the environment without the preload.
void measure_cuda(const std::string& program, const std::vector<const char*>& plain,
                  const std::vector<const char*>& with) {
    constexpr int rounds = 15;
    const Command command{"", {program.c_str()}, rounds};
    const std::vector<Mode> modes = {
        {"native", false, {}},
        {"memlab", true, {}},
        {"MEMLAB_CUPTI=on", true, {"MEMLAB_CUPTI=on"}},
        {"MEMLAB_AUDIT=on", true, {"MEMLAB_AUDIT=on"}},
        {"MEMLAB_KERNELS=on", true, {"MEMLAB_KERNELS=on"}},
    };
    std::vector<std::vector<double>> times(modes.size());
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < modes.size(); ++i) {
            std::vector<const char*> environment = modes[i].preloaded ? with : plain;
            environment.insert(environment.end(), modes[i].settings.begin(),
                               modes[i].settings.end());
            const double time = milliseconds_of(command, environment);
            if (time < 0) {
                std::printf("no GPU here, or malloc_free fails\n");
                return;
            }
            times[i].push_back(time);
        }
    }
    std::printf("%-24s %12s %12s\n", "a CUDA process, median", "ms", "added ms");
    for (std::size_t i = 0; i < modes.size(); ++i) {
        std::printf("%-24s %12.1f %12.1f\n", modes[i].name, median(times[i]),
                    median(times[i]) - median(times[0]));
    }
}

}  // namespace

int main() {
    namespace fs = std::filesystem;
    const fs::path self = fs::read_symlink("/proc/self/exe");
    const fs::path library = self.parent_path().parent_path() / "lib" / "libmemlab.so";
    if (!fs::exists(library)) {
        std::fprintf(stderr, "bench_startup: %s is missing: build the project first\n",
                     library.c_str());
        return 2;
    }
    const std::string preload = "LD_PRELOAD=" + library.string();
    const std::vector<const char*> plain = {"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/"};
    std::vector<const char*> with = plain;
    with.push_back(preload.c_str());

    const Command commands[] = {
        {"true", {"true"}, 300},
        {"bash -c :", {"bash", "-c", ":"}, 200},
        {"bash -c 'ls | sort'", {"bash", "-c", "ls / | sort"}, 100},
        {"git --version", {"git", "--version"}, 100},
        {"make --version", {"make", "--version"}, 100},
        {"python3 -c pass", {"python3", "-c", "pass"}, 40},
    };
    std::printf("%-24s %12s %12s %12s %8s\n", "start to end, median", "native ms", "memlab ms",
                "added ms", "ratio");
    for (const Command& command : commands) {
        std::vector<double> native;
        std::vector<double> under;
        bool runs = true;
        for (int round = 0; round < command.rounds && runs; ++round) {
            native.push_back(milliseconds_of(command, plain));
            under.push_back(milliseconds_of(command, with));
            runs = native.back() >= 0 && under.back() >= 0;
        }
        if (!runs) {
            std::printf("%-24s not installed here, or it fails\n", command.name);
            continue;
        }
        std::printf("%-24s %12.3f %12.3f %12.3f %8.3f\n", command.name, median(native),
                    median(under), median(under) - median(native), median(under) / median(native));
    }
    // Where the CUDA libraries are, the caller knows; what is recorded goes away again.
    std::string folder = (fs::temp_directory_path() / "memlab-bench.XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) {
        return 2;
    }
    const char* const path = std::getenv("LD_LIBRARY_PATH");
    const std::string libraries = std::string("LD_LIBRARY_PATH=") + (path != nullptr ? path : "");
    const std::string output = "MEMLAB_OUTPUT=" + folder + "/";
    std::vector<const char*> plain_cuda = plain;
    plain_cuda.push_back(libraries.c_str());
    std::vector<const char*> with_cuda = plain_cuda;
    with_cuda.insert(with_cuda.end(), {preload.c_str(), output.c_str()});
    measure_cuda((self.parent_path() / "programs" / "malloc_free").string(), plain_cuda, with_cuda);
    fs::remove_all(folder);
    return 0;
}
