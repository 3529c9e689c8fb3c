// How simulated device memory is named to another process: by the exporting process and its
// descriptor of the device's memfd, reached through /proc. Works while the exporter lives, between
// processes of one user.
#pragma once

#include <cstdint>
#include <memory>

#include "tests/simcuda/memory.hpp"

namespace memlab::simcuda {

struct SharedName {
    char magic[8];
    int32_t process;
    int32_t file;
    int32_t device;
    uint32_t into;  // from the physical range's begin to the allocation's
    uint64_t offset;
    uint64_t range_bytes;
    uint64_t bytes;
    uint64_t buffer_id;
};

SharedName shared_name(const Physical& physical);

// NULL: no such memory (any more), or not a name.
std::shared_ptr<Physical> open_shared(const SharedName& name);

}  // namespace memlab::simcuda
