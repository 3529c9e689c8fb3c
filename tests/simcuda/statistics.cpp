#include "tests/simcuda/statistics.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/simcuda/options.hpp"
#include "tests/simcuda/race.hpp"
#include "tests/simcuda/state.hpp"

namespace memlab::simcuda {
namespace {

uint64_t counts[static_cast<int>(FunctionId::count)];
int64_t live_bytes = 0;
int64_t peak_bytes = 0;

// A race found is the process' exit code, whatever the program returns: nobody can overlook it.
__attribute__((destructor)) void finish() {
    if (is_forked_child() || !is_initialized()) {
        return;
    }
    write_statistics();
    for (Device& device : devices()) {
        device.used.give_back();
    }
    if (races() != 0) {
        std::fflush(nullptr);
        _exit(race_exit_code);
    }
}

}  // namespace

void count_call(FunctionId id) {
    ++counts[static_cast<int>(id)];
}

uint64_t calls(FunctionId id) {
    return counts[static_cast<int>(id)];
}

void count_live(int64_t bytes) {
    live_bytes += bytes;
    if (live_bytes > peak_bytes) {
        peak_bytes = live_bytes;
    }
}

void write_statistics() {
    std::string path = options().stats_path;
    if (path.empty()) {
        return;
    }
    if (const size_t at = path.find("%p"); at != std::string::npos) {
        path.replace(at, 2, std::to_string(getpid()));
    }
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (file == nullptr) {
        std::fprintf(stderr, "simcuda: SIMCUDA_STATS: %s cannot be written\n", path.c_str());
        return;
    }
    for (int id = 0; id < static_cast<int>(FunctionId::count); ++id) {
        if (counts[id] != 0) {
            std::fprintf(file, "calls %s %llu\n", function_info(static_cast<FunctionId>(id)).symbol,
                         static_cast<unsigned long long>(counts[id]));
        }
    }
    std::fprintf(file, "live_bytes %lld\npeak_bytes %lld\nraces %llu\n",
                 static_cast<long long>(live_bytes), static_cast<long long>(peak_bytes),
                 static_cast<unsigned long long>(races()));
    std::fclose(file);
}

}  // namespace memlab::simcuda
