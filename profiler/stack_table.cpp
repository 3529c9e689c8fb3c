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

[[gnu::hot]] StackHash hash_of(std::span<const std::uint64_t> stack, bool truncated,
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

/// One stack. Only the epoch ever changes, and it only grows. What a look-up needs comes first; the
/// stack itself is in the recording.
struct StackTable::Entry {
    StackHash hash;
    std::atomic<std::uint64_t> epoch;
    std::uint32_t id;
    std::uint16_t depth;
    bool truncated;

    // [0, depth): ModuleDef::id, 0 where there is none; right behind
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

    bool has_stack_of(const Key& key) const {
        return hash == key.hash && depth == key.stack.size() && truncated == key.truncated;
    }
};

void StackTable::EntryDelete::operator()(Entry* entry) const {
    entry->~Entry();
    ::operator delete(entry);
}

/// Half full at most, so that every search ends at an empty slot.
struct StackTable::Slots {
    explicit Slots(std::size_t slots) : mask(slots - 1), at(slots) {}
    std::size_t mask;
    std::vector<std::atomic<Entry*>> at;

    /// The first entry of the key's stack that `good` takes, or null.
    template <class Good>
    Entry* find(const Key& key, const Good& good) const {
        for (std::size_t i = key.hash.place & mask;; i = (i + 1) & mask) {
            Entry* entry = at[i].load(std::memory_order_acquire);
            if (entry == nullptr || (entry->has_stack_of(key) && good(*entry))) {
                return entry;
            }
        }
    }

    void put(Entry* entry) {
        std::size_t i = entry->hash.place & mask;
        while (at[i].load(std::memory_order_relaxed) != nullptr) {
            i = (i + 1) & mask;
        }
        at[i].store(entry, std::memory_order_release);
    }
};

/// The modules of a stack's frames, found with no lock held.
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

[[gnu::hot]] std::uint32_t StackTable::id_of(std::span<const std::uint64_t> stack, bool truncated,
                                             std::uint64_t epoch, const PythonWords* python) {
    if (stack.empty()) {
        return 0;
    }
    const Key key{stack, truncated, epoch, python, hash_of(stack, truncated, python)};
    if (epoch != no_epoch) {
        if (const Entry* known = find(key)) {
            return known->id;
        }
    }
    const std::uint32_t id = define(key, max_stacks_);
    return id != 0 ? id : folded_id_of(key);
}

// What a stack counts as when there is no room for it.
std::uint32_t StackTable::folded_id_of(const Key& key) {
    if (!folding_.exchange(true, std::memory_order_relaxed)) {
        definitions_.missed("the program came from more than " + std::to_string(max_stacks_) +
                            " different call stacks (MEMLAB_MAX_STACKS): what came from others is "
                            "counted by their innermost frames, 8 or fewer");
    }
    const bool epoch_is_kept = key.epoch != no_epoch;
    std::size_t room = max_stacks_;
    for (const std::size_t kept : {std::size_t{8}, std::size_t{1}}) {
        room += max_stacks_ / 8 + 8;
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
        folded.hash = hash_of(folded.stack, folded.truncated, folded.python);
        const Entry* const known = epoch_is_kept ? find(folded) : nullptr;
        if (const std::uint32_t id = known != nullptr ? known->id : define(folded, room)) {
            return id;
        }
    }
    Key rest{{}, true, key.epoch, nullptr, {}};
    rest.hash = hash_of(rest.stack, rest.truncated, rest.python);
    const Entry* const known = epoch_is_kept ? find(rest) : nullptr;
    return known != nullptr ? known->id : define(rest, SIZE_MAX);
}

// The number of a stack that find() does not give: it may be known under another epoch. 0 when it
// is new, and there are as many as `room` already.
std::uint32_t StackTable::define(const Key& key, std::size_t room) {
    const auto in_any_epoch = [](const Entry& /*entry*/) { return true; };
    if (entry_count_.load(std::memory_order_relaxed) >= room &&
        slots_.load(std::memory_order_acquire)->find(key, in_any_epoch) == nullptr) {
        return 0;
    }
    const Resolved resolved = resolve(key);
    const std::lock_guard lock(mutex_);
    return define(key, resolved, room);
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
        // A return address may be one past the end of its function, so of its module.
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

/// With mutex_ held: the stack's number if another thread was faster or its code is still what it
/// was, else a new one; 0 when there are as many as `room` already.
std::uint32_t StackTable::define(const Key& key, const Resolved& resolved, std::size_t room) {
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
    if (Entry* known = same_stack(key, modules)) {
        // Epochs only grow; a thread that is late must not take this one back.
        if (known->epoch.load(std::memory_order_relaxed) < key.epoch) {
            known->epoch.store(key.epoch, std::memory_order_relaxed);
        }
        return known->id;
    }
    if (entries_.size() >= room) {
        return 0;
    }
    if ((entries_.size() + 1) * 2 > slots_.load(std::memory_order_relaxed)->at.size()) {
        grow();
    }
    definition.id = static_cast<std::uint32_t>(entries_.size() + 1);
    definitions_.define(definition);
    entries_.push_back(Entry::make(key, modules, definition.id));
    entry_count_.store(entries_.size(), std::memory_order_relaxed);
    slots_.load(std::memory_order_relaxed)->put(entries_.back().get());
    return definition.id;
}

StackTable::Entry* StackTable::same_stack(const Key& key,
                                          const std::vector<std::uint32_t>& modules) const {
    return slots_.load(std::memory_order_relaxed)->find(key, [&](const Entry& entry) {
        return std::memcmp(entry.modules(), modules.data(),
                           modules.size() * sizeof(std::uint32_t)) == 0;
    });
}

void StackTable::grow() {
    auto larger = std::make_unique<Slots>(all_slots_.back()->at.size() * 2);
    for (const auto& entry : entries_) {
        larger->put(entry.get());
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
    // It is on the calling thread's stack, so it stays loaded while it is looked at.
    if (interpreter() == 0 && python::is_interpreter(ObjectSymbols::at(module.start))) {
        interpreter_.store(module.start, std::memory_order_release);
    }
    return definition.id;
}

}  // namespace memlab::profiler
