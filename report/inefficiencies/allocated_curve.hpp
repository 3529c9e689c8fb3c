// The allocated curve of a log, exact, in a few bytes for each allocation: what else would take
// reading the log once more.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "trace/event_codec.hpp"

namespace memlab::report {

/// Thread-safety: none.
class AllocatedCurve {
  public:
    /// `max_bytes`: of memory; by default for twenty million allocations, about.
    explicit AllocatedCurve(std::size_t max_bytes = std::size_t{64} << 20)
        : max_blocks_(max_bytes / block_size) {}

    /// What is allocated on a device after the event of this number, which never decreases. May
    /// throw std::bad_alloc.
    void add(std::uint64_t number, std::uint32_t device, std::uint64_t allocated) {
        if (blocks_.empty() || block_size - blocks_.back().size() < max_entry) {
            if (blocks_.size() == max_blocks_) {
                blocks_.clear();
                overflowed_ = true;
            }
            if (overflowed_) {
                return;
            }
            blocks_.emplace_back().reserve(block_size);
        }
        std::array<std::uint8_t, max_entry> entry;
        std::uint8_t* to = entry.data();
        const bool other = device != device_;
        to = trace::put_number(to, (number - number_) << 1 | static_cast<std::uint64_t>(other));
        if (other) {
            to = trace::put_number(to, device);
        }
        to = trace::put_number(to, trace::zigzag(allocated - allocated_));
        blocks_.back().insert(blocks_.back().end(), entry.data(), to);
        number_ = number;
        device_ = device;
        allocated_ = allocated;
    }

    /// False: there were more than it can hold, and it has none.
    bool complete() const { return !overflowed_; }

    /// visit(number, device, allocated) for all, in order.
    template <typename Visit>
    void for_each(Visit visit) const {
        std::uint64_t number = 0;
        std::uint32_t device = 0;
        std::uint64_t allocated = 0;
        for (const std::vector<std::uint8_t>& block : blocks_) {
            trace::ByteReader from(block.data(), block.data() + block.size());
            while (!from.at_end()) {
                std::uint64_t step = 0;
                from.number(step);
                number += step >> 1;
                if ((step & 1) != 0) {
                    from.number(device);
                }
                from.difference(allocated, allocated);
                visit(number, device, allocated);
            }
        }
    }

  private:
    static constexpr std::size_t block_size = std::size_t{1} << 20;
    static constexpr std::size_t max_entry = 3 * trace::max_number_size;

    std::size_t max_blocks_;
    std::vector<std::vector<std::uint8_t>> blocks_;
    std::uint64_t number_ = 0;
    std::uint32_t device_ = 0;
    std::uint64_t allocated_ = 0;
    bool overflowed_ = false;
};

}  // namespace memlab::report
