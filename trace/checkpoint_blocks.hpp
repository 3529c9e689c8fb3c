// Encodes a checkpoint into blocks for the event log. The blocks are finished before the log gets
// them, so adding one costs the log a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/log_ring.hpp"
#include "trace/record_codec.hpp"
#include "trace/record_sink.hpp"

namespace memlab::trace {

/// The sink that a checkpoint is passed to. May throw std::bad_alloc. Thread-safety: none.
class CheckpointBlocks final : public GenericSink<CheckpointBlocks> {
  public:
    /// Of a block's payload; exceeded by less than one record.
    static constexpr std::size_t target = std::size_t{32} << 10;

    /// Of a checkpoint of everything that was recorded before `position`.
    CheckpointBlocks(std::uint32_t number, LogPosition position)
        : number_(number), position_(position) {}

    void take(const Event& /*record*/) {}
    template <typename Record>
    void take(const Record& record) {
        if (blocks_.empty() || blocks_.back().size() >= target) {
            begin_block();
        }
        RecordEncoder(blocks_.back(), bases_).encode(record);
    }

    /// Completes all blocks. Nothing may be passed afterwards.
    void finish();

    LogPosition position() const { return position_; }
    const std::vector<std::vector<std::uint8_t>>& blocks() const { return blocks_; }
    /// All blocks together, in bytes.
    std::uint64_t size() const;

  private:
    void begin_block();

    std::uint32_t number_;
    LogPosition position_;
    DifferenceBases bases_{};
    std::vector<std::vector<std::uint8_t>> blocks_;
};

}  // namespace memlab::trace
