// First fit in a given order: an item gets the lowest address at which it overlaps no placed item
// in time. Placed items that are live at its start come from a segment tree over the steps (an item
// is stored at the nodes that cover its lifetime), those that begin later from the order of begins.
#include "report/whatif/packing.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <vector>

#include "model/bounded_sum.hpp"
#include "report/whatif/free_ranges.hpp"
#include "report/whatif/model.hpp"

namespace memlab::report::whatif {

namespace {

constexpr std::uint64_t granularity = 512;
constexpr std::uint64_t unlimited = std::uint64_t{1} << 62;
constexpr std::uint64_t max_packed = std::uint64_t{1} << 48;

struct Item {
    std::uint64_t size = 0;
    std::uint32_t begin = 0;  ///< as a position in the order of allocations and frees
    std::uint32_t end = 0;    ///< exclusive
    std::uint64_t address = 0;
};

/// The items by begin, and whose begin or end each position is.
struct Lifetimes {
    std::vector<Item> items;
    std::vector<std::uint32_t> of_position;

    bool begins(std::uint32_t position) const {
        return items[of_position[position]].begin == position;
    }
    Item& item(std::uint32_t position) { return items[of_position[position]]; }
    const Item& item(std::uint32_t position) const { return items[of_position[position]]; }
};

/// Requests larger than any device are skipped.
Lifetimes find_lifetimes(const Program& program) {
    Lifetimes lifetimes;
    std::vector<std::uint32_t> item_of(program.allocations.size(), 0);
    lifetimes.items.reserve(program.allocations.size());
    lifetimes.of_position.reserve(2 * program.allocations.size());
    for (const Step& step : program.steps) {
        const auto position = static_cast<std::uint32_t>(lifetimes.of_position.size());
        if (step.kind == StepKind::allocate) {
            const std::uint64_t requested = program.allocations.requested(step.subject);
            if (requested > max_packed) {
                continue;
            }
            Item item;
            item.size = round_up(std::max<std::uint64_t>(requested, 1), granularity);
            item.begin = position;
            item.end = std::numeric_limits<std::uint32_t>::max();
            lifetimes.of_position.push_back(static_cast<std::uint32_t>(lifetimes.items.size()));
            lifetimes.items.push_back(item);
            item_of[step.subject] = static_cast<std::uint32_t>(lifetimes.items.size());
        } else if (step.kind == StepKind::free && item_of[step.subject] != 0) {
            const std::uint32_t index = item_of[step.subject] - 1;
            lifetimes.items[index].end = position;
            lifetimes.of_position.push_back(index);
        }
    }
    const auto end = static_cast<std::uint32_t>(lifetimes.of_position.size());
    for (Item& item : lifetimes.items) {
        item.end = std::min(item.end, end);
    }
    return lifetimes;
}

std::uint64_t packed_height(const std::vector<Item>& items) {
    std::uint64_t height = 0;
    for (const Item& item : items) {
        height = std::max(height, item.address + item.size);
    }
    return height;
}

/// True when no two items that are live at the same time overlap.
bool is_valid(const Lifetimes& lifetimes) {
    std::map<std::uint64_t, std::uint64_t> live;  // address to end
    for (std::uint32_t position = 0; position < lifetimes.of_position.size(); ++position) {
        const Item& item = lifetimes.item(position);
        if (!lifetimes.begins(position)) {
            live.erase(item.address);
            continue;
        }
        const auto next = live.lower_bound(item.address);
        if (next != live.end() && next->first < item.address + item.size) {
            return false;
        }
        if (next != live.begin() && std::prev(next)->second > item.address) {
            return false;
        }
        live.emplace_hint(next, item.address, item.address + item.size);
    }
    return true;
}

/// The comparisons of placing an item, besides those with placed ones: `candidates` begin in its
/// lifetime.
std::uint64_t fixed_cost(std::uint64_t candidates) {
    return candidates + 32;
}

/// Best fit in program order, over one unlimited range, in a single pass without items.
class PackByTime {
  public:
    explicit PackByTime(const Program& program) : slot_of_(program.allocations.size(), none) {
        free_.add(0, unlimited);
        for (const Step& step : program.steps) {
            if (step.kind == StepKind::allocate) {
                const std::uint64_t requested = program.allocations.requested(step.subject);
                if (requested <= max_packed) {
                    place(step.subject,
                          round_up(std::max<std::uint64_t>(requested, 1), granularity));
                }
            } else if (step.kind == StepKind::free && slot_of_[step.subject] != none) {
                free(step.subject);
            }
        }
        for (const Block& block : blocks_) {
            least_cost_ += block.size == 0 ? 0 : fixed_cost(begun_ - block.index);
        }
    }

    std::uint64_t height() const { return height_; }
    /// No two blocks overlapped.
    bool is_valid() const { return valid_; }
    /// What FirstFit takes at least for this program, in any order.
    std::uint64_t least_cost() const { return least_cost_; }

  private:
    static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
    struct Block {
        std::uint64_t address = 0;
        std::uint64_t size = 0;   ///< 0: not in use
        std::uint64_t index = 0;  ///< in the order of allocations
    };

    void place(std::uint32_t id, std::uint64_t size) {
        Block block{0, size, begun_++};
        free_.take_best(size, &block.address);
        height_ = std::max(height_, block.address + size);
        const auto next = live_.lower_bound(block.address);
        valid_ = valid_ && (next == live_.end() || next->first >= block.address + size) &&
                 (next == live_.begin() || std::prev(next)->second <= block.address);
        live_.emplace_hint(next, block.address, block.address + size);
        if (unused_.empty()) {
            slot_of_[id] = static_cast<std::uint32_t>(blocks_.size());
            blocks_.push_back(block);
        } else {
            slot_of_[id] = unused_.back();
            unused_.pop_back();
            blocks_[slot_of_[id]] = block;
        }
    }
    void free(std::uint32_t id) {
        Block& block = blocks_[slot_of_[id]];
        unused_.push_back(slot_of_[id]);
        slot_of_[id] = none;
        least_cost_ += fixed_cost(begun_ - block.index);
        free_.add(block.address, block.size);
        live_.erase(block.address);
        block = {};
    }

    FreeRanges free_;
    std::map<std::uint64_t, std::uint64_t> live_;  ///< address to end
    std::vector<std::uint32_t> slot_of_;           ///< by allocation
    std::vector<Block> blocks_;
    std::vector<std::uint32_t> unused_;  ///< slots
    std::uint64_t begun_ = 0;
    std::uint64_t height_ = 0;
    std::uint64_t least_cost_ = 0;
    bool valid_ = true;
};

class FirstFit {
  public:
    FirstFit(std::vector<Item>& items, std::uint64_t* budget) : items_(items), budget_(budget) {
        std::uint32_t positions = 1;
        for (const Item& item : items) {
            positions = std::max(positions, item.end);
        }
        leaves_ = std::bit_ceil(positions);
        nodes_.resize(std::size_t{2} * leaves_);
        begins_.reserve(items.size());
        for (const Item& item : items) {
            begins_.push_back(item.begin);
        }
        placed_.resize(items.size(), false);
    }

    /// False when the budget is used up.
    bool place_all(const std::vector<std::uint32_t>& order) {
        for (const std::uint32_t index : order) {
            if (!place(index)) {
                return false;
            }
        }
        return true;
    }

  private:
    bool place(std::uint32_t index) {
        Item& item = items_[index];
        busy_.clear();
        for (std::size_t node = leaves_ + item.begin; node > 0; node /= 2) {
            for (const std::uint32_t other : nodes_[node]) {
                busy_.push_back({items_[other].address, items_[other].size});
            }
        }
        // Items are sorted by begin.
        const auto last = std::lower_bound(begins_.begin(), begins_.end(), item.end);
        const auto end = static_cast<std::uint32_t>(last - begins_.begin());
        for (std::uint32_t other = index + 1; other < end; ++other) {
            if (placed_[other]) {
                busy_.push_back({items_[other].address, items_[other].size});
            }
        }
        const std::uint64_t cost = 4 * busy_.size() + fixed_cost(end - index);
        if (cost > *budget_) {
            return false;
        }
        *budget_ -= cost;
        std::sort(busy_.begin(), busy_.end(),
                  [](const Busy& a, const Busy& b) { return a.address < b.address; });
        std::uint64_t address = 0;
        for (const Busy& busy : busy_) {
            if (busy.address >= address + item.size) {
                break;
            }
            address = std::max(address, busy.address + busy.size);
        }
        item.address = address;
        placed_[index] = true;
        cover(index);
        return true;
    }

    void cover(std::uint32_t index) {
        std::size_t low = leaves_ + items_[index].begin;
        std::size_t high = leaves_ + items_[index].end;
        for (; low < high; low /= 2, high /= 2) {
            if (low % 2 == 1) {
                nodes_[low++].push_back(index);
            }
            if (high % 2 == 1) {
                nodes_[--high].push_back(index);
            }
        }
    }

    struct Busy {
        std::uint64_t address = 0;
        std::uint64_t size = 0;
    };
    std::vector<Item>& items_;
    std::uint64_t* budget_;
    std::size_t leaves_ = 1;
    std::vector<std::vector<std::uint32_t>> nodes_;
    std::vector<std::uint32_t> begins_;
    std::vector<bool> placed_;
    std::vector<Busy> busy_;
};

struct Order {
    const char* name;
    bool (*before)(const Item& a, const Item& b);
};

std::uint64_t lifetime(const Item& item) {
    return item.end - item.begin;
}

double area(const Item& item) {
    return static_cast<double>(item.size) * static_cast<double>(lifetime(item));
}

constexpr Order orders[] = {
    {"size", [](const Item& a, const Item& b) { return a.size > b.size; }},
    {"area", [](const Item& a, const Item& b) { return area(a) > area(b); }},
    {"lifetime", [](const Item& a, const Item& b) { return lifetime(a) > lifetime(b); }},
};

}  // namespace

LowerBound lower_bound(const Program& program) {
    LowerBound bound;
    std::uint64_t requested = 0;
    std::uint64_t rounded = 0;
    for (const Step& step : program.steps) {
        if (step.kind != StepKind::allocate && step.kind != StepKind::free) {
            continue;
        }
        const std::uint64_t bytes = program.allocations.requested(step.subject);
        const std::uint64_t size = round_up(std::max<std::uint64_t>(bytes, 1), granularity);
        if (step.kind == StepKind::allocate) {
            requested = model::saturating_add(requested, bytes);
            rounded = model::saturating_add(rounded, size);
            bound.requested = std::max(bound.requested, requested);
            bound.rounded = std::max(bound.rounded, rounded);
        } else {
            requested -= std::min(requested, bytes);
            rounded -= std::min(rounded, size);
        }
    }
    return bound;
}

Packing pack_offline(const Program& program, std::uint64_t budget) {
    Packing best;
    const auto consider = [&best](const char* order, std::uint64_t height, bool valid) {
        ++best.tried;
        // An overlap would be a bug in the packer: such a packing is never reported.
        if (valid && (best.order.empty() || height < best.bytes)) {
            best.bytes = height;
            best.order = order;
        }
    };
    const std::uint64_t share = budget / std::size(orders);
    {
        const PackByTime by_time(program);
        consider("time", by_time.height(), by_time.is_valid());
        if (by_time.least_cost() > share) {
            best.limited = true;
            return best;
        }
    }
    Lifetimes lifetimes = find_lifetimes(program);
    std::vector<Item>& items = lifetimes.items;
    for (const Order& order : orders) {
        std::vector<std::uint32_t> sequence(items.size());
        std::iota(sequence.begin(), sequence.end(), 0U);
        std::stable_sort(sequence.begin(), sequence.end(), [&](std::uint32_t a, std::uint32_t b) {
            return order.before(items[a], items[b]);
        });
        std::uint64_t left = share;
        if (FirstFit(items, &left).place_all(sequence)) {
            consider(order.name, packed_height(items), is_valid(lifetimes));
        } else {
            best.limited = true;
        }
    }
    return best;
}

}  // namespace memlab::report::whatif
