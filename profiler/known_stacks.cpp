#include "profiler/known_stacks.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "profiler/thread_id.hpp"
#include "profiler/unwind/stack_memory.hpp"
#include "profiler/unwind/walk.hpp"
#include "profiler/word_mix.hpp"

namespace memlab::profiler {
using unwind::own_stack;
using unwind::Rule;

namespace {

bool is_alive(std::uint32_t thread) {
    return unwind::raw_syscall(SYS_tgkill, static_cast<std::uintptr_t>(getpid()), thread, 0, 0) !=
           -ESRCH;
}

}  // namespace

constinit std::array<KnownStacks::Slot, KnownStacks::slot_count> KnownStacks::slots{};
__attribute__((
    tls_model("initial-exec"))) constinit thread_local std::uintptr_t KnownStacks::own_slot = 0;

/// A slot of no thread, or of one that has ended: it had finished with it, which is read before it
/// is taken over. Null if there is none. Async-signal-safe.
[[gnu::noinline]] KnownStacks::Slot* KnownStacks::claim() {
    if (own_slot == no_slot) {
        return nullptr;
    }
    const std::uint32_t self = thread_id();
    for (std::size_t i = 0; i < slot_count; ++i) {
        Slot& slot = slots[(self + i) % slot_count];
        std::uint32_t owner = slot.thread.load(std::memory_order_relaxed);
        if ((owner == 0 || owner == self || !is_alive(owner)) &&
            !slot.in_use.load(std::memory_order_acquire) &&
            slot.thread.compare_exchange_strong(owner, self, std::memory_order_acq_rel)) {
            slot.spent = 0;
            own_slot = reinterpret_cast<std::uintptr_t>(&slot);
            return &slot;
        }
    }
    own_slot = no_slot;
    return nullptr;
}

std::uint32_t KnownStacks::new_owner() {
    static constinit std::atomic<std::uint32_t> owners{0};
    constexpr std::uint32_t max_owner = (1U << owner_bits) - 1;
    return owners.fetch_add(1, std::memory_order_relaxed) % max_owner + 1;
}

[[gnu::hot]] MEMLAB_READS_STACK std::uint64_t KnownStacks::hash_words(
    const Signature& signature) const {
    const std::uintptr_t* const frame = frame_;
    // As StackHasher does.
    std::uint64_t lanes[words_at_once / 2] = {
        mix(signature.epoch, mix_factor), mix(reinterpret_cast<std::uintptr_t>(frame), mix_factor),
        lane_seeds[0], lane_seeds[1]};
    const std::uint16_t* offset = signature.offsets();
    const std::uint16_t* const end = offset + signature.count;
    while (offset != end) {
        for (std::uint64_t& lane : lanes) {
            lane = mix(frame[offset[0]] ^ lane, frame[offset[1]] ^ mix_factor);
            offset += 2;
        }
    }
    return mix(mix(lanes[0], lanes[1] ^ mix_factor),
               mix(lanes[2], lanes[3] ^ mix_factor) ^ mix_factor);
}

[[gnu::hot]] bool KnownStacks::matches(const Signature& signature) const {
    const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(frame_);
    return signature.epoch == epoch_ && begin >= own_stack.low && begin < own_stack.high &&
           signature.last < (own_stack.high - begin) / sizeof(std::uintptr_t) &&
           hash_words(signature) == signature.words_hash;
}

[[gnu::hot]] const KnownStacks::Stack* KnownStacks::find() {
    if (slot_ == nullptr) [[unlikely]] {
        return nullptr;
    }
    const Number expected = slot_->expected;
    if (matches(signature(expected))) [[likely]] {
        slot_->spent = std::max(slot_->spent - refund_of_hit, 0);
        return use(expected);
    }
    if (!has_budget()) {
        --slot_->spent;
        return nullptr;
    }
    searched_ = true;
    const Number number = find_candidate(expected);
    if (number != 0) {
        return use(number);
    }
    slot_->spent += cost_of_miss;
    if (!has_budget()) {
        slot_->spent = miss_budget + pause - 1;
    }
    return nullptr;
}

std::array<KnownStacks::Candidate, KnownStacks::ways>& KnownStacks::candidates() const {
    const std::uint64_t hash = reinterpret_cast<std::uintptr_t>(frame_) * mix_factor;
    return slot_->candidates[hash >> (64 - set_bits)];
}

std::uint16_t KnownStacks::tag() const {
    const std::uint64_t hash = reinterpret_cast<std::uintptr_t>(frame_) * mix_factor;
    return static_cast<std::uint16_t>(hash >> (64 - set_bits - 16));
}

[[gnu::noinline]] KnownStacks::Number KnownStacks::find_candidate(Number tried) const {
    const Number latest = next();
    if (latest != tried && matches(signature(latest))) {
        return latest;
    }
    for (const Candidate& candidate : candidates()) {
        if (candidate.number != 0 && candidate.tag == tag() && candidate.number != tried &&
            candidate.number != latest && matches(signature(candidate.number))) {
            return candidate.number;
        }
    }
    return 0;
}

void KnownStacks::add_candidate(Number number) {
    std::array<Candidate, ways>& set = candidates();
    const auto unused = std::find_if(set.begin(), set.end(), [&](const Candidate& candidate) {
        return candidate.number == 0 || signature(candidate.number).epoch != epoch_;
    });
    // As in WalkCache: with more stacks than ways, replacing on every miss would evict what the
    // next captures need.
    constexpr std::uint32_t replace_interval = 4;
    if (unused != set.end()) {
        *unused = {number, tag()};
    } else if (++slot_->insertions % replace_interval == 0) {
        set[slot_->insertions / replace_interval % ways] = {number, tag()};
    }
}

/// Prefetches into the second-level cache: the program needs the first one meanwhile.
[[gnu::hot]] const KnownStacks::Stack* KnownStacks::use(Number number) {
    Slot& slot = *slot_;
    Signature& used = signature(number);
    found_ = number;
    predicted() = number;
    next() = number;
    slot.latest = slot.latest << 16 | number;
    slot.expected = predicted();
    const auto* const expected = reinterpret_cast<const char*>(&signature(slot.expected));
    constexpr std::size_t usual_lines = 4;
    for (std::size_t i = 0; i < usual_lines; ++i) {
        __builtin_prefetch(expected + i * line, 1, 2);
    }
    return &used.stack;
}

/// Instead of the signature that was used last.
void KnownStacks::use_instead(Number number) {
    slot_->latest >>= 16;
    use(number);
}

std::uint32_t KnownStacks::find_merged(std::uint64_t parts) {
    if (stack().parts == 0 || !has_budget()) {
        return 0;
    }
    for (Number at = signature(found_).other; at != found_; at = signature(at).other) {
        if (signature(at).stack.parts == parts) {
            use_instead(at);
            return stack().merged;
        }
    }
    slot_->spent += cost_of_miss;
    return 0;
}

/// With how many parts the stack is kept.
std::size_t KnownStacks::count_merged() const {
    std::size_t merged = 1;
    for (Number at = signature(found_).other; at != found_; at = signature(at).other) {
        ++merged;
    }
    return merged;
}

void KnownStacks::insert_merged(std::uint64_t parts, std::uint32_t id) {
    const Signature& found = signature(found_);
    const std::size_t size = lines_of(found.count);
    // Last what reads other signatures: not without a budget.
    if (found.stack.parts != 0 && found.stack.parts != parts && has_budget() &&
        slot_->used + size <= lines && slot_->copied + size <= max_copied_lines &&
        count_merged() < max_merged) {
        const auto number = static_cast<Number>(slot_->used);
        std::memcpy(&signature(number), &found, size * line);
        signature(found_).other = number;
        slot_->used = static_cast<Number>(slot_->used + size);
        slot_->copied = static_cast<std::uint16_t>(slot_->copied + size);
        use_instead(number);
    }
    stack().parts = parts;
    stack().merged = id;
}

bool KnownStacks::insert(const StackHash& hash, std::size_t limit, unwind::Bytes excluded) {
    if (slot_ == nullptr || (found_ == 0 && !searched_)) {
        return false;
    }
    if (found_ != 0) {  // its caller could not make use of it
        return stack().hash == hash;
    }
    constexpr std::size_t max_lines = lines_of(max_words);
    if (slot_->used + max_lines > lines) {
        slot_->memory.fill(0);
        slot_->candidates.fill({});
        slot_->used = 0;
        slot_->copied = 0;
        slot_->latest = 0;
        slot_->expected = 0;
        slot_->predictor.fill(0);
    }
    // Number 0 is a signature of no epoch, which matches nothing.
    const auto number = std::max<Number>(slot_->used, 1);
    Signature& made = signature(number);
    made.epoch = epoch_;
    if (!make(made, limit, excluded)) {
        made.epoch = 0;
        return false;
    }
    made.stack = {.hash = hash,
                  .id = 0,
                  .merged = 0,
                  .parts = 0,
                  .origin = nullptr,
                  .origin_end = Stack::not_there};
    made.next = 0;
    made.other = number;
    slot_->used = static_cast<Number>(number + lines_of(made.count));
    add_candidate(number);
    use(number);
    return true;
}

/// Follows the stack by plain rules, as its walk did. False where it needs others, or leaves the
/// thread's own stack.
MEMLAB_READS_STACK bool KnownStacks::make(Signature& signature, std::size_t limit,
                                          unwind::Bytes excluded) const {
    constexpr std::size_t word = sizeof(std::uintptr_t);
    const auto begin = reinterpret_cast<std::uintptr_t>(frame_);
    const std::uintptr_t high = own_stack.high;
    if (begin < own_stack.low || begin >= high) {
        return false;
    }
    std::size_t count = 0;
    std::size_t last = 0;
    const auto read = [&](std::uintptr_t address) {
        const std::size_t offset = (address - begin) / word;
        if (count == max_words || offset > UINT16_MAX) {
            return false;
        }
        signature.offsets()[count++] = static_cast<std::uint16_t>(offset);
        last = std::max(last, offset);
        return true;
    };
    std::uintptr_t instruction = frame_[1];
    std::uintptr_t sp = begin + 2 * word;
    std::uintptr_t bp = frame_[0];
    std::uintptr_t bp_saved_at = begin;
    bool leading = true;
    std::size_t depth = 0;
    if (!read(begin + word)) {
        return false;
    }
    while (instruction != 0) {
        leading = leading && excluded.contains(instruction);
        if (!leading && depth++ == limit) {
            break;
        }
        const Rule rule = unwind::rule_of_frame(instruction);
        if (rule.kind() == Rule::Kind::end) {
            break;
        }
        const std::uintptr_t base = rule.from_frame_pointer() ? bp : sp;
        const std::uintptr_t cfa = base + rule.distance();
        if (!rule.is_plain() || base < sp || base % word != 0 || cfa > high || cfa <= sp) {
            return false;
        }
        if (rule.from_frame_pointer() && !read(bp_saved_at)) {
            return false;
        }
        if (!rule.keeps_frame_pointer()) {
            bp_saved_at = cfa - rule.saved_frame_pointer();
            bp = *reinterpret_cast<const std::uintptr_t*>(bp_saved_at);
        }
        instruction = *reinterpret_cast<const std::uintptr_t*>(cfa - word);
        sp = cfa;
        if (!read(cfa - word)) {
            return false;
        }
    }
    while (count % words_at_once != 0) {
        if (!read(begin + word)) {
            return false;
        }
    }
    signature.count = static_cast<std::uint16_t>(count);
    signature.last = static_cast<std::uint16_t>(last);
    signature.words_hash = hash_words(signature);
    return true;
}

}  // namespace memlab::profiler
