#include "tests/simcuda/used_bytes.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "tests/simcuda/checkpoint.hpp"
#include "tests/simcuda/options.hpp"

namespace memlab::simcuda {
namespace {

constexpr off_t file_bytes = 4096;  // a number for each of 64 devices, zero to begin with

bool is_checkpointed() {
    return checkpoint_state.state.load() == CU_PROCESS_STATE_CHECKPOINTED;
}

}  // namespace

uint64_t UsedBytes::own() const {
    return is_checkpointed() ? 0 : own_;
}

void UsedBytes::give_back() {
    if (!is_checkpointed()) {
        *this -= own_;
    }
}

void UsedBytes::set_own(uint64_t bytes) {
    own_ = bytes;
    checkpoint_state.used[ordinal_].store(bytes);
}

void UsedBytes::share(int ordinal) {
    ordinal_ = ordinal;
    const std::string& path = options().shared_path;
    if (path.empty()) {
        return;
    }
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void* const mapped =
        file < 0 || ftruncate(file, file_bytes) != 0
            ? MAP_FAILED
            : mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) {
        std::fprintf(stderr, "simcuda: SIMCUDA_SHARED=%s cannot be used\n", path.c_str());
        std::fflush(stderr);
        _Exit(2);
    }
    close(file);
    shared_ = static_cast<std::atomic<uint64_t>*>(mapped) + ordinal;
}

}  // namespace memlab::simcuda
