#include "profiler/stack_table.hpp"

#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "profiler/object_symbols.hpp"
#include "profiler/python/interpreter.hpp"
#include "profiler/stack_hash.hpp"

namespace memlab::profiler {
namespace {

constexpr std::size_t first_capacity = 1024;

[[gnu::hot]] StackHash hash_stack(std::span<const std::uint64_t> stack, bool truncated,
                                  const StackTable::PythonWords* python) {
    StackHasher hasher(stack.size(), (truncated ? 1 : 2) + (python != nullptr ? 2 : 0));
    if (python != nullptr) {
        hasher.add(
            python->size() / 2, [&](std::size_t i) { return (*python)[2 * i]; },
            [&](std::size_t i) { return (*python)[2 * i + 1]; });
    }
    hasher.add(
        stack.size() / 2, [&](std::size_t i) { return stack[2 * i]; },
        [&](std::size_t i) { return stack[2 * i + 1]; });
    hasher.add(
        stack.size() % 2, [&](std::size_t) { return stack.back(); },
        [](std::size_t) { return std::uint64_t{0}; });
    return hasher.result();
}

}  // namespace

struct StackTable::Key {
    std::span<const std::uint64_t> stack;
    bool truncated;
    std::uint64_t epoch;
    const PythonWords* python;  // null: none
    StackHash hash;

    bool is_python(std::size_t i) const {
        return python != nullptr && ((*python)[i / 64] >> i % 64 & 1U) != 0;
    }
};

/// One stack. Immutable except for the epoch, which only increases. The stack itself is in the
/// recording.
struct StackTable::Entry {
    StackHash hash;
    std::atomic<std::uint64_t> epoch;
    std::uint32_t id;
    std::uint16_t depth;
    bool truncated;

    // [0, depth): ModuleDef::id, 0: none; of a Python frame its id with python_frame. Stored right
    // after the entry.
    static constexpr std::uint32_t python_frame = std::uint32_t{1} << 31;
    const std::uint32_t* modules() const {
        return reinterpret_cast<const std::uint32_t*>(this + 1);
    }

    static std::unique_ptr<Entry, EntryDelete> make(const Key& key,
                                                    const std::vector<std::uint32_t>& modules,
                                                    std::uint32_t id) {
        const std::size_t depth = key.stack.size();
        auto* memory =
            static_cast<char*>(::operator new(sizeof(Entry) + depth * sizeof(std::uint32_t)));
        if (depth != 0) {
            std::memcpy(memory + sizeof(Entry), modules.data(), depth * sizeof(std::uint32_t));
        }
        return std::unique_ptr<Entry, EntryDelete>(new (memory) Entry{
            key.hash, {key.epoch}, id, static_cast<std::uint16_t>(depth), key.truncated});
    }

    bool matches(const Key& key) const {
        return hash == key.hash && depth == key.stack.size() && truncated == key.truncated;
    }
};

void StackTable::EntryDelete::operator()(Entry* entry) const {
    entry->~Entry();
    ::operator delete(entry);
}

/// At most half full, so that every search ends at an empty slot.
struct StackTable::Slots {
    explicit Slots(std::size_t slots) : mask(slots - 1), at(slots) {}
    std::size_t mask;
    std::vector<std::atomic<Entry*>> at;

    /// The first entry of the key's stack that `accept` accepts, or null.
    template <class Accept>
    Entry* find(const Key& key, const Accept& accept) const {
        for (std::size_t i = key.hash.index & mask;; i = (i + 1) & mask) {
            Entry* entry = at[i].load(std::memory_order_acquire);
            if (entry == nullptr || (entry->matches(key) && accept(*entry))) {
                return entry;
            }
        }
    }

    void insert(Entry* entry) {
        std::size_t i = entry->hash.index & mask;
        while (at[i].load(std::memory_order_relaxed) != nullptr) {
            i = (i + 1) & mask;
        }
        at[i].store(entry, std::memory_order_release);
    }
};

/// The modules of a stack's frames, looked up without a lock.
struct StackTable::Resolved {
    std::vector<LoadedModule> modules;
    std::vector<std::size_t> module_of;  // index into modules, or SIZE_MAX
};

StackTable::StackTable(StackDefinitions& definitions, std::uint32_t max_stacks)
    : definitions_(definitions), max_stacks_(max_stacks) {
    all_slots_.push_back(std::make_unique<Slots>(first_capacity));
    slots_.store(all_slots_.back().get(), std::memory_order_release);
}

StackTable::~StackTable() = default;

[[gnu::hot]] std::uint32_t StackTable::intern(std::span<const std::uint64_t> stack, bool truncated,
                                              std::uint64_t epoch, const PythonWords* python) {
    if (stack.empty()) {
        return 0;
    }
    const Key key{stack, truncated, epoch, python, hash_stack(stack, truncated, python)};
    if (epoch != no_epoch) {
        if (const Entry* known = find(key)) {
            return known->id;
        }
    }
    const std::uint32_t id = define(key, max_stacks_);
    return id != 0 ? id : intern_folded(key);
}

// The id of a stack that is not kept whole: that of its innermost 8 frames or 1, or of no frames.
std::uint32_t StackTable::intern_folded(const Key& key) {
    if (!folding_.exchange(true, std::memory_order_relaxed)) {
        definitions_.report_limitation(
            "the program used more than " + std::to_string(max_stacks_) +
            " different call stacks (MEMLAB_MAX_STACKS): "
            "further ones are counted by their innermost frames, 8 or fewer");
    }
    const bool epoch_is_kept = key.epoch != no_epoch;
    std::size_t limit = max_stacks_;
    for (const std::size_t kept : {std::size_t{8}, std::size_t{1}}) {
        limit += max_stacks_ / 8 + 8;
        if (key.stack.size() < kept) {
            continue;
        }
        PythonWords python{};
        bool any_python = false;
        for (std::size_t i = 0; i < kept; ++i) {
            if (key.is_python(i)) {
                python[0] |= std::uint64_t{1} << i;
                any_python = true;
            }
        }
        Key folded{key.stack.first(kept), true, key.epoch, any_python ? &python : nullptr, {}};
        folded.hash = hash_stack(folded.stack, folded.truncated, folded.python);
        const Entry* const known = epoch_is_kept ? find(folded) : nullptr;
        if (const std::uint32_t id = known != nullptr ? known->id : define(folded, limit)) {
            return id;
        }
    }
    Key rest{{}, true, key.epoch, nullptr, {}};
    rest.hash = hash_stack(rest.stack, rest.truncated, rest.python);
    const Entry* const known = epoch_is_kept ? find(rest) : nullptr;
    return known != nullptr ? known->id : define(rest, SIZE_MAX);
}

// The id of a stack that find() did not find; it may be known under another epoch. 0 if it is new
// and there are `limit` stacks already.
std::uint32_t StackTable::define(const Key& key, std::size_t limit) {
    const auto in_any_epoch = [](const Entry& /*entry*/) { return true; };
    if (entry_count_.load(std::memory_order_relaxed) >= limit &&
        slots_.load(std::memory_order_acquire)->find(key, in_any_epoch) == nullptr) {
        return 0;
    }
    const Resolved resolved = resolve(key);
    const threads::LockGuard lock(mutex_);
    return define(key, resolved, limit);
}

[[gnu::hot]] const StackTable::Entry* StackTable::find(const Key& key) const {
    return slots_.load(std::memory_order_acquire)->find(key, [&](const Entry& entry) {
        return entry.epoch.load(std::memory_order_relaxed) == key.epoch;
    });
}

StackTable::Resolved StackTable::resolve(const Key& key) {
    Resolved resolved;
    resolved.module_of.assign(key.stack.size(), SIZE_MAX);
    for (std::size_t i = 0; i < key.stack.size(); ++i) {
        if (key.is_python(i)) {
            continue;
        }
        // A return address may be one past the end of its module.
        const std::uintptr_t address = key.stack[i] - 1;
        for (std::size_t m = 0; m < resolved.modules.size(); ++m) {
            if (address >= resolved.modules[m].start && address < resolved.modules[m].end) {
                resolved.module_of[i] = m;
            }
        }
        LoadedModule found;
        if (resolved.module_of[i] == SIZE_MAX && find_loaded_module(address, &found)) {
            resolved.module_of[i] = resolved.modules.size();
            resolved.modules.push_back(std::move(found));
        }
    }
    return resolved;
}

/// The stack's id if another thread was faster or its modules are unchanged, else a new one; 0 if
/// there are `limit` stacks already.
std::uint32_t StackTable::define(const Key& key, const Resolved& resolved, std::size_t limit) {
    std::vector<std::uint32_t> ids;
    ids.reserve(resolved.modules.size());
    for (const LoadedModule& module : resolved.modules) {
        ids.push_back(module_id(module));
    }
    std::vector<std::uint32_t> modules(key.stack.size(), 0);
    trace::StackDef definition;
    definition.truncated = key.truncated;
    definition.frames.reserve(key.stack.size());
    for (std::size_t i = 0; i < key.stack.size(); ++i) {
        trace::Frame frame;
        if (key.is_python(i)) {
            frame.python = static_cast<std::uint32_t>(key.stack[i]);
            modules[i] = frame.python | Entry::python_frame;
            definition.frames.push_back(frame);
            continue;
        }
        frame.address = key.stack[i];
        if (resolved.module_of[i] != SIZE_MAX) {
            modules[i] = ids[resolved.module_of[i]];
            frame.module = modules[i];
            frame.address -= resolved.modules[resolved.module_of[i]].bias;
        }
        definition.frames.push_back(frame);
    }
    if (Entry* known = find_same_modules(key, modules)) {
        // A late thread with an older epoch must not set it back.
        if (known->epoch.load(std::memory_order_relaxed) < key.epoch) {
            known->epoch.store(key.epoch, std::memory_order_relaxed);
        }
        return known->id;
    }
    if (entries_.size() >= limit) {
        return 0;
    }
    if ((entries_.size() + 1) * 2 > slots_.load(std::memory_order_relaxed)->at.size()) {
        grow();
    }
    definition.id = static_cast<std::uint32_t>(entries_.size() + 1);
    definitions_.define(definition);
    entries_.push_back(Entry::make(key, modules, definition.id));
    entry_count_.store(entries_.size(), std::memory_order_relaxed);
    slots_.load(std::memory_order_relaxed)->insert(entries_.back().get());
    return definition.id;
}

StackTable::Entry* StackTable::find_same_modules(const Key& key,
                                                 const std::vector<std::uint32_t>& modules) const {
    return slots_.load(std::memory_order_relaxed)->find(key, [&](const Entry& entry) {
        return std::memcmp(entry.modules(), modules.data(),
                           modules.size() * sizeof(std::uint32_t)) == 0;
    });
}

std::size_t StackTable::python_frames(std::uint32_t id, std::span<std::uint64_t> frames) {
    const threads::LockGuard lock(mutex_);
    if (id == 0 || id > entries_.size()) {
        return 0;
    }
    const Entry& entry = *entries_[id - 1];
    std::size_t count = 0;
    for (std::size_t i = 0; i < entry.depth && count < frames.size(); ++i) {
        const std::uint32_t word = entry.modules()[i];
        if ((word & Entry::python_frame) != 0) {
            frames[count++] = word & ~Entry::python_frame;
        }
    }
    return count;
}

void StackTable::grow() {
    auto larger = std::make_unique<Slots>(all_slots_.back()->at.size() * 2);
    for (const auto& entry : entries_) {
        larger->insert(entry.get());
    }
    all_slots_.push_back(std::move(larger));
    slots_.store(all_slots_.back().get(), std::memory_order_release);
}

std::uint32_t StackTable::module_id(const LoadedModule& module) {
    for (const trace::ModuleDef& known : modules_) {
        if (known.start == module.start && known.end == module.end && known.path == module.path &&
            known.build_id == module.build_id) {
            return known.id;
        }
    }
    trace::ModuleDef definition;
    definition.id = static_cast<std::uint32_t>(modules_.size() + 1);
    definition.path = module.path;
    definition.build_id = module.build_id;
    definition.bias = module.bias;
    definition.start = module.start;
    definition.end = module.end;
    modules_.push_back(definition);
    definitions_.define(definition);
    // The module is on the calling thread's stack, so it stays loaded during the check.
    if (interpreter() == 0 && python::is_interpreter(ObjectSymbols::at(module.start))) {
        interpreter_.store(module.start, std::memory_order_release);
    }
    return definition.id;
}

}  // namespace memlab::profiler
