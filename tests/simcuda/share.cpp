#include "tests/simcuda/share.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/simcuda/state.hpp"

namespace memlab::simcuda {
namespace {

constexpr char magic[8] = {'s', 'i', 'm', 'c', 'u', 'd', 'a', '1'};

}  // namespace

SharedName shared_name(const Physical& physical) {
    SharedName name{};
    std::memcpy(name.magic, magic, sizeof magic);
    name.process = getpid();
    name.file = physical.file();
    name.device = physical.device();
    name.offset = physical.offset();
    name.range_bytes = physical.bytes();
    name.bytes = physical.bytes();
    return name;
}

std::shared_ptr<Physical> open_shared(const SharedName& name) {
    if (std::memcmp(name.magic, magic, sizeof magic) != 0 || find_device(name.device) == nullptr) {
        return nullptr;
    }
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", name.process, name.file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    return file < 0 ? nullptr : Physical::import(name.device, file, name.offset, name.range_bytes);
}

}  // namespace memlab::simcuda
