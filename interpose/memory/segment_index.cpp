#include "interpose/memory/segment_index.hpp"

#include <new>

namespace memlab::interpose {

SegmentIndex::~SegmentIndex() {
    for (std::atomic<Leaf*>& leaf : leaves_) {
        delete leaf.load(std::memory_order_relaxed);
    }
}

bool SegmentIndex::add(std::uint64_t address, std::uint64_t bytes, Context* owner) {
    constexpr std::uint64_t end_of_space = 1ULL << address_bits;
    if (bytes == 0 || address % page != 0 || bytes % page != 0 || bytes > end_of_space ||
        address > end_of_space - bytes) {
        return false;
    }
    const threads::LockGuard lock(mutex_);
    for (std::uint64_t i = address >> leaf_shift; i <= (address + bytes - 1) >> leaf_shift; ++i) {
        if (leaves_[i].load(std::memory_order_relaxed) == nullptr) {
            Leaf* leaf = new (std::nothrow) Leaf;
            if (leaf == nullptr) {
                return false;
            }
            leaves_[i].store(leaf, std::memory_order_release);
        }
    }
    for (std::uint64_t at = address; at != address + bytes; at += page) {
        leaves_[at >> leaf_shift]
            .load(std::memory_order_relaxed)
            ->owners[(at >> page_shift) % pages_per_leaf]
            .store(owner, std::memory_order_release);
    }
    return true;
}

void SegmentIndex::remove(std::uint64_t address, std::uint64_t bytes, const Context* owner) {
    const threads::LockGuard lock(mutex_);
    for (std::uint64_t at = address; at != address + bytes; at += page) {
        Leaf* leaf = leaves_[at >> leaf_shift].load(std::memory_order_relaxed);
        std::atomic<Context*>& entry = leaf->owners[(at >> page_shift) % pages_per_leaf];
        if (entry.load(std::memory_order_relaxed) == owner) {
            entry.store(nullptr, std::memory_order_relaxed);
        }
    }
}

void SegmentIndex::remove_all(const Context* owner) {
    const threads::LockGuard lock(mutex_);
    for (std::atomic<Leaf*>& leaf : leaves_) {
        Leaf* const present = leaf.load(std::memory_order_relaxed);
        if (present == nullptr) {
            continue;
        }
        for (std::atomic<Context*>& entry : present->owners) {
            if (entry.load(std::memory_order_relaxed) == owner) {
                entry.store(nullptr, std::memory_order_relaxed);
            }
        }
    }
}

}  // namespace memlab::interpose
