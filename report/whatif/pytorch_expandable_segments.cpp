// Expandable segments: an address range larger than the device, of which memory is mapped chunk by
// chunk, and unmapped again where whole chunks are free.
#include "report/whatif/pytorch_model.hpp"

namespace memlab::report::whatif {

std::uint64_t PyTorchModel::chunk_size(bool small) const {
    return small ? small_segment : large_segment;
}

bool PyTorchModel::can_hold(std::uint32_t index, std::uint64_t size) const {
    std::uint64_t bytes = 0;
    while (bytes < size && index != none && !blocks_[index].allocated) {
        bytes += blocks_[index].size;
        index = blocks_[index].next;
    }
    return bytes >= size;
}

/// The lowest free or unmapped block at which the request could be served by mapping more.
std::uint32_t PyTorchModel::find_expandable(const Request& request) {
    Pool& from = pool(request.small);
    for (auto at = from.unmapped.lower_bound({request.stream, 0, 0});
         at != from.unmapped.end() && std::get<0>(*at) == request.stream; ++at) {
        std::uint32_t candidate = std::get<2>(*at);
        const std::uint32_t before = blocks_[candidate].previous;
        if (before != none && !blocks_[before].allocated) {
            candidate = before;
        }
        if (can_hold(candidate, request.size)) {
            return candidate;
        }
    }
    // A new segment: address space of 9/8 of the device's memory.
    Block block;
    block.stream = request.stream;
    block.size = address_space(request.small);
    block.address = round_up(next_address_, chunk_size(request.small));
    block.small = request.small;
    block.mapped = false;
    block.expandable = true;
    next_address_ = block.address + block.size;
    const std::uint32_t index = new_block(block);
    from.unmapped.insert(unmapped_key(index));
    return index;
}

/// Maps memory to the first `size` bytes, in whole chunks, and merges them with their neighbours.
bool PyTorchModel::map(std::uint32_t index, std::uint64_t size) {
    const bool small = blocks_[index].small;
    const std::uint64_t chunk = chunk_size(small);
    const std::uint64_t bytes = std::min(round_up(size, chunk), blocks_[index].size);
    if (!meter_.can_grow(bytes)) {
        return false;
    }
    pool(small).unmapped.erase(unmapped_key(index));
    if (bytes < blocks_[index].size) {
        Block rest = blocks_[index];
        rest.address += bytes;
        rest.size -= bytes;
        rest.previous = index;
        const std::uint32_t made = new_block(rest);
        if (rest.next != none) {
            blocks_[rest.next].previous = made;
        }
        blocks_[index].next = made;
        blocks_[index].size = bytes;
        pool(small).unmapped.insert(unmapped_key(made));
    }
    meter_.grow(bytes, [this] { return free_space(); });
    meter_.count_map(bytes, bytes / chunk);
    blocks_[index].mapped = true;
    const std::uint32_t previous = blocks_[index].previous;
    const std::uint32_t next = blocks_[index].next;
    merge(index, previous);
    merge(index, next);
    insert_free(index);
    return true;
}

std::uint64_t PyTorchModel::address_space(bool small) const {
    return round_up(meter_.capacity() + meter_.capacity() / 8, chunk_size(small));
}

std::uint32_t PyTorchModel::grow_expandable(const Request& request) {
    if (request.size > address_space(request.small)) {
        return none;
    }
    std::uint32_t candidate = find_expandable(request);
    if (!blocks_[candidate].mapped &&
        !map(candidate, std::min(blocks_[candidate].size, request.size))) {
        return none;
    }
    while (blocks_[candidate].size < request.size) {
        const std::uint32_t next = blocks_[candidate].next;
        const std::uint64_t missing = request.size - blocks_[candidate].size;
        if (!map(next, std::min(missing, blocks_[next].size))) {
            return none;
        }
        candidate = next;  // merged with the block before it
    }
    erase_free(candidate);
    return candidate;
}

/// Unmaps the whole chunks in a free block.
void PyTorchModel::unmap(std::uint32_t index) {
    const Block whole = blocks_[index];
    const std::uint64_t chunk = chunk_size(whole.small);
    // Segment bases are multiples of the chunk size.
    const std::uint64_t begin = round_up(whole.address, chunk);
    const std::uint64_t end = (whole.address + whole.size) / chunk * chunk;
    if (begin >= end) {
        return;
    }
    erase_free(index);
    if (begin > whole.address) {
        Block before = whole;
        before.size = begin - whole.address;
        before.next = index;
        const std::uint32_t made = new_block(before);
        if (before.previous != none) {
            blocks_[before.previous].next = made;
        }
        blocks_[index].previous = made;
        insert_free(made);
    }
    if (whole.address + whole.size > end) {
        Block after = whole;
        after.address = end;
        after.size = whole.address + whole.size - end;
        after.previous = index;
        const std::uint32_t made = new_block(after);
        if (after.next != none) {
            blocks_[after.next].previous = made;
        }
        blocks_[index].next = made;
        insert_free(made);
    }
    Block& block = blocks_[index];
    block.address = begin;
    block.size = end - begin;
    block.mapped = false;
    const std::uint64_t bytes = block.size;
    const std::uint32_t previous = block.previous;
    const std::uint32_t next = block.next;
    merge(index, previous);
    merge(index, next);
    pool(whole.small).unmapped.insert(unmapped_key(index));
    meter_.shrink(bytes);
    meter_.count_unmap(bytes, bytes / chunk);
    if (!blocks_[index].is_split()) {  // address space only: released, too
        pool(whole.small).unmapped.erase(unmapped_key(index));
        drop_block(index);
    }
}

}  // namespace memlab::report::whatif
