// What /proc says of a process that holds GPU memory: whose it is, what it runs, in which
// container, since when, and whether anybody still waits for it. Root sees everything; others see
// what the system shows them, and what is hidden stays empty.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::tools {

struct ProcessFacts {
    pid_t pid = 0;
    bool visible = false;  ///< false: it has ended, is hidden, or is of another pid namespace
    pid_t parent = 0;
    std::string name;            ///< of the program or the main thread, as `ps` shows it
    std::string command;         ///< its arguments, on one line; without arguments "[name]"
    std::string parent_command;  ///< empty: unknown
    std::string directory;       ///< its working directory; empty: not to be seen
    std::string user;
    uid_t uid = 0;
    bool of_another = false;          ///< user than this one, who is not root
    std::uint64_t start_ticks = 0;    ///< since the machine's start: with the pid it is unique
    std::uint64_t start_wall_ns = 0;  ///< 0: unknown
    char state = '?';                 ///< 'R', 'S', 'D', 'Z', 'T', ...
    std::string cgroup;               ///< its path; empty: the root, or unknown
    std::string container;            ///< the first 12 digits of its id, or its name; empty: none
    bool zombie = false;              ///< its main thread has ended
    bool threads_left = false;        ///< while others of its threads have not
    bool is_ending = false;           ///< these are about to: the process exits, or was killed
    /// The one that started it has ended: it belongs to init, or to a manager that adopts.
    bool parent_gone = false;
    /// So has the leader of its process group: the program that it was a part of.
    bool leader_gone = false;
    /// A process of multiprocessing, or a worker of PyTorch's DataLoader.
    bool worker = false;
};

/// The id of the container in a cgroup's path, of Docker, containerd, CRI-O, Podman, LXC or
/// systemd: its first 12 digits, or its name. Empty: it is in none.
std::string container_of(std::string_view cgroup);

/// A process with the GPU driver's files open.
struct OpenDevices {
    pid_t pid = 0;
    std::vector<unsigned> minors;  ///< /dev/nvidia0 is 0
    bool uvm = false;              ///< /dev/nvidia-uvm: CUDA has been started in it
};

/// Thread-safety: none. Throws std::bad_alloc only.
class ProcessTable {
  public:
    /// `proc` is where procfs is.
    explicit ProcessTable(std::string proc = "/proc");

    ProcessFacts of(pid_t pid);
    /// The same as facts have; 0: it is not visible. Costs a sixth.
    std::uint64_t start_ticks(pid_t pid) const;

    /// All that may be looked at. Reads the descriptors of every process: not for each second.
    std::vector<OpenDevices> with_open_devices() const;

    /// Whether process ids here are those of the machine, which NVML tells.
    bool has_pids_of_the_host() const;

  private:
    std::string user_name(uid_t uid);

    std::string proc_;
    std::uint64_t boot_wall_ns_ = 0;
    std::vector<std::pair<uid_t, std::string>> users_;
};

}  // namespace memlab::tools
