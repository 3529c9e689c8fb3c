// Benchmarks that measure a program without memlab, with it, and with parts of it switched off, in
// one run: the benchmark starts itself as a child for every measurement, the variants in turns, so
// that whatever drifts on the machine drifts for all. The recordings go to a temporary folder that
// is removed. C++17: nvcc compiles it too.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "timing.hpp"

namespace memlab::bench {

struct Variant {
    const char* name;
    bool preloaded;
    const char* settings;  ///< environment assignments, each with a space behind it
};

/// Runs `itself --measure ARGUMENTS` as every variant, so many times, and calls read(FILE*, number
/// of the variant) for what each child writes; `arguments(variant)` begins with a space or is
/// empty. Returns what the benchmark is to end with when it is not 0; the reason was printed.
template <std::size_t count, class Arguments, class Read>
int measure_in_turns(const char* benchmark, int turns, const Variant (&variants)[count],
                     const Arguments& arguments, const Read& read) {
    namespace fs = std::filesystem;
    const fs::path self = fs::read_symlink("/proc/self/exe");
    const fs::path library = self.parent_path().parent_path() / "lib" / "libmemlab.so";
    if (!fs::exists(library)) {
        std::fprintf(stderr, "%s: %s is missing: build the project first\n", benchmark,
                     library.c_str());
        return 2;
    }
    std::string folder = (fs::temp_directory_path() / "memlab-bench.XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) {
        std::fprintf(stderr, "%s: no temporary folder: %s\n", benchmark, std::strerror(errno));
        return 2;
    }
    bool good = true;
    for (int turn = 0; turn < turns && good; ++turn) {
        for (std::size_t number = 0; number < count && good; ++number) {
            const Variant& variant = variants[number];
            std::string command = "exec env -u LD_PRELOAD ";
            if (variant.preloaded) {
                command += "LD_PRELOAD='" + library.string() + "' MEMLAB_OUTPUT='" + folder + "/' ";
                command += variant.settings;
            }
            command += "'" + self.string() + "' --measure" + arguments(variant);
            FILE* const pipe = ::popen(command.c_str(), "r");
            good = pipe != nullptr;
            if (good) {
                read(pipe, number);
                good = ::pclose(pipe) == 0;
            }
        }
    }
    fs::remove_all(folder);
    if (!good) {
        std::fprintf(stderr, "%s: a measurement failed\n", benchmark);
        return 1;
    }
    return 0;
}

}  // namespace memlab::bench
