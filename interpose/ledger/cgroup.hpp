// What the cgroup (version 2) of this process allows it of a GPU's memory, by the kernel's `dmem`
// controller (Linux 6.14): the files dmem.max, dmem.min and dmem.current of each cgroup have a line
// for each region of device memory, "drm/0000:03:00.0/vram0 8589934592", or "max" for no limit.
//
// A cgroup is bounded by its own limit and by those of all cgroups above it, as far up as this
// process can see: the root of what is mounted. The one with least room counts. Nothing is assumed
// of what the files hold: lines that are not of this form are passed over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace memlab::interpose {

/// The most that is read of any of these files. Lines beyond it are not seen.
inline constexpr std::size_t max_cgroup_file_bytes = std::size_t{64} << 10;

/// Where the cgroup of a process lies. Empty strings: not visible.
struct CgroupPlace {
    std::string path;       ///< in the cgroup namespace: "/system.slice/a.service"
    std::string directory;  ///< of that cgroup
    std::string top;  ///< the highest directory that is visible, where the hierarchy is mounted
};

/// From the texts of /proc/PID/cgroup and of /proc/self/mountinfo. May throw std::bad_alloc.
CgroupPlace find_cgroup(std::string_view cgroup, std::string_view mounts);

/// That of this process; `proc` is where procfs is. May throw std::bad_alloc.
CgroupPlace own_cgroup(const std::string& proc = "/proc");

/// "/system.slice/a.service" of /proc/PID/cgroup's text; empty: no cgroup of version 2.
std::string_view cgroup_path(std::string_view cgroup);

/// What a cgroup may have of a GPU's memory. Bytes.
struct CgroupLimit {
    static constexpr std::uint64_t unlimited = ~std::uint64_t{0};
    std::string path;  ///< the cgroup whose limit it is, as CgroupPlace::path; "/": the top
    std::uint64_t limit = unlimited;
    std::uint64_t used = 0;        ///< by all processes of that cgroup and of those below it
    std::uint64_t guaranteed = 0;  ///< dmem.min
    std::uint64_t capacity = 0;    ///< of the region; 0: only the machine's root cgroup tells
    std::uint64_t room() const { return limit - (used < limit ? used : limit); }
};

/// The tightest of all that bound this place. `pci` is the GPU's address, "0000:03:00.0", which the
/// names of its regions contain. None: no cgroup with these files, or none that knows the GPU. May
/// throw std::bad_alloc.
std::optional<CgroupLimit> dmem_limit(const CgroupPlace& place, std::string_view pci);

/// How much host memory this place leaves, by memory.max and memory.current;
/// CgroupLimit::unlimited: it has no limit. May throw std::bad_alloc.
std::uint64_t memory_room(const CgroupPlace& place);

/// The value of a GPU's region in one of these files: of those named "vram...", else of all, the
/// smallest. Values beyond 2^63 are no limit. None: the GPU has no line.
std::optional<std::uint64_t> dmem_value(std::string_view file, std::string_view pci);

/// Whether a process, by its id in the pid namespace that `proc` is of, is in this process's pid
/// namespace and in its cgroup or one below that. None: it has ended, or is hidden. May throw
/// std::bad_alloc.
std::optional<bool> is_in_own_cgroup(std::uint32_t pid, const std::string& proc = "/proc");

}  // namespace memlab::interpose
