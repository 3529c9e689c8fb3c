#include "report/whatif/pytorch_model.hpp"

#include <bit>
#include <charconv>

namespace memlab::report::whatif {

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t min_block = 512;
constexpr std::uint64_t max_small = mib;
constexpr std::uint64_t own_segment_from = 10 * mib;
constexpr std::uint64_t own_segment_rounding = 2 * mib;

template <typename Number>
bool parse_number(std::string_view text, Number* value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
    return error == std::errc() && end == text.data() + text.size();
}

bool parse_setting(std::string_view name, std::string_view value, PyTorchSettings* settings,
                   std::string* problem) {
    const auto wrong = [&](const char* what) {
        *problem = std::string(name) + " takes " + what + ", not " + std::string(value);
        return false;
    };
    if (name == "max_split_size_mb") {
        std::uint64_t megabytes = 0;
        if (!parse_number(value, &megabytes) || megabytes <= 20 || megabytes > (1U << 30)) {
            return wrong("a number of MiB greater than 20");
        }
        settings->max_split_size = megabytes * mib;
    } else if (name == "roundup_power2_divisions") {
        if (!parse_number(value, &settings->roundup_power2_divisions) ||
            !std::has_single_bit(settings->roundup_power2_divisions) ||
            settings->roundup_power2_divisions > 64) {
            return wrong("one power of two up to 64");
        }
    } else if (name == "garbage_collection_threshold") {
        if (!parse_number(value, &settings->garbage_collection_threshold) ||
            !(settings->garbage_collection_threshold > 0) ||
            !(settings->garbage_collection_threshold < 1)) {
            return wrong("a number between 0 and 1");
        }
    } else if (name == "expandable_segments") {
        if (value != "True" && value != "False") {
            return wrong("True or False");
        }
        settings->expandable_segments = value == "True";
    } else {
        *problem = "the model of PyTorch's allocator does not know " + std::string(name) +
                   "; it knows max_split_size_mb, roundup_power2_divisions, "
                   "garbage_collection_threshold and expandable_segments";
        return false;
    }
    return true;
}

}  // namespace

bool parse_pytorch_settings(std::string_view text, PyTorchSettings* settings,
                            std::string* problem) {
    while (!text.empty()) {
        const std::size_t comma = std::min(text.find(','), text.size());
        const std::string_view setting = text.substr(0, comma);
        text.remove_prefix(std::min(comma + 1, text.size()));
        const std::size_t colon = setting.find(':');
        if (colon == std::string_view::npos) {
            *problem =
                "a setting of PyTorch's allocator is name:value, not " + std::string(setting);
            return false;
        }
        if (!parse_setting(setting.substr(0, colon), setting.substr(colon + 1), settings,
                           problem)) {
            return false;
        }
    }
    return true;
}

// --- blocks -------------------------------------------------------------------------------------

PyTorchModel::Key PyTorchModel::free_key(std::uint32_t index) const {
    const Block& block = blocks_[index];
    return {block.stream, block.size, block.address, index};
}

PyTorchModel::UnmappedKey PyTorchModel::unmapped_key(std::uint32_t index) const {
    const Block& block = blocks_[index];
    return {block.stream, block.address, index};
}

void PyTorchModel::insert_free(std::uint32_t index) {
    Block& block = blocks_[index];
    Pool& to = pool(block.small);
    block.gc_base = to.searches;
    to.free.insert(free_key(index));
}

void PyTorchModel::erase_free(std::uint32_t index) {
    pool(blocks_[index].small).free.erase(free_key(index));
}

std::uint32_t PyTorchModel::new_block(const Block& block) {
    if (spare_blocks_.empty()) {
        blocks_.push_back(block);
        return static_cast<std::uint32_t>(blocks_.size() - 1);
    }
    const std::uint32_t index = spare_blocks_.back();
    spare_blocks_.pop_back();
    blocks_[index] = block;
    return index;
}

void PyTorchModel::drop_block(std::uint32_t index) {
    spare_blocks_.push_back(index);
}

FreeSpace PyTorchModel::free_space() const {
    FreeSpace space;
    for (const Pool* each : {&small_, &large_}) {
        for (const Key& key : each->free) {
            space.largest = std::max(space.largest, std::get<1>(key));
            space.total += std::get<1>(key);
        }
    }
    return space;
}

bool PyTorchModel::may_reserve(std::uint64_t bytes) const {
    return meter_.reserved() <= settings_.allowed && bytes <= settings_.allowed - meter_.reserved();
}

// --- sizes --------------------------------------------------------------------------------------

std::uint64_t PyTorchModel::round_size(std::uint64_t requested) const {
    const std::uint64_t divisions = settings_.roundup_power2_divisions;
    if (requested < min_block) {
        return min_block;
    }
    if (divisions > 1 && requested > min_block * divisions) {
        return round_up(requested,
                        std::max<std::uint64_t>(std::bit_floor(requested) / divisions, 1));
    }
    return round_up(requested, min_block);
}

PyTorchModel::Request PyTorchModel::plan(const Allocation& allocation) const {
    Request request;
    request.size = round_size(allocation.requested);
    request.stream = allocation.stream;
    request.small = request.size <= max_small;
    request.segment = request.small ? small_segment
                      : request.size < own_segment_from
                          ? large_segment
                          : round_up(request.size, own_segment_rounding);
    return request;
}

// --- an allocation ------------------------------------------------------------------------------

bool PyTorchModel::allocate(std::uint32_t id, const Allocation& allocation) {
    if (allocation.requested > max_request) {
        return false;
    }
    const Request request = plan(allocation);
    std::uint32_t found = find_free(request);
    if (found == none) {
        if (collects_garbage()) {
            collect_garbage();
        }
        found = grow(request);
    }
    if (found == none && release_oversize(request)) {
        found = grow(request);
    }
    if (found == none) {
        release_cached();
        found = grow(request);
    }
    if (found == none) {
        return false;
    }
    found = cut(found, request);
    Block& block = blocks_[found];
    block.allocated = true;
    block.requested = allocation.requested;
    meter_.allocated(block.requested, block.size);
    live_.emplace(id, found);
    return true;
}

/// Removes the best-fit block from the free list.
std::uint32_t PyTorchModel::find_free(const Request& request) {
    Pool& from = pool(request.small);
    if (collects_garbage()) {
        ++from.searches;
    }
    auto found = from.free.lower_bound({request.stream, request.size, 0, 0});
    const auto usable = [&](std::set<Key>::iterator at) {
        return at != from.free.end() && std::get<0>(*at) == request.stream;
    };
    if (!usable(found)) {
        return none;
    }
    // A block that can grow in place counts with the unmapped block behind it, so it is taken last.
    const auto reach = [this](std::uint32_t index) {
        const Block& block = blocks_[index];
        const bool can_grow = block.next != none && !blocks_[block.next].mapped;
        return block.size + (can_grow ? blocks_[block.next].size : 0);
    };
    while (blocks_[std::get<3>(*found)].expandable) {
        const auto next = std::next(found);
        if (!usable(next) || reach(std::get<3>(*next)) >= reach(std::get<3>(*found))) {
            break;
        }
        found = next;
    }
    const std::uint64_t size = std::get<1>(*found);
    if (request.size < settings_.max_split_size && size >= settings_.max_split_size) {
        return none;
    }
    if (request.size >= settings_.max_split_size && size >= request.size + large_segment) {
        return none;
    }
    const std::uint32_t index = std::get<3>(*found);
    from.free.erase(found);
    return index;
}

bool PyTorchModel::should_split(std::uint32_t index, const Request& request) const {
    const std::uint64_t rest = blocks_[index].size - request.size;
    if (request.small || settings_.expandable_segments) {
        return rest >= min_block;
    }
    return request.size < settings_.max_split_size && rest > max_small;
}

std::uint32_t PyTorchModel::cut(std::uint32_t index, const Request& request) {
    if (!should_split(index, request)) {
        return index;
    }
    Block front = blocks_[index];
    front.size = request.size;
    front.next = index;
    const std::uint32_t made = new_block(front);
    if (front.previous != none) {
        blocks_[front.previous].next = made;
    }
    Block& rest = blocks_[index];
    rest.previous = made;
    rest.address += request.size;
    rest.size -= request.size;
    insert_free(index);
    return made;
}

std::uint32_t PyTorchModel::grow(const Request& request) {
    if (!may_reserve(request.segment)) {
        return none;
    }
    return settings_.expandable_segments ? grow_expandable(request) : grow_classic(request);
}

std::uint32_t PyTorchModel::grow_classic(const Request& request) {
    if (!meter_.can_grow(request.segment)) {
        return none;
    }
    meter_.grow(request.segment, [this] { return free_space(); });
    meter_.count_alloc(request.segment);
    Block block;
    block.stream = request.stream;
    block.size = request.segment;
    block.small = request.small;
    if (segments_made_ < segment_addresses_.size()) {
        block.address = segment_addresses_[segments_made_++];
    } else {
        block.address = next_address_;
        next_address_ += request.segment;
    }
    return new_block(block);
}

// --- a free -------------------------------------------------------------------------------------

void PyTorchModel::free(std::uint32_t id) {
    const auto found = live_.find(id);
    const std::uint32_t index = found->second;
    live_.erase(found);
    Block& block = blocks_[index];
    block.allocated = false;
    meter_.freed(block.requested, block.size);
    meter_.completed(block.size);
    const std::uint32_t previous = block.previous;
    const std::uint32_t next = block.next;
    merge(index, previous);
    merge(index, next);
    insert_free(index);
}

/// Merges the neighbour `other` into `into` if possible; returns the bytes added.
std::uint64_t PyTorchModel::merge(std::uint32_t into, std::uint32_t other) {
    if (other == none || blocks_[other].allocated ||
        blocks_[other].mapped != blocks_[into].mapped) {
        return 0;
    }
    if (blocks_[other].mapped) {
        erase_free(other);
    } else {
        pool(blocks_[other].small).unmapped.erase(unmapped_key(other));
    }
    Block& target = blocks_[into];
    const Block& source = blocks_[other];
    if (target.previous == other) {
        target.address = source.address;
        target.previous = source.previous;
        if (target.previous != none) {
            blocks_[target.previous].next = into;
        }
    } else {
        target.next = source.next;
        if (target.next != none) {
            blocks_[target.next].previous = into;
        }
    }
    const std::uint64_t size = source.size;
    target.size += size;
    drop_block(other);
    return size;
}

// --- releasing memory ---------------------------------------------------------------------------

bool PyTorchModel::collects_garbage() const {
    return settings_.garbage_collection_threshold > 0 &&
           settings_.allowed != PyTorchSettings::no_limit;
}

void PyTorchModel::collect_garbage() {
    const auto threshold = static_cast<std::uint64_t>(settings_.garbage_collection_threshold *
                                                      static_cast<double>(settings_.allowed));
    if (meter_.reserved() <= threshold) {
        return;
    }
    const std::uint64_t target = meter_.reserved() - threshold;
    std::uint64_t reclaimed = 0;
    const auto age = [this](std::uint32_t index) {
        return large_.searches - blocks_[index].gc_base;
    };
    std::uint64_t total_age = 0;
    std::uint64_t count = 0;
    for (const Key& key : large_.free) {
        if (is_whole(std::get<3>(key))) {
            total_age += age(std::get<3>(key));
            ++count;
        }
    }
    bool freed = true;
    while (reclaimed < target && freed && count > 0) {
        const double threshold_age = static_cast<double>(total_age) / static_cast<double>(count);
        freed = false;
        for (auto at = large_.free.begin(); at != large_.free.end();) {
            const std::uint32_t index = std::get<3>(*at);
            ++at;
            if (is_whole(index) && static_cast<double>(age(index)) >= threshold_age) {
                freed = true;
                reclaimed += blocks_[index].size;
                total_age -= age(index);
                --count;
                release_segment(index);
            }
        }
    }
}

/// With max_split_size: releases as many unused oversize segments as the request needs.
bool PyTorchModel::release_oversize(const Request& request) {
    if (settings_.max_split_size == PyTorchSettings::no_limit) {
        return false;
    }
    Pool& from = pool(request.small);
    const std::uint64_t wanted = std::max(request.size, settings_.max_split_size);
    auto at = from.free.lower_bound({request.stream, wanted, 0, 0});
    const auto releasable = [&](std::set<Key>::iterator it) { return is_whole(std::get<3>(*it)); };
    if (at != from.free.end() && std::get<0>(*at) == request.stream) {
        if (!releasable(at)) {
            return false;
        }
        release_segment(std::get<3>(*at));
        return true;
    }
    std::uint64_t released = 0;
    while (at != from.free.begin() && released < wanted) {
        --at;
        if (std::get<1>(*at) < settings_.max_split_size || std::get<0>(*at) != request.stream ||
            !releasable(at)) {
            break;
        }
        const std::uint32_t index = std::get<3>(*at);
        released += blocks_[index].size;
        at = std::next(at);
        release_segment(index);
    }
    return released >= wanted;
}

void PyTorchModel::release_cached() {
    release_pool(false);
    release_pool(true);
}

void PyTorchModel::release_pool(bool small) {
    Pool& from = pool(small);
    std::vector<std::uint32_t> to_unmap;
    for (auto at = from.free.begin(); at != from.free.end();) {
        const std::uint32_t index = std::get<3>(*at);
        ++at;
        if (blocks_[index].expandable) {
            to_unmap.push_back(index);
        } else if (is_whole(index)) {
            release_segment(index);
        }
    }
    for (const std::uint32_t index : to_unmap) {
        unmap(index);
    }
}

void PyTorchModel::release_segment(std::uint32_t index) {
    erase_free(index);
    meter_.shrink(blocks_[index].size);
    meter_.count_free(blocks_[index].size);
    drop_block(index);
}

}  // namespace memlab::report::whatif
