#include "trace/reading/log_tail.hpp"

#include <atomic>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "trace/log_format.hpp"
#include "trace/reading/log_decoder.hpp"
#include "trace/reading/log_input.hpp"
#include "trace/reading/ring_scan.hpp"
#include "trace/record_codec.hpp"

// Not in libmemlab.so: its stack frames may be large.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wframe-larger-than="

namespace memlab::trace {
namespace {

/// The bytes of the log; before what refers to them.
struct OpenLog {
    explicit OpenLog(int descriptor) : input(descriptor, &bytes_read) {}

    std::atomic<std::uint64_t> bytes_read{0};
    LogInput input;
};

}  // namespace

class LogTail::Impl : private OpenLog, private LogDecoder {
  public:
    Impl(int descriptor, std::string name, RecordSink& sink, LogPart part)
        : OpenLog(descriptor),
          LogDecoder(OpenLog::input, std::move(name), sink, true),
          part_(part) {
        result_.status = LogStatus::cut_off;
        passed_ = &checkpoints_;
    }

    const LogReadResult& read() {
        if (is_over()) {
            return result_;
        }
        if (!began_ && !begin()) {
            return result_;
        }
        read_dropped_again();
        if (ring_.regions == 0) {
            input_.seek(offset_, std::numeric_limits<std::uint64_t>::max());
            input_.stop_at_present_end();
            go_on();
        } else {
            read_parts();
        }
        result_.offset = offset_;
        return result_;
    }

    std::uint64_t laps() const { return laps_; }
    std::uint64_t bytes() const { return bytes_read.load(std::memory_order_relaxed); }
    int error() const { return LogDecoder::input_.error(); }

  private:
    bool is_over() const { return stopped_ || result_.status != LogStatus::cut_off; }

    bool begin() {
        input_.seek(0, std::numeric_limits<std::uint64_t>::max());
        if (!header()) {
            return false;
        }
        began_ = true;
        offset_ = input_.offset();
        if (ring_.regions != 0) {
            offset_ = format::ring_file_header_size;
            result_.has_ring = true;
            if (part_ == LogPart::sums) {
                skip_to_checkpoint();  // none: from the beginning on
            }
        }
        return true;
    }

    /// From the input's position to the end of the data, or of the input's limit.
    void go_on() {
        read_blocks();
        offset_ = input_.offset();
    }

    void read_parts() {
        // No further than the log goes now: a writer that is faster than this reads would be
        // followed without end.
        std::optional<std::uint64_t> last = newest_region();
        int laps = 0;
        while (!stopped_) {
            // Asked before the part is read: if the next one was begun, this one is complete.
            const std::uint64_t next = in_region_ ? region_ + 1 : 0;
            const std::optional<std::uint64_t> there = number_at(next);
            input_.seek(offset_,
                        in_region_ ? ring_.offset(region_) + ring_.region_size : ring_.beginning);
            go_on();
            const bool overwritten = in_region_ && number_at(region_) != region_;
            if (overwritten || there.value_or(next) > next) {
                if (!go_on_after_lap() || ++laps == most_laps) {
                    break;
                }
                last = newest_region();
                continue;
            }
            if (stopped_ || there != next || !last || next > *last) {
                break;
            }
            enter(next, format::region_header_size);
        }
        find_missing();
    }

    std::optional<std::uint64_t> newest_region() const {
        const RingContents regions = find_regions(input_, ring_);
        return regions.count != 0 ? std::optional(regions.first + regions.count - 1) : std::nullopt;
    }

    void enter(std::uint64_t region, std::uint64_t offset) {
        in_region_ = true;
        in_open_block_ = false;
        region_ = region;
        offset_ = ring_.offset(region) + offset;
    }

    /// The number of the region at the place of that one, if one is there.
    std::optional<std::uint64_t> number_at(std::uint64_t region) const {
        std::uint64_t number = 0;
        return read_region_header(input_, ring_, region, &number) ? std::optional(number)
                                                                  : std::nullopt;
    }

    /// False: not now, or never again.
    bool go_on_after_lap() {
        ++laps_;
        // What seemed to be damage was another lap's.
        stopped_ = false;
        result_.status = LogStatus::cut_off;
        if (part_ == LogPart::everything && !result_.gap) {
            result_.gap = {.from_ns = latest_ns_, .to_ns = latest_ns_};
        }
        if (skip_to_checkpoint()) {
            return true;
        }
        if (++failed_laps_ == most_failed_laps) {
            damaged("the checkpoint that the newest part begins with is missing");
        }
        return false;
    }

    /// Delivers the newest checkpoint, or of everything the oldest: its position is where to go on.
    bool skip_to_checkpoint() {
        CheckpointIndex found;
        const RingContents ring = scan_ring(input_, ring_, &found);
        std::vector<FoundCheckpoint> order = ring.checkpoints;
        if (part_ == LogPart::sums) {
            order = {order.rbegin(), order.rend()};
        }
        for (const FoundCheckpoint& each : order) {
            if (!checkpoint_time(input_, each)) {
                continue;
            }
            const auto kept =
                std::exchange(result_.gap, part_ == LogPart::sums ? std::nullopt : result_.gap);
            in_region_ = false;
            if (!checkpoint(each)) {  // overwritten meanwhile
                stopped_ = false;
                result_.status = LogStatus::cut_off;
                result_.gap = kept;
                return false;
            }
            checkpoints_ = std::move(found);
            enter(each.position.region, each.position.offset);
            failed_laps_ = 0;
            return true;
        }
        return false;
    }

    /// What reading the log as it is now would find missing.
    void find_missing() {
        const RingContents regions = find_regions(input_, ring_);
        const bool lacks = regions.count != 0 && regions.first != 0;
        if (part_ != LogPart::sums) {
            result_.lacks_events = result_.gap.has_value();
            return;
        }
        result_.lacks_events = lacks;
        result_.gap.reset();
        if (!lacks) {
            return;
        }
        checkpoints_.forget_before(regions.first);
        for (const FoundCheckpoint& each : checkpoints_.complete(regions, ring_)) {
            auto [at, is_new] = times_.try_emplace(each.number);
            if (is_new) {
                at->second = checkpoint_time(input_, each);
            }
            if (at->second) {
                times_.erase(times_.begin(), at);
                if (!beginning_ended_ns_) {
                    beginning_ended_ns_ = end_of_beginning();
                }
                result_.gap = {.from_ns = *beginning_ended_ns_, .to_ns = *at->second};
                return;
            }
        }
    }

    /// The record that the log stopped is overwritten while the process goes on.
    void read_dropped_again() {
        if (stop_offset_ == 0) {
            return;
        }
        input_.seek(stop_offset_, std::numeric_limits<std::uint64_t>::max());
        const std::size_t size = input_.need(std::size_t{64} << 10);
        LogStopped record;
        DifferenceBases bases;
        if (size != 0 && *input_.data() == record_tag<LogStopped>) {
            ByteReader from(input_.data() + 1, input_.data() + size);
            if (RecordDecoder(from, bases).decode(record) == DecodeStatus::ok &&
                record.events_dropped != dropped_) {
                dropped_ = record.events_dropped;
                sink_.on(record);
                ++result_.records;
            }
        }
    }

    static constexpr int most_laps = 2;  ///< of a look
    static constexpr int most_failed_laps = 5;

    const LogPart part_;
    bool began_ = false;
    std::uint64_t offset_ = 0;  ///< in the file, where to go on
    std::uint64_t laps_ = 0;
    int failed_laps_ = 0;
    CheckpointIndex checkpoints_;  ///< of what was read, and is still there
    std::map<std::uint32_t, std::optional<std::uint64_t>> times_;  ///< of these, by number
    std::optional<std::uint64_t> beginning_ended_ns_;
};

LogTail::LogTail(int descriptor, std::string name, RecordSink& sink, LogPart part)
    : impl_(std::make_unique<Impl>(descriptor, std::move(name), sink, part)) {}
LogTail::~LogTail() = default;

const LogReadResult& LogTail::read() {
    return impl_->read();
}
std::uint64_t LogTail::laps() const {
    return impl_->laps();
}
std::uint64_t LogTail::bytes_read() const {
    return impl_->bytes();
}
int LogTail::error() const {
    return impl_->error();
}

}  // namespace memlab::trace

#pragma GCC diagnostic pop
