// An intrusive doubly linked list of freed blocks, oldest first. Insertion allocates nothing, so a
// free cannot fail. A block is in one list at most.
#pragma once

#include "allocator/block_store.hpp"

namespace memlab::allocator {

class BlockList {
  public:
    void push_back(Block& block) noexcept {
        block.use.list_previous = newest_;
        block.use.list_next = nullptr;
        (newest_ != nullptr ? newest_->use.list_next : oldest_) = &block;
        newest_ = &block;
        ++size_;
    }

    void remove(Block& block) noexcept {
        (block.use.list_previous != nullptr ? block.use.list_previous->use.list_next : oldest_) =
            block.use.list_next;
        (block.use.list_next != nullptr ? block.use.list_next->use.list_previous : newest_) =
            block.use.list_previous;
        block.use.list_previous = nullptr;
        block.use.list_next = nullptr;
        --size_;
    }

    void clear() noexcept {
        oldest_ = newest_ = nullptr;
        size_ = 0;
    }

    bool empty() const noexcept { return oldest_ == nullptr; }
    Block* oldest() const noexcept { return oldest_; }
    Block* newest() const noexcept { return newest_; }
    std::size_t size() const noexcept { return size_; }

  private:
    Block* oldest_ = nullptr;
    Block* newest_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace memlab::allocator
