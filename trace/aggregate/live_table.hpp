// The allocations that live at a moment, by address. An entry keeps its place while it lives, and a
// place is used again, so that a program in its steady state makes the table ask for no memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trace/hash_index.hpp"
#include "trace/record.hpp"

namespace memlab::trace {

/// Where addresses are unique: device and host pointers share one space, handles have theirs.
enum class AddressSpace : std::uint8_t { pointer, array_handle, vmm_handle };

constexpr AddressSpace space_of(MemoryKind kind) {
    switch (kind) {
        case MemoryKind::array:
            return AddressSpace::array_handle;
        case MemoryKind::vmm:
            return AddressSpace::vmm_handle;
        default:
            return AddressSpace::pointer;
    }
}

/// An allocation, until nothing can touch it any more.
struct Live {
    std::uint64_t address = 0;
    std::uint64_t requested = 0;
    std::uint64_t size = 0;
    std::uint64_t time_ns = 0;
    std::uint64_t serial = 0;
    std::uint32_t site = 0;
    std::uint32_t context = 0;
    std::uint32_t thread = 0;
    std::uint32_t scopes = 0;  ///< whose they are: ScopeFigures::allocated()
    AddressSpace space = AddressSpace::pointer;
    Origin origin = Origin::driver;
    bool pending = false;     ///< freed, not yet safe to reuse (pool)
    bool small_pool = false;  ///< pool

    // A place that is not in use names the next such place.
    bool is_free() const { return site == HashIndex::none; }
    std::uint32_t next_free() const { return context; }
    void set_free(std::uint32_t next) {
        site = HashIndex::none;
        context = next;
    }
};

/// Thread-safety: none.
class LiveTable {
  public:
    static constexpr std::uint32_t none = HashIndex::none;

    /// The place of what lives there, or `none`.
    std::uint32_t find(std::uint64_t address, AddressSpace space) const {
        return index_.find(hash(address, space), [&](std::uint32_t place) {
            const Live& live = (*this)[place];
            return live.address == address && live.space == space;
        });
    }

    Live& operator[](std::uint32_t place) {
        return (*slabs_[place / slab_size])[place % slab_size];
    }
    const Live& operator[](std::uint32_t place) const {
        return (*slabs_[place / slab_size])[place % slab_size];
    }

    /// A new one, for the caller to fill in. Nothing of its address and space may be there. May
    /// throw std::bad_alloc, and then has added nothing.
    Live& add(std::uint64_t address, AddressSpace space) {
        index_.make_room();
        if (free_ == none) {
            add_slab();
        }
        const std::uint32_t place = free_;
        Live& live = (*this)[place];
        free_ = live.next_free();
        live = Live{.address = address, .space = space};
        index_.insert(hash(address, space), place);
        ++size_;
        return live;
    }

    void erase(std::uint32_t place) {
        Live& live = (*this)[place];
        index_.erase(hash(live.address, live.space), place);
        live.set_free(free_);
        free_ = place;
        --size_;
    }

    std::size_t size() const { return size_; }

    /// visit(place, live) for all, in no order that means anything.
    template <typename Visit>
    void for_each(Visit visit) const {
        for (std::uint32_t place = 0; place < slabs_.size() * slab_size; ++place) {
            const Live& live = (*this)[place];
            if (!live.is_free()) {
                visit(place, live);
            }
        }
    }

    /// Places, in no order that means anything. O(all).
    std::vector<std::uint32_t> of_context(std::uint32_t context) const {
        std::vector<std::uint32_t> found;
        for_each([&](std::uint32_t place, const Live& live) {
            if (live.context == context) {
                found.push_back(place);
            }
        });
        return found;
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
        for (std::uint32_t place = first + slab_size; place > first; --place) {
            (*this)[place - 1].set_free(free_);
            free_ = place - 1;
        }
    }

    std::vector<std::unique_ptr<Slab>> slabs_;
    std::uint32_t free_ = none;  ///< the first place that is not in use
    HashIndex index_;
    std::size_t size_ = 0;
};

}  // namespace memlab::trace
