// Recognizes a call stack that was walked before, without a walk.
//
// A walk depends at each frame on what it read of the one before, and writes down every frame. But
// where a stack begins, at a frame of a known function, and the words that its walk read there
// determine the stack: the return addresses, and the saved frame pointers that a rule uses. So for
// each stack that was walked its signature is kept: where these words are, and their hash. If they
// have the same hash they are the same except for a collision of 64 bits; then, frame by frame, the
// rules are the same (within one unload epoch), and each word is the one that the walk would read.
// The reads do not depend on each other.
//
// Prediction, in order: the signature that followed the last three stacks; the one that followed
// the last; all for this start address. Each search that finds nothing takes from a miss budget,
// which hits refill; while it is empty one capture in 32 searches. Why: docs/stacks.md, "Known
// stacks".
//
// A thread owns its signatures, so uses them without an atomic exchange, which would wait for all
// that the program has stored before. More threads than there are slots for do without.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "profiler/stack_hash.hpp"
#include "profiler/unwind/bytes.hpp"
#include "profiler/word_mix.hpp"

namespace memlab::profiler {

/// Access for one capture. Async-signal-safe.
class KnownStacks {
  public:
    /// What the caller knows of a stack.
    struct Stack {
        StackHash hash;             ///< of its frames
        std::uint32_t id;           ///< 0: none yet
        std::uint32_t merged;       ///< by insert_merged()
        std::uint64_t parts;        ///< the same; 0: it was not merged yet
        const void* origin;         ///< whose function was searched on this stack; null: none was
        std::uintptr_t origin_end;  ///< the end of its innermost frame there, or one of these:
        static constexpr std::uintptr_t not_there = 0;
        static constexpr std::uintptr_t without_python = 1;  ///< no Python runs inside of it
    };

    /// The signatures of different owners are kept apart; from 1 on.
    static std::uint32_t new_owner();

    /// `frame`: the calling function's __builtin_frame_address(0), with its caller's frame pointer
    /// and the return address; kept by code that has a frame pointer. `epoch`: unload_epoch(), or 0
    /// while an object is being unloaded: then nothing is found or kept.
    KnownStacks(std::uint32_t owner, std::uint64_t epoch, const void* frame)
        : epoch_(epoch << owner_bits | owner), frame_(static_cast<const std::uintptr_t*>(frame)) {
        Slot* const slot = own_slot > no_slot ? reinterpret_cast<Slot*>(own_slot) : claim();
        if (slot != nullptr && epoch != 0 && !slot->in_use.load(std::memory_order_relaxed))
            [[likely]] {
            slot->in_use.store(true, std::memory_order_relaxed);
            std::atomic_signal_fence(std::memory_order_seq_cst);
            slot_ = slot;
        }
    }
    ~KnownStacks() {
        if (slot_ != nullptr) {
            slot_->in_use.store(false, std::memory_order_release);
        }
    }
    KnownStacks(const KnownStacks&) = delete;
    KnownStacks& operator=(const KnownStacks&) = delete;

    /// The stack from `frame` on, or null.
    const Stack* find();

    /// After find(), when the stack was walked: keeps it, with that hash of its frames (at most
    /// `limit`, without the leading ones in `excluded`). False if it cannot be kept, or not now.
    bool insert(const StackHash& hash, std::size_t limit, unwind::Bytes excluded);

    /// The stack that find() or insert() had. The caller may change its ids and its origin.
    Stack& stack() const { return signature(found_).stack; }

    /// After find() had a stack that was merged with other parts: the id of the same stack merged
    /// with these; 0 if that is not known.
    std::uint32_t find_merged(std::uint64_t parts);

    /// After find() or insert() had a stack: keeps that the stack was merged with these parts (not
    /// 0) to `id`. A stack is kept once for each of a few parts, which makes the order of stacks
    /// more certain.
    void insert_merged(std::uint64_t parts, std::uint32_t id);

    /// In a forked child: the calling thread has a new id.
    static void reset_after_fork() { own_slot = 0; }

  private:
    /// A signature's number is where it begins, in lines; 0: none.
    using Number = std::uint16_t;

    static constexpr unsigned owner_bits = 24;
    static constexpr std::size_t max_words = 160;
    static constexpr std::size_t words_at_once = 8;
    static constexpr std::size_t line = 64;
    static constexpr std::size_t lines = 8192;
    static constexpr std::size_t max_merged = 16;               ///< of one stack
    static constexpr std::size_t max_copied_lines = lines / 2;  ///< the rest is for other stacks
    static constexpr unsigned set_bits = 6;
    static constexpr std::size_t sets = std::size_t{1} << set_bits;
    static constexpr std::size_t ways = 16;
    static constexpr unsigned context_bits = 13;
    static constexpr std::size_t contexts = std::size_t{1} << context_bits;
    static constexpr std::size_t slot_count = 32;

    struct Signature {
        std::uint64_t epoch;
        std::uint64_t words_hash;
        Stack stack;
        Number next;          ///< the signature that came next, last time
        std::uint16_t last;   ///< the greatest offset
        std::uint16_t count;  ///< of offsets, a multiple of words_at_once
        Number other;         ///< the same stack with other parts, in a ring

        /// Of the words, in words above `frame`.
        std::uint16_t* offsets() { return reinterpret_cast<std::uint16_t*>(this + 1); }
        const std::uint16_t* offsets() const {
            return reinterpret_cast<const std::uint16_t*>(this + 1);
        }
    };
    static constexpr std::size_t lines_of(std::size_t words) {
        return (sizeof(Signature) + words * sizeof(std::uint16_t) + line - 1) / line;
    }

    struct Candidate {
        Number number;
        std::uint16_t tag;  ///< a hash of `frame`
    };

    /// The signatures of one thread. Untouched pages are never committed.
    struct alignas(line) Slot {
        std::atomic<bool> in_use;  ///< by the thread, which this signal handler interrupted
        std::atomic<std::uint32_t> thread;  ///< its kernel id; 0: of none so far
        std::uint16_t used;                 ///< lines
        std::uint16_t copied;               ///< lines, by insert_merged()
        std::int32_t spent;                 ///< of the miss budget
        std::uint32_t insertions;           ///< into full sets
        std::uint64_t latest;  ///< the signatures that were used last, from the lowest 16 bits up
        Number expected;       ///< what the predictor says comes after them
        std::array<Number, contexts> predictor;                    ///< by hash of the latest three
        std::array<std::array<Candidate, ways>, sets> candidates;  ///< by hash of `frame`
        alignas(line) std::array<std::uint8_t, lines * line> memory;
    };
    static constinit std::array<Slot, slot_count> slots;
    /// In own_slot, instead of an address: all slots had owners. 0: not searched yet.
    static constexpr std::uintptr_t no_slot = 1;
    // Initial-exec: see thread_id.cpp.
    __attribute__((
        tls_model("initial-exec"))) static constinit thread_local std::uintptr_t own_slot;

    static Slot* claim();
    Signature& signature(Number number) const {
        return *reinterpret_cast<Signature*>(&slot_->memory[number * line]);
    }
    /// What came after the latest three.
    Number& predicted() const {
        return slot_->predictor[(slot_->latest << 16) * mix_factor >> (64 - context_bits)];
    }
    /// What came after the latest.
    Number& next() const { return signature(static_cast<Number>(slot_->latest)).next; }
    /// Whether to search further than for the expected signature, and to keep the stack if it is
    /// new.
    bool has_budget() const { return slot_->spent < miss_budget; }
    bool matches(const Signature& signature) const;
    std::uint64_t hash_words(const Signature& signature) const;
    bool make(Signature& signature, std::size_t limit, unwind::Bytes excluded) const;
    Number find_candidate(Number tried) const;
    void add_candidate(Number number);
    const Stack* use(Number number);
    void use_instead(Number number);
    std::size_t count_merged() const;
    std::array<Candidate, ways>& candidates() const;
    std::uint16_t tag() const;

    static constexpr std::int32_t miss_budget = 16384;
    static constexpr std::int32_t cost_of_miss = 16;
    static constexpr std::int32_t refund_of_hit = 4;
    /// Once the budget is spent so many captures pass without a search.
    static constexpr std::int32_t pause = 32;

    Slot* slot_ = nullptr;
    bool searched_ = false;
    Number found_ = 0;
    const std::uint64_t epoch_;
    const std::uintptr_t* const frame_;
};

}  // namespace memlab::profiler
