// MEMLAB_LIMIT: parsing of per-device memory limits and the arithmetic of a smaller device.
// Independent of CUDA, so that tests can use any device size.
//
// A limit makes a device behave like a smaller one: all that the driver counts as used counts
// (contexts, modules and other processes included); only the memory beyond the limit does not
// exist.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::interpose {

/// One entry of MEMLAB_LIMIT. It names a device by index, by UUID, or, with neither, all devices
/// without an entry of their own.
struct DeviceLimit {
    std::uint64_t bytes = 0;  ///< 0: no limit
    int index = -1;           ///< the driver's ordinal in this process
    std::string uuid;         ///< lower-case hexadecimal digits, possibly a prefix
};

/// Parses "24GiB", "24GiB,device=0", "24GiB,device=GPU-4f5c1c9a; 8GiB,device=1; 0". A UUID may be
/// abbreviated to any prefix longer than GPU- or MIG-, as in CUDA_VISIBLE_DEVICES. False, with
/// `limits` unchanged, on any other text, including two entries for one device.
bool parse_limits(std::string_view text, std::vector<DeviceLimit>* limits);

/// The limit of a device in bytes; 0: none. `uuid` is "GPU-..." or "MIG-...". An entry that names
/// the device takes precedence.
std::uint64_t find_limit(const std::vector<DeviceLimit>& limits, int index, std::string_view uuid);

/// A device's memory as shown to the program.
struct VisibleMemory {
    std::uint64_t free = 0;
    std::uint64_t total = 0;
};

/// The memory to show for a device with `free` and `total` bytes according to the driver, of which
/// `cached` used bytes are unused memory of memlab's pools, and with `limit` (0: none).
VisibleMemory visible_memory(std::uint64_t free, std::uint64_t total, std::uint64_t cached,
                             std::uint64_t limit);

/// Page size in which the driver takes device memory.
inline constexpr std::uint64_t device_page = std::uint64_t{2} << 20;

/// Whether `bytes` more, in whole pages, fit within `limit` (0: none, always true) on a device with
/// `free` and `total` bytes according to the driver.
bool fits_limit(std::uint64_t bytes, std::uint64_t free, std::uint64_t total, std::uint64_t limit);

}  // namespace memlab::interpose
