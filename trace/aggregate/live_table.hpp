// The table of live allocations, by address. Entries have stable slots, and free slots are reused,
// so the table does not allocate while the program is in a steady state.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trace/hash_index.hpp"
#include "trace/log_format.hpp"
#include "trace/record.hpp"

namespace memlab::trace {

/// Within one, addresses are unique: device and host pointers share one, handles have their own,
/// and so has each of the program's allocators, whose suballocations lie within other allocations:
/// `suballocation` and the values behind it.
enum class AddressSpace : std::uint8_t { pointer, array_handle, vmm_handle, suballocation };

/// The space of the allocator with this device of the recording.
constexpr AddressSpace suballocation_space(std::uint32_t device) {
    const std::uint32_t allocator = std::max(device / DeviceInfo::max_gpus, 1U) - 1;
    return static_cast<AddressSpace>(static_cast<std::uint32_t>(AddressSpace::suballocation) +
                                     allocator);
}
inline constexpr AddressSpace last_address_space = suballocation_space(format::max_devices - 1);

constexpr bool is_suballocation(AddressSpace space) {
    return space >= AddressSpace::suballocation;
}

constexpr AddressSpace address_space(MemoryKind kind, std::uint32_t device) {
    switch (kind) {
        case MemoryKind::array:
            return AddressSpace::array_handle;
        case MemoryKind::vmm:
            return AddressSpace::vmm_handle;
        case MemoryKind::suballocation:
            return suballocation_space(device);
        default:
            return AddressSpace::pointer;
    }
}
constexpr AddressSpace address_space(const Event& event) {
    return address_space(event.kind, event.device);
}

/// An allocation, until it is freed and safe to reuse.
struct Live {
    std::uint64_t address = 0;
    std::uint64_t requested = 0;
    std::uint64_t size = 0;
    std::uint64_t time_ns = 0;
    std::uint64_t serial = 0;
    std::uint32_t site = 0;
    std::uint32_t context = 0;
    std::uint32_t thread = 0;
    std::uint32_t scopes = 0;      ///< the owner, from ScopeStats::allocated()
    std::uint32_t nn_modules = 0;  ///< the number of a NnModuleHolding; 0: of none
    AddressSpace space = AddressSpace::pointer;
    Origin origin = Origin::driver;
    bool pending = false;     ///< freed, not yet safe to reuse (pool)
    bool small_pool = false;  ///< pool
    bool is_segment = false;  ///< of an allocator that the recording sees from inside
    bool has_label = false;   ///< as LabelStats knows; not in the state

    // A free slot has the index of the next free one.
    bool is_free() const { return site == HashIndex::none; }
    std::uint32_t next_free() const { return context; }
    void set_free(std::uint32_t next) {
        site = HashIndex::none;
        context = next;
    }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.address, self.requested, self.size, self.time_ns, self.serial, self.site,
                self.context, self.thread, self.scopes, self.origin, self.pending, self.small_pool,
                self.is_segment);
        archive.choice(self.space, last_address_space);
        if (archive.version() >= 7) {
            archive(self.nn_modules);
        }
    }
};

/// Thread-safety: none.
class LiveTable {
  public:
    static constexpr std::uint32_t none = HashIndex::none;

    /// The slot of the allocation at `address`, or `none`.
    std::uint32_t find(std::uint64_t address, AddressSpace space) const {
        return index_.find(hash(address, space), [&](std::uint32_t slot) {
            const Live& live = (*this)[slot];
            return live.address == address && live.space == space;
        });
    }

    Live& operator[](std::uint32_t slot) { return (*slabs_[slot / slab_size])[slot % slab_size]; }
    const Live& operator[](std::uint32_t slot) const {
        return (*slabs_[slot / slab_size])[slot % slab_size];
    }

    /// Adds an allocation, for the caller to fill in, and returns its slot. There must be none at
    /// this address yet. May throw std::bad_alloc, without a change.
    std::uint32_t add(std::uint64_t address, AddressSpace space) {
        index_.reserve_slot();
        if (free_ == none) {
            add_slab();
        }
        const std::uint32_t slot = free_;
        Live& live = (*this)[slot];
        free_ = live.next_free();
        live = Live{.address = address, .space = space};
        index_.insert(hash(address, space), slot);
        ++size_;
        return slot;
    }

    void erase(std::uint32_t slot) {
        Live& live = (*this)[slot];
        index_.erase(hash(live.address, live.space), slot);
        live.set_free(free_);
        free_ = slot;
        --size_;
    }

    std::size_t size() const { return size_; }

    /// Calls visit(slot, live) for all, in unspecified order.
    template <typename Visit>
    void for_each(Visit visit) const {
        for (std::uint32_t slot = 0; slot < slabs_.size() * slab_size; ++slot) {
            const Live& live = (*this)[slot];
            if (!live.is_free()) {
                visit(slot, live);
            }
        }
    }

    /// The slots of a context's allocations, in unspecified order. O(size of the table).
    std::vector<std::uint32_t> find_by_context(std::uint32_t context) const {
        std::vector<std::uint32_t> found;
        for_each([&](std::uint32_t slot, const Live& live) {
            if (live.context == context) {
                found.push_back(slot);
            }
        });
        return found;
    }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        if constexpr (Archive::reading) {
            for (std::size_t left = archive.count(); left != 0 && archive.ok(); --left) {
                Live live;
                archive(live);
                if (live.is_free() || self.find(live.address, live.space) != none) {
                    archive.fail();
                    return;
                }
                self[self.add(live.address, live.space)] = live;
            }
        } else {
            archive.count(self.size_);
            self.for_each([&archive](std::uint32_t, const Live& live) { archive(live); });
        }
    }

  private:
    static constexpr std::uint32_t slab_size = 512;
    using Slab = std::array<Live, slab_size>;

    static std::uint64_t hash(std::uint64_t address, AddressSpace space) {
        return HashIndex::spread(address + static_cast<std::uint64_t>(space));
    }

    void add_slab() {
        slabs_.push_back(std::make_unique<Slab>());
        const auto first = static_cast<std::uint32_t>((slabs_.size() - 1) * slab_size);
        for (std::uint32_t slot = first + slab_size; slot > first; --slot) {
            (*this)[slot - 1].set_free(free_);
            free_ = slot - 1;
        }
    }

    std::vector<std::unique_ptr<Slab>> slabs_;
    std::uint32_t free_ = none;  ///< the first free slot
    HashIndex index_;
    std::size_t size_ = 0;
};

}  // namespace memlab::trace
