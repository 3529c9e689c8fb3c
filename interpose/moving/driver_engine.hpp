// Steps aside by the driver's own checkpoint (cuCheckpointProcess*), which takes along what the
// pool's engine has to leave: contexts, code, all memory. It is made by a helper (helper.hpp).
//
// While the process is locked by it every call of the driver blocks. So the gate is shut first and
// all that memlab makes of calls is waited for; then memlab's own calls are kept from the driver.
// The driver's states decide what is next, whatever became of the helper that was asked: what was
// locked is checkpointed or unlocked, what was checkpointed is restored. Restoring without room can
// end a process, so it waits until NVML says that there is enough.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "interpose/memory/memory.hpp"
#include "interpose/moving/helper.hpp"

namespace memlab::interpose {

/// Of one device, what left by the driver.
struct CheckpointedMemory {
    CUdevice device = -1;
    std::string uuid;
    std::uint64_t bytes = 0;        ///< that became free, by NVML, but not less than least_bytes
    std::uint64_t least_bytes = 0;  ///< that the program and memlab's pool had of it at last
    std::uint64_t free_after = 0;   ///< of the device, by NVML
    std::uint64_t used_before = 0;  ///< of the device, by the driver
    std::uint64_t total = 0;
};

/// Thread-safety: of the mover's thread, except where said.
class DriverEngine {
  public:
    explicit DriverEngine(const std::atomic<bool>& stopping)
        : stopping_(stopping), helper_(stopping) {}

    /// Why this process cannot be checkpointed, by what is known without waiting; empty: it can.
    /// May throw std::bad_alloc.
    static std::string why_not(Memory& memory);

    /// Has a helper, and finds out whether it may and can. Call while the gate is open. Empty, or
    /// why not. May throw std::bad_alloc.
    std::string begin(Memory& memory);

    /// What of each device is known to leave, by what memlab's pools and the table of allocations
    /// have now.
    void count_known(Memory& memory);

    enum class Left : std::uint8_t { away, stayed, lost };
    /// Behind draining. `stayed`: everything is as before; *problem says why, also of `lost`.
    Left leave(Memory& memory, std::uint64_t timeout_ns, std::string* problem);

    enum class Returned : std::uint8_t { back, no_room, not_yet, lost };
    /// One try. `others`: more bytes that have to come back to each device, in the order of
    /// memory(). no_room: *lacking is the device, whose room is too small. When it is back calls
    /// reach the driver again, and the gate is not shut any more.
    Returned come_back(const std::vector<std::uint64_t>& others, std::size_t* lacking,
                       std::string* problem);

    /// What is away, or was at last.
    const std::vector<CheckpointedMemory>& memory() const { return memory_; }
    /// Any thread's.
    bool away() const { return away_.load(); }
    std::uint64_t away_bytes() const { return away_.load() ? away_bytes_.load() : 0; }
    bool lost() const { return lost_.load(); }
    /// What the driver said of the process's only device before it was locked; false: it has
    /// several. Any thread's, while the gate is shut.
    bool known_memory(CUdevice* device, std::size_t* free, std::size_t* total) const;
    Helper& helper() { return helper_; }

  private:
    static constexpr int unknown = -1;

    int find_state(std::uint64_t max_wait_ns);
    bool read_free(std::vector<std::uint64_t>* bytes);
    std::string lock(std::uint64_t timeout_ns);
    Left checkpoint(std::string* problem);
    bool unlock();
    Left declare_lost(std::string* problem);

    const std::atomic<bool>& stopping_;
    Helper helper_;
    std::vector<CheckpointedMemory> memory_;
    std::atomic<bool> away_{false};
    std::atomic<bool> lost_{false};
    std::atomic<std::uint64_t> away_bytes_{0};
    std::atomic<CUdevice> only_device_{-1};
    std::atomic<std::uint64_t> known_free_{0};
    std::atomic<std::uint64_t> known_total_{0};
    int failures_ = 0;
    int last_error_ = 0;
};

}  // namespace memlab::interpose
