// MEMLAB_LIMIT: how much of each device the program may see and use, and the arithmetic of seeing
// less than there is. Knows no CUDA, so that tests can ask it about any device.
//
// A limit makes a smaller GPU of a device: what the driver counts as used is used there as well
// (contexts, modules and other processes included), only the rest of the memory does not exist.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::interpose {

/// One entry of MEMLAB_LIMIT. It names a device by index, by UUID, or, with neither, every device
/// that no other entry names.
struct DeviceLimit {
    std::uint64_t bytes = 0;  ///< 0: no limit
    int index = -1;           ///< the driver's ordinal in this process
    std::string uuid;         ///< lower-case hexadecimal digits, as many as were given
};

/// Parses "24GiB", "24GiB,device=0", "24GiB,device=GPU-4f5c1c9a; 8GiB,device=1; 0". A UUID may be
/// cut off anywhere behind its prefix (GPU- or MIG-), as in CUDA_VISIBLE_DEVICES. False, and
/// `limits` as it was, on anything else, two entries for one device among it.
bool parse_limits(std::string_view text, std::vector<DeviceLimit>* limits);

/// The bytes that the limits leave of a device; 0: all. `uuid` is "GPU-..." or "MIG-...". An entry
/// that names the device wins over one that does not.
std::uint64_t limit_of(const std::vector<DeviceLimit>& limits, int index, std::string_view uuid);

/// A device's memory as a program sees it.
struct VisibleMemory {
    std::uint64_t free = 0;
    std::uint64_t total = 0;
};

/// What a program is to see of a device of which the driver says `free` and `total`, when `cached`
/// bytes of what is used are unused memory of memlab's pools, and with `limit` (0: none).
VisibleMemory visible_memory(std::uint64_t free, std::uint64_t total, std::uint64_t cached,
                             std::uint64_t limit);

/// The driver takes device memory in pages of this size.
inline constexpr std::uint64_t device_page = std::uint64_t{2} << 20;

/// Whether `bytes` more, in whole pages, stay within `limit` (0: none, always) on a device of which
/// the driver says `free` and `total`.
bool fits_limit(std::uint64_t bytes, std::uint64_t free, std::uint64_t total, std::uint64_t limit);

}  // namespace memlab::interpose
