// Writes records into a log of bounded size, with the checkpoints that it wants: what the recorder
// does (profiler/checkpointer.hpp), without its thread and so the same at each run.
#pragma once

#include <cstddef>
#include <memory>

#include "trace/aggregate/aggregator.hpp"
#include "trace/checkpoint_blocks.hpp"
#include "trace/log_writer.hpp"

namespace memlab::test {

class RingLog final : public trace::GenericSink<RingLog> {
  public:
    /// `log` must outlive it.
    explicit RingLog(trace::LogWriter& log) : log_(log) {}

    template <typename Record>
    void take(const Record& record) {
        log_.on(record);
        figures_.on(record);
        if (++count_ % records_per_block == 0) {
            continue_checkpoint();
        }
    }

  private:
    using Step = trace::LogWriter::CheckpointStep;
    static constexpr std::size_t records_per_block = 20;

    void continue_checkpoint() {
        if (blocks_ == nullptr) {
            if (!log_.wants_checkpoint()) {
                return;
            }
            blocks_ = log_.begin_checkpoint();
            figures_.checkpoint(*blocks_);
            blocks_->finish();
            next_ = 0;
        }
        const Step step = log_.append_checkpoint(*blocks_, next_);
        if (step == Step::more) {
            ++next_;
        } else if (step == Step::complete) {
            blocks_.reset();
        }
    }

    trace::LogWriter& log_;
    trace::Aggregator figures_;
    std::unique_ptr<trace::CheckpointBlocks> blocks_;
    std::size_t next_ = 0;
    std::size_t count_ = 0;
};

}  // namespace memlab::test
