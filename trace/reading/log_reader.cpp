// A log with a ring is read in parts: its beginning, and the regions. If regions between them were
// overwritten, a checkpoint is delivered for what is missing.
#include "trace/reading/log_reader.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <optional>
#include <utility>

#include "trace/log_file.hpp"
#include "trace/log_format.hpp"
#include "trace/reading/log_decoder.hpp"
#include "trace/reading/log_input.hpp"
#include "trace/reading/ring_scan.hpp"

// Not in libmemlab.so: its stack frames may be large.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wframe-larger-than="

namespace memlab::trace {
namespace {

class Reader : private LogDecoder {
  public:
    Reader(LogInput& input, std::string name, RecordSink& sink, LogPart part)
        : LogDecoder(input, std::move(name), sink), part_(part) {}

    LogReadResult read() {
        if (header()) {
            if (ring_.regions == 0) {
                read_blocks();
            } else {
                read_ring();
                if (input_.error() != 0) {  // regions may seem not to be there
                    finish(LogStatus::damaged,
                           "cannot be read in every part: " + describe_errno(input_.error()));
                }
            }
        }
        result_.offset = input_.offset();
        return result_;
    }

  private:
    void begin_part(std::uint64_t offset, std::uint64_t end) {
        in_open_block_ = false;
        input_.seek(offset, end);
    }

    void read_ring() {
        result_.has_ring = true;
        RingContents ring = scan_ring(input_, ring_);
        auto newest = newest_for_sums(ring);
        if (!newest) {
            more_follows_ = ring.count != 0;
            begin_part(format::ring_file_header_size, ring_.beginning);
            read_blocks();
            if (!more_follows_ || stopped_) {
                result_.lacks_events = lacks_events(ring);
                return;
            }
            beginning_was_read_ = true;
            if (find_regions(input_, ring_).first != ring.first) {
                ring = scan_ring(input_, ring_);
                newest = newest_for_sums(ring);
            }
        }
        read_newest(std::move(ring), std::move(newest));
    }

    /// The regions. A process that writes faster than this reads overwrites what is to be read:
    /// then it goes on from a checkpoint that is there now.
    void read_newest(RingContents ring, std::optional<FoundCheckpoint> newest) {
        for (int laps = 0;; ++laps) {
            result_.lacks_events = lacks_events(ring);
            if (result_.lacks_events || laps != 0 || !beginning_was_read_) {
                read_from_checkpoint(ring, newest);
            } else {
                read_regions(ring, {0, format::region_header_size});
            }
            const bool overwritten = result_.status == LogStatus::damaged &&
                                     find_regions(input_, ring_).first != ring.first;
            if (!overwritten) {
                return;
            }
            if (laps == most_laps || part_ == LogPart::beginning) {
                was_overwritten();
                return;
            }
            stopped_ = false;  // what seemed to be damage was another lap's
            result_.status = LogStatus::not_a_log;
            result_.message.clear();
            ring = scan_ring(input_, ring_);
            newest = newest_for_sums(ring);
        }
    }

    static bool lacks_events(const RingContents& ring) {
        return ring.count != 0 && ring.first != 0;
    }

    /// From the oldest that there is on, or of sums from the newest.
    void read_from_checkpoint(const RingContents& ring,
                              const std::optional<FoundCheckpoint>& newest) {
        if (part_ == LogPart::beginning) {
            result_.gap = {.from_ns = latest_ns_, .to_ns = latest_ns_};
            finish(LogStatus::cut_off, "the part after " + here() + " was left out");
            return;
        }
        if (newest) {
            const auto missing = result_.lacks_events ? find_gap(ring) : std::nullopt;
            result_.gap.reset();
            read_from(ring, *newest);
            result_.gap = missing;
            return;
        }
        for (const FoundCheckpoint& checkpoint : ring.checkpoints) {
            if (checkpoint_time(input_, checkpoint)) {
                if (!result_.gap) {
                    result_.gap = {.from_ns = latest_ns_, .to_ns = latest_ns_};
                }
                read_from(ring, checkpoint);
                return;
            }
        }
        in_region_ = false;
        damaged("the checkpoint that the newest part begins with is missing");
    }

    /// The newest checkpoint that can be read; none where there is none, or more than sums is read.
    std::optional<FoundCheckpoint> newest_for_sums(const RingContents& ring) const {
        for (std::size_t i = part_ == LogPart::sums ? ring.checkpoints.size() : 0; i-- > 0;) {
            if (checkpoint_time(input_, ring.checkpoints[i])) {
                return ring.checkpoints[i];
            }
        }
        return std::nullopt;
    }

    /// What reading everything would find missing.
    std::optional<LogReadResult::Gap> find_gap(const RingContents& ring) {
        for (const FoundCheckpoint& checkpoint : ring.checkpoints) {
            if (const auto to_ns = checkpoint_time(input_, checkpoint)) {
                return LogReadResult::Gap{.from_ns = end_of_beginning(), .to_ns = *to_ns};
            }
        }
        return std::nullopt;
    }

    /// Delivers the checkpoint and what was recorded after it.
    void read_from(const RingContents& ring, const FoundCheckpoint& found) {
        in_region_ = false;
        if (checkpoint(found)) {
            read_regions(ring, found.position);
        }
    }

    void read_regions(const RingContents& ring, LogPosition from) {
        const std::uint64_t end = ring.first + ring.count;
        for (region_ = from.region; region_ != end && !stopped_; ++region_) {
            const std::uint64_t begin = ring_.offset(region_);
            const bool first = region_ == from.region;
            more_follows_ = region_ + 1 != end;
            in_region_ = true;
            begin_part(begin + (first ? from.offset : format::region_header_size),
                       begin + ring_.region_size);
            read_blocks();
            std::uint64_t number = 0;
            if (!stopped_ &&
                (!read_region_header(input_, ring_, region_, &number) || number != region_)) {
                was_overwritten();  // the zeros of the next lap look like the end of the data
            }
        }
    }

    static constexpr int most_laps = 3;

    const LogPart part_;
    bool beginning_was_read_ = false;
};

LogReadResult read_input(LogInput& input, const std::string& name, RecordSink& sink, LogPart part) {
    try {
        return Reader(input, name, sink, part).read();
    } catch (const std::bad_alloc&) {
        LogReadResult result;
        result.status = LogStatus::damaged;
        result.offset = input.offset();
        result.message = name + ": cannot be read further: no host memory";
        return result;
    }
}

}  // namespace

LogReadResult read_log(const std::string& path, RecordSink& sink,
                       std::atomic<std::uint64_t>* bytes_read, LogPart part) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        LogReadResult result;
        result.message = path + ": cannot be opened: " + describe_errno(errno);
        return result;
    }
    struct Closer {  // a sink may throw
        int descriptor;
        ~Closer() { close(descriptor); }
    };
    const Closer closer{descriptor};
    LogInput input(descriptor, bytes_read);
    input.stop_at_present_end();
    return read_input(input, path, sink, part);
}

LogReadResult read_log(const void* data, std::uint64_t size, RecordSink& sink, LogPart part) {
    LogInput input(static_cast<const std::uint8_t*>(data), static_cast<std::size_t>(size));
    return read_input(input, "event log", sink, part);
}

}  // namespace memlab::trace

#pragma GCC diagnostic pop
