// The what-if's answer: one row an allocator or bound, and the setting to choose. Pure: takes a
// program and policies, gives figures; text and JSON are made from them elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "allocator/pool_options.hpp"
#include "report/whatif/packing.hpp"
#include "report/whatif/program.hpp"
#include "report/whatif/runner.hpp"

namespace memlab::whatif {

enum class PolicyKind : std::uint8_t {
    allocator,
    lower_bound,
    offline,
};

/// Something to run the program through.
struct Policy {
    std::string name;   ///< as --policy takes it: "pytorch:expandable_segments:True"
    std::string label;  ///< for the table
    PolicyKind kind = PolicyKind::allocator;
    bool ours = false;                  ///< memlab's pool
    bool pytorch = false;               ///< PyTorch\'s allocator
    allocator::PoolOptions options;     ///< of memlab's pool
    bool one_stream = false;            ///< ... where MEMLAB_ONE_STREAM=on was asked for
    bool frees_in_stream_order = true;  ///< reuses a freed block at once, on its stream
    bool per_stream = false;            ///< keeps streams apart, where the log knows them
    bool waits_at_marks = false;        ///< gives memory back at a synchronization
    std::string how;  ///< how to use it: options to set; "" where there is nothing to set
    std::function<std::unique_ptr<Model>(std::uint64_t capacity)> make;
};

/// Names and values, in their order.
using PoolSettings = std::vector<std::pair<std::string, std::string>>;

/// The pool's options in the recording with these changed, and whether the changes ask for one
/// stream (what was recorded with it says itself what that did); false with `problem` set.
using ReadPoolSettings =
    std::function<bool(const PoolSettings& settings, allocator::PoolOptions* options,
                       bool* one_stream, std::string* problem)>;

/// Reads a --policy; `read_pool` knows the pool's options. False with `problem` set to one
/// sentence.
bool read_policy(std::string_view text, const ReadPoolSettings& read_pool, Policy* policy,
                 std::string* problem);

/// What is tried when nothing is asked for. Two may amount to the same: see same_pool().
std::vector<std::string> default_policies();

/// Whether both are memlab's pool under the same options.
bool same_pool(const Policy& a, const Policy& b);

/// What read_policy() takes, for the help text: a line for each, with what it is.
std::string list_of_policies();

struct Row {
    Policy policy;
    Outcome outcome;  ///< for a bound only reserved_peak
    Packing packing;  ///< of the offline packing
    std::uint64_t capacity = 0;
    bool fits() const { return !outcome.failure; }
};

struct Choice {
    std::optional<std::size_t> row;    ///< the best of what can be set; none when nothing fits
    std::optional<std::size_t> ours;   ///< the best setting of memlab's own pool that fits
    std::optional<std::size_t> least;  ///< what reserves least, whether it can be set or not
    std::string why;
};

struct Table {
    const Program* program = nullptr;
    LowerBound bound;
    std::uint64_t capacity = 0;
    bool limited = false;  ///< capacity is the caller's --limit
    std::uint64_t duration_ns = 0;
    std::vector<Row> rows;
    Choice choice;
    std::vector<std::string> notes;
};

/// Runs everything. `limit`: instead of the recorded device's memory; both less what was in use
/// outside of the program's allocations.
Table tabulate(const Program& program, const std::vector<Policy>& policies,
               std::optional<std::uint64_t> limit);

}  // namespace memlab::whatif
