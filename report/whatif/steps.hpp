// What a recorded program asked of its allocator, in little memory: some ten million calls are
// looked at by each of a dozen models. 24 bytes for an allocation, 4 for a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "trace/record.hpp"

namespace memlab::report::whatif {

struct Allocation {
    std::uint64_t requested = 0;
    std::uint64_t event = 0;  ///< the number of its event in the log, from 1
    std::uint64_t time_ns = 0;
    std::uint64_t stream = 0;  ///< if the call has one
    std::uint32_t context = 0;
    std::uint32_t thread = 0;
    std::uint32_t stack = 0;  ///< StackDef::id, which is also the index in the JSON's stacks
    trace::MemoryKind kind = trace::MemoryKind::device;
    trace::Origin origin = trace::Origin::driver;
};

enum class StepKind : std::uint8_t {
    allocate,      ///< `subject`: index into Program::allocations
    attempt,       ///< the same, of an allocation that failed when it was recorded
    free,          ///< by the application
    complete,      ///< no device work uses it any more
    empty_cache,   ///< the program asked its allocator to release unused memory
    mark,          ///< a mark or scope end of the program
    context_lost,  ///< `subject`: context id; all its allocations have been freed before
};

struct Step {
    StepKind kind = StepKind::allocate;
    std::uint32_t subject = 0;
};

/// An iterator over something with size() and operator[].
template <typename List, typename Value>
class IndexIterator {
  public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Value;
    using difference_type = std::ptrdiff_t;
    using pointer = const Value*;
    using reference = Value;

    IndexIterator(const List& list, std::size_t at) : list_(&list), at_(at) {}
    Value operator*() const { return (*list_)[at_]; }
    IndexIterator& operator++() {
        ++at_;
        return *this;
    }
    bool operator==(const IndexIterator&) const = default;

  private:
    const List* list_;
    std::size_t at_;
};

/// Allocations by id. Thread-safety: as the standard library's containers.
class Allocations {
  public:
    /// After std::bad_alloc the list must not be used.
    void push_back(const Allocation& allocation) {
        if (size() % events_of_base == 0) {
            first_events_.push_back(allocation.event);
        }
        packed_.push_back(pack(allocation, size()));
    }
    void replace(std::size_t id, const Allocation& allocation) {
        packed_[id] = pack(allocation, id);
    }

    std::size_t size() const { return packed_.size(); }
    bool empty() const { return packed_.empty(); }
    Allocation operator[](std::size_t id) const {
        const Packed& packed = packed_[id];
        const Caller& caller = callers_[packed.caller];
        return {.requested = packed.requested != wide ? packed.requested : wide_.at(id).requested,
                .event = packed.event != wide ? first_events_[id / events_of_base] + packed.event
                                              : wide_.at(id).event,
                .time_ns = packed.time_ns,
                .stream = caller.stream,
                .context = caller.context,
                .thread = caller.thread,
                .stack = packed.stack,
                .kind = caller.kind,
                .origin = caller.origin};
    }
    Allocation front() const { return (*this)[0]; }
    Allocation back() const { return (*this)[size() - 1]; }

    /// A part of operator[], for hot loops.
    std::uint64_t requested(std::size_t id) const {
        const std::uint32_t bytes = packed_[id].requested;
        return bytes != wide ? bytes : wide_.at(id).requested;
    }
    trace::Origin origin(std::size_t id) const { return callers_[packed_[id].caller].origin; }
    std::uint32_t context(std::size_t id) const { return callers_[packed_[id].caller].context; }

  private:
    /// The allocation has an entry in wide_.
    static constexpr std::uint32_t wide = 0xffffffff;
    static constexpr std::size_t events_of_base = 256;

    struct Packed {
        std::uint64_t time_ns = 0;
        std::uint32_t requested = 0;  ///< or `wide`
        std::uint32_t event = 0;      ///< above that of first_events_, or `wide`
        std::uint32_t stack = 0;
        std::uint32_t caller = 0;  ///< index into callers_
    };
    struct Wide {
        std::uint64_t requested = 0;
        std::uint64_t event = 0;
    };
    /// What many allocations have in common.
    struct Caller {
        std::uint64_t stream = 0;
        std::uint32_t context = 0;
        std::uint32_t thread = 0;
        trace::MemoryKind kind = trace::MemoryKind::device;
        trace::Origin origin = trace::Origin::driver;

        bool operator==(const Caller&) const = default;
        auto key() const { return std::tie(stream, context, thread, kind, origin); }
        bool operator<(const Caller& other) const { return key() < other.key(); }
    };

    Packed pack(const Allocation& allocation, std::size_t id) {
        const std::uint64_t first = first_events_[id / events_of_base];
        const bool fits = allocation.requested < wide && allocation.event >= first &&
                          allocation.event - first < wide;
        if (!fits) {
            wide_[id] = {allocation.requested, allocation.event};
        }
        return {.time_ns = allocation.time_ns,
                .requested = fits ? static_cast<std::uint32_t>(allocation.requested) : wide,
                .event = fits ? static_cast<std::uint32_t>(allocation.event - first) : wide,
                .stack = allocation.stack,
                .caller = caller_index({allocation.stream, allocation.context, allocation.thread,
                                        allocation.kind, allocation.origin})};
    }

    std::uint32_t caller_index(const Caller& caller) {
        if (latest_ < callers_.size() && callers_[latest_] == caller) {
            return latest_;
        }
        const auto [found, is_new] =
            caller_index_.try_emplace(caller, static_cast<std::uint32_t>(callers_.size()));
        if (is_new) {
            callers_.push_back(caller);
        }
        return latest_ = found->second;
    }

    std::deque<Packed> packed_;
    std::vector<std::uint64_t> first_events_;  ///< of each `events_of_base` allocations
    std::unordered_map<std::size_t, Wide> wide_;
    std::vector<Caller> callers_;
    std::map<Caller, std::uint32_t> caller_index_;
    std::uint32_t latest_ = 0;  ///< the caller used last
};

/// Thread-safety: as the standard library's containers.
class Steps {
  public:
    /// After std::bad_alloc the list must not be used.
    void push_back(const Step& step) { packed_.push_back(pack(step, size())); }
    void replace(std::size_t at, const Step& step) { packed_[at] = pack(step, at); }

    std::size_t size() const { return packed_.size(); }
    bool empty() const { return packed_.empty(); }
    Step operator[](std::size_t at) const {
        const std::uint32_t packed = packed_[at];
        const std::uint32_t subject = packed & wide;
        return {static_cast<StepKind>(packed >> subject_bits),
                subject != wide ? subject : wide_.at(at)};
    }
    Step back() const { return (*this)[size() - 1]; }

    using const_iterator = IndexIterator<Steps, Step>;
    const_iterator begin() const { return {*this, 0}; }
    const_iterator end() const { return {*this, size()}; }

  private:
    static constexpr unsigned subject_bits = 29;
    /// The step has an entry in wide_.
    static constexpr std::uint32_t wide = (std::uint32_t{1} << subject_bits) - 1;

    std::uint32_t pack(const Step& step, std::size_t at) {
        if (step.subject >= wide) {
            wide_[at] = step.subject;
        }
        return static_cast<std::uint32_t>(step.kind) << subject_bits |
               (step.subject < wide ? step.subject : wide);
    }

    std::deque<std::uint32_t> packed_;
    std::unordered_map<std::size_t, std::uint32_t> wide_;
};

}  // namespace memlab::report::whatif
