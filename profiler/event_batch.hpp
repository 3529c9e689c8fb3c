// A compact FIFO of records that await aggregation, nearly all events and device samples; compact
// because every cache line written here evicts one of the program's.
//
// Delta encoding: most fields of an event (device, thread, called function ...) equal those of the
// last one of its type. Such an event takes four words, half a cache line. One that differs is
// stored whole and becomes the template of the next ones.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <tuple>
#include <utility>
#include <variant>

#include "trace/event_codec.hpp"
#include "trace/prefetch.hpp"
#include "trace/record.hpp"

namespace memlab::profiler {

/// The delta encoder's state: per slot the last event that was stored whole. The writer and the
/// reader of batches have one each, and process the same events in the same order.
class EventTemplates {
  public:
    static constexpr std::size_t slot_count = 32;
    /// A free_requested that was complete at once. Other slots are event types.
    static constexpr std::size_t freed_slot = slot_count - 1;
    static std::size_t slot(trace::EventType type) { return static_cast<std::size_t>(type); }

    trace::Event& operator[](std::size_t slot) { return events_[slot]; }

    /// Prefetches for an add() of that slot.
    void prefetch(std::size_t slot) const noexcept {
        trace::prefetch_to_write<sizeof(trace::Event)>(&events_[slot]);
    }

  private:
    alignas(64) std::array<trace::Event, slot_count> events_;
};

/// Thread-safety: none.
class EventBatch {
  public:
    /// Capacity for `records` delta-encoded events, fewer of others. Untouched pages are never
    /// committed. Throws std::bad_alloc.
    explicit EventBatch(std::size_t records)
        : lines_(std::make_unique_for_overwrite<Line[]>(
              (records * short_words + long_words) / words_of_line + 1)),
          next_(words()),
          end_(next_ + records * short_words) {}

    /// Exchanges the contents; both were made for as many records.
    void swap(EventBatch& other) noexcept {
        lines_.swap(other.lines_);
        std::swap(next_, other.next_);
        std::swap(end_, other.end_);
        std::swap(size_, other.size_);
    }

    ~EventBatch() {
        for (const std::uint64_t* at = words(); at != next_;) {
            if (*at == other_mark) {
                delete reinterpret_cast<trace::AnyRecord*>(at[1]);
                at += other_words;
            } else if (*at == sample_mark) {
                at += sample_words;
            } else {
                at += *at >> time_bits < EventTemplates::slot_count ? short_words : long_words;
            }
        }
    }
    EventBatch(const EventBatch&) = delete;
    EventBatch& operator=(const EventBatch&) = delete;

    /// Must not be full(). `slot`: the type's, or `freed_slot` for a free_requested that stands for
    /// its free_completed, too.
    void add(const trace::Event& event, std::size_t slot, EventTemplates& templates) {
        trace::Event& last = templates[slot];
        const std::uint64_t too_large =
            event.time_ns >> time_bits | (event.requested | event.size) >> 32;
        if ((difference(event, last) | too_large) == 0) [[likely]] {
            next_[0] = std::uint64_t{slot} << time_bits | event.time_ns;
            next_[1] = event.address;
            next_[2] = event.size << 32 | event.requested;
            next_[3] = std::uint64_t{event.nn_modules} << 32 | event.stack;
            next_ += short_words;
        } else {
            last = event;
            next_[0] = std::uint64_t{slot + EventTemplates::slot_count} << time_bits;
            std::memcpy(next_ + 1, &event, sizeof event);
            next_ += long_words;
        }
        ++size_;
    }
    /// Whether add_short() takes that event.
    static bool fits_short(const trace::ShortEvent& event) {
        return (event.time_ns >> time_bits | event.bytes >> 32) == 0;
    }
    /// An event that in all else equals the last one of its slot. Must not be full().
    void add_short(const trace::ShortEvent& event, std::size_t slot) {
        next_[0] = std::uint64_t{slot} << time_bits | event.time_ns;
        next_[1] = event.address;
        next_[2] = event.bytes << 32 | event.bytes;
        next_[3] = std::uint64_t{event.nn_modules} << 32 | event.stack;
        next_ += short_words;
        ++size_;
    }
    void add(const trace::DeviceSample& sample) {
        const std::uint64_t device = sample.device | std::uint64_t{sample.worked} << 32;
        const std::uint64_t words[] = {sample_mark, sample.time_ns, device,
                                       sample.used, sample.total,   sample.pools};
        static_assert(std::size(words) <= sample_words);
        std::memcpy(next_, words, sizeof words);
        next_ += sample_words;
        ++size_;
    }

    /// Any other record; rare. May throw std::bad_alloc, without a change.
    void add(std::unique_ptr<trace::AnyRecord> record) {
        next_[0] = other_mark;
        next_[1] = reinterpret_cast<std::uintptr_t>(record.release());
        next_ += other_words;
        ++size_;
    }

    bool full() const { return next_ >= end_; }
    std::size_t size() const { return size_; }
    /// Where the next record is written.
    const void* next() const { return next_; }

    /// Passes all records to sink.on() and sink.on_freed(), in order, and empties the batch.
    template <class Sink>
    void drain(Sink& sink, EventTemplates& templates) {
        for (const std::uint64_t* at = words(); at != next_;) {
            if (*at == sample_mark) {
                sink.on(trace::DeviceSample{.time_ns = at[1],
                                            .device = static_cast<std::uint32_t>(at[2]),
                                            .used = at[3],
                                            .total = at[4],
                                            .pools = at[5],
                                            .worked = (at[2] >> 32) != 0});
                at += sample_words;
                continue;
            }
            if (*at == other_mark) {
                const std::unique_ptr<trace::AnyRecord> record(
                    reinterpret_cast<trace::AnyRecord*>(at[1]));
                std::visit([&sink](const auto& each) { sink.on(each); }, *record);
                at += other_words;
                continue;
            }
            const std::uint64_t tag = *at >> time_bits;
            const std::size_t slot = tag % EventTemplates::slot_count;
            trace::Event& event = templates[slot];
            if (tag == slot) {
                event.time_ns = *at & time_mask;
                event.address = at[1];
                event.requested = at[2] & UINT32_MAX;
                event.size = at[2] >> 32;
                event.stack = static_cast<std::uint32_t>(at[3]);
                event.nn_modules = static_cast<std::uint32_t>(at[3] >> 32);
                at += short_words;
            } else {
                EventWords words;
                std::memcpy(words.data(), at + 1, sizeof words);
                event = std::bit_cast<trace::Event>(words);
                at += long_words;
            }
            if (slot == EventTemplates::freed_slot) {
                sink.on_freed(event);
            } else {
                sink.on(event);
            }
        }
        next_ = words();
        size_ = 0;
    }

  private:
    /// 0 if the events are equal in the fields that the short form omits. Branch-free.
    static std::uint64_t difference(const trace::Event& a, const trace::Event& b) {
        const auto number = [](auto value) { return static_cast<std::uint64_t>(value); };
        return (number(a.kind) ^ number(b.kind)) | (number(a.origin) ^ number(b.origin)) |
               (a.device ^ b.device) | (a.context ^ b.context) | (a.thread ^ b.thread) |
               (a.api ^ b.api) | (a.name ^ b.name) | (a.correlation ^ b.correlation) |
               (a.stream ^ b.stream);
    }

    // A record's first word: in the upper bits the slot, plus slot_count if the event is stored
    // whole; below it the time if it is not.
    static constexpr unsigned time_bits = 56;
    static constexpr std::uint64_t time_mask = (std::uint64_t{1} << time_bits) - 1;
    static constexpr std::uint64_t sample_mark = ~std::uint64_t{0};
    static constexpr std::uint64_t other_mark = sample_mark - 1;

    using EventWords = std::array<std::uint64_t, sizeof(trace::Event) / sizeof(std::uint64_t)>;
    static constexpr std::size_t short_words = 4;
    // Multiples of short_words, so that a short event lies in one cache line.
    static constexpr std::size_t long_words =
        (std::tuple_size_v<EventWords> / short_words + 1) * short_words;
    static constexpr std::size_t sample_words = 2 * short_words;
    static constexpr std::size_t other_words = short_words;
    static_assert(sample_words <= long_words);

    static constexpr std::size_t words_of_line = 2 * short_words;
    struct alignas(64) Line {
        std::uint64_t words[words_of_line];
    };
    std::uint64_t* words() const { return lines_[0].words; }

    std::unique_ptr<Line[]> lines_;
    std::uint64_t* next_;
    std::uint64_t* end_;
    std::size_t size_ = 0;
};

}  // namespace memlab::profiler
