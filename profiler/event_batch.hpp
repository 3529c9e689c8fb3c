// The records that a program makes all the time, kept in order in little room until they are added
// up: what is written down here drives the program's own data out of the processor's caches.
//
// Most of an event is as it was in the last one of its type: the device, the thread, the function
// that was called. Such an event takes four words, half a cache line. One that differs is kept
// whole, and the next ones are like it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <tuple>

#include "trace/prefetch.hpp"
#include "trace/record.hpp"

namespace memlab::profiler {

/// What an event of each sort is unless it says otherwise: the last one that was kept whole. One
/// goes along with what is put into batches, a second one with what is taken out of them, in the
/// same order.
class EventTemplates {
  public:
    static constexpr std::size_t sorts = 32;
    /// A free_requested that was complete at once; below it an event's type is its sort.
    static constexpr std::size_t freed = sorts - 1;
    static std::size_t sort_of(trace::EventType type) { return static_cast<std::size_t>(type); }

    trace::Event& operator[](std::size_t sort) { return events_[sort]; }

    /// An event of that sort will come soon.
    void prefetch(std::size_t sort) const noexcept {
        trace::prefetch_to_write<sizeof(trace::Event)>(&events_[sort]);
    }

  private:
    alignas(64) std::array<trace::Event, sorts> events_;
};

/// Thread-safety: none.
class EventBatch {
  public:
    /// Room for `records` that take four words each; of others there are fewer. Throws
    /// std::bad_alloc. Memory that nothing was put into is not there.
    explicit EventBatch(std::size_t records)
        : words_(
              std::make_unique_for_overwrite<std::uint64_t[]>(records * short_words + long_words)),
          next_(words_.get()),
          end_(next_ + records * short_words) {}

    /// Not when full(). `sort`: its type's, or `freed` where the free_completed that it has at once
    /// is meant, too.
    void add(const trace::Event& event, std::size_t sort, EventTemplates& usual) {
        trace::Event& last = usual[sort];
        const std::uint64_t too_large =
            event.time_ns >> time_bits | (event.requested | event.size) >> 32;
        if ((difference(event, last) | too_large) == 0) [[likely]] {
            next_[0] = std::uint64_t{sort} << time_bits | event.time_ns;
            next_[1] = event.address;
            next_[2] = event.size << 32 | event.requested;
            next_[3] = event.stack;
            next_ += short_words;
        } else {
            last = event;
            next_[0] = std::uint64_t{sort + EventTemplates::sorts} << time_bits;
            std::memcpy(next_ + 1, &event, sizeof event);
            next_ += long_words;
        }
        ++size_;
    }
    void add(const trace::DeviceSample& sample) {
        const std::uint64_t words[] = {sample_mark, sample.time_ns, sample.device, sample.used,
                                       sample.total};
        std::memcpy(next_, words, sizeof words);
        next_ += std::size(words);
        ++size_;
    }

    bool full() const { return next_ >= end_; }
    std::size_t size() const { return size_; }
    /// Where the next record goes.
    const void* next() const { return next_; }

    /// Gives all records to `sink`'s on() and on_freed(), in order, and is empty then.
    template <class Sink>
    void take_all(Sink& sink, EventTemplates& usual) {
        for (const std::uint64_t* at = words_.get(); at != next_;) {
            if (*at == sample_mark) {
                sink.on(trace::DeviceSample{.time_ns = at[1],
                                            .device = static_cast<std::uint32_t>(at[2]),
                                            .used = at[3],
                                            .total = at[4]});
                at += sample_words;
                continue;
            }
            const std::uint64_t tag = *at >> time_bits;
            const std::size_t sort = tag % EventTemplates::sorts;
            trace::Event& event = usual[sort];
            if (tag == sort) {
                event.time_ns = *at & time_mask;
                event.address = at[1];
                event.requested = at[2] & UINT32_MAX;
                event.size = at[2] >> 32;
                event.stack = static_cast<std::uint32_t>(at[3]);
                at += short_words;
            } else {
                EventWords words;
                std::memcpy(words.data(), at + 1, sizeof words);
                event = std::bit_cast<trace::Event>(words);
                at += long_words;
            }
            if (sort == EventTemplates::freed) {
                sink.on_freed(event);
            } else {
                sink.on(event);
            }
        }
        next_ = words_.get();
        size_ = 0;
    }

  private:
    /// Of two events of one sort, in what the short form does not say; 0: none. Without a branch
    /// for each of nine fields.
    static std::uint64_t difference(const trace::Event& a, const trace::Event& b) {
        const auto number = [](auto value) { return static_cast<std::uint64_t>(value); };
        return (number(a.kind) ^ number(b.kind)) | (number(a.origin) ^ number(b.origin)) |
               (a.device ^ b.device) | (a.context ^ b.context) | (a.thread ^ b.thread) |
               (a.api ^ b.api) | (a.name ^ b.name) | (a.correlation ^ b.correlation) |
               (a.stream ^ b.stream);
    }

    // A record's first word: its sort, more by EventTemplates::sorts where the event is kept whole;
    // and its time where it is not.
    static constexpr unsigned time_bits = 56;
    static constexpr std::uint64_t time_mask = (std::uint64_t{1} << time_bits) - 1;
    static constexpr std::uint64_t sample_mark = ~std::uint64_t{0};

    using EventWords = std::array<std::uint64_t, sizeof(trace::Event) / sizeof(std::uint64_t)>;
    static constexpr std::size_t short_words = 4;
    static constexpr std::size_t long_words = 1 + std::tuple_size_v<EventWords>;
    static constexpr std::size_t sample_words = 5;
    static_assert(sample_words <= long_words);

    const std::unique_ptr<std::uint64_t[]> words_;
    std::uint64_t* next_;
    std::uint64_t* const end_;
    std::size_t size_ = 0;
};

}  // namespace memlab::profiler
