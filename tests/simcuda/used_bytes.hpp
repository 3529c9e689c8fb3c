// How much of a device is in use: by this process, or, with SIMCUDA_SHARED, by all processes that
// name the same file. There the memory itself is still each process's own; only the sizes are
// shared, so that one runs out of memory because of another. What a process has not given back at
// its exit is given back then; one that is killed keeps it.
#pragma once

#include <atomic>
#include <cstdint>

namespace memlab::simcuda {

// To be used with the driver's lock held. Processes that take memory at the same time may take more
// than there is.
class UsedBytes {
  public:
    // Shares it by the file of SIMCUDA_SHARED, if that is set.
    void share(int ordinal);

    operator uint64_t() const { return shared_ != nullptr ? shared_->load() : own_; }
    void operator+=(uint64_t bytes) {
        set_own(own_ + bytes);
        if (shared_ != nullptr) {
            shared_->fetch_add(bytes);
        }
    }
    void operator-=(uint64_t bytes) {
        set_own(own_ - bytes);
        if (shared_ != nullptr) {
            shared_->fetch_sub(bytes);
        }
    }
    uint64_t own() const;

    // At the process's exit.
    void give_back();

    // Another process's are given back, or taken again: its memory is checkpointed, or restored.
    void shift_others(int64_t bytes) {
        if (shared_ != nullptr) {
            shared_->fetch_add(static_cast<uint64_t>(bytes));
        }
    }

  private:
    void set_own(uint64_t bytes);

    uint64_t own_ = 0;
    int ordinal_ = 0;
    std::atomic<uint64_t>* shared_ = nullptr;
};

}  // namespace memlab::simcuda
