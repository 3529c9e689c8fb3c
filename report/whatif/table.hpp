// The result of a what-if: one row per allocator or bound, and the recommended setting. Pure
// computation from a program and policies; rendered elsewhere.
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

namespace memlab::report::whatif {

enum class PolicyKind : std::uint8_t {
    allocator,
    lower_bound,
    offline,
};

/// An allocator or bound to run the program on.
struct Policy {
    std::string name;   ///< as --policy takes it: "pytorch:expandable_segments:True"
    std::string label;  ///< for the table
    PolicyKind kind = PolicyKind::allocator;
    bool ours = false;                  ///< memlab's pool
    bool pytorch = false;               ///< PyTorch's allocator
    allocator::PoolOptions options;     ///< of memlab's pool
    bool one_stream = false;            ///< ... with MEMLAB_ONE_STREAM=on
    bool frees_in_stream_order = true;  ///< reuses a freed block at once, on its stream
    bool per_stream = false;            ///< separates streams, if the log has them
    bool releases_at_marks = false;     ///< releases memory at a synchronization
    std::string how;                    ///< options to set for it, setting_text(); "": none
    bool by_default = false;            ///< nobody asked for it by name
    std::function<std::unique_ptr<Model>(std::uint64_t capacity, const Program& program)> make;

    /// memlab's pool with the options of the recording.
    bool is_recorded_pool() const { return name == "pool"; }
};

/// Names and values, in order.
using PoolSettings = std::vector<std::pair<std::string, std::string>>;

/// The recorded pool options with these changes, and whether the changes set one_stream (a
/// recording with it already has its effects); false with `problem` set.
using ReadPoolSettings =
    std::function<bool(const PoolSettings& settings, allocator::PoolOptions* options,
                       bool* one_stream, std::string* problem)>;

/// Parses a --policy; `read_pool` parses the pool's options. False with `problem` set to one
/// sentence.
bool read_policy(std::string_view text, const ReadPoolSettings& read_pool, Policy* policy,
                 std::string* problem);

/// The policies without --policy. Two may be equal: see same_pool().
std::vector<std::string> default_policies();

/// Whether both are memlab's pool with the same options.
bool same_pool(const Policy& a, const Policy& b);

/// The help text of --policy: one line per form.
std::string policy_help();

struct Row {
    Policy policy;
    Outcome outcome;  ///< for a bound only reserved_peak
    Packing packing;  ///< of the offline packing
    std::uint64_t capacity = 0;
    /// Whether it served all that was served in the recording.
    bool fits() const { return !outcome.failure; }
};

struct Choice {
    std::optional<std::size_t> row;    ///< the recommendation; none when nothing fits
    std::optional<std::size_t> ours;   ///< the best setting of memlab's own pool that fits
    std::optional<std::size_t> least;  ///< the lowest reserved peak, whether it can be set or not
    std::string why;
};

struct Table {
    const Program* program = nullptr;
    LowerBound bound;
    std::uint64_t capacity = 0;
    bool limited = false;  ///< capacity is the caller's --limit
    bool is_as_recorded =
        false;  ///< the pool's row with the recorded options repeats the recording
    std::uint64_t duration_ns = 0;
    std::vector<Row> rows;
    Choice choice;
    std::vector<std::string> notes;
};

/// Whole sentences, for Table::notes.
std::vector<std::string> make_notes(const Program& program, const Table& table);

/// Called before each policy is run, with the number of those that were begun before; from any
/// thread, by one at a time.
using RowObserver = std::function<void(std::size_t begun)>;

/// Runs all policies. `limit` replaces the recorded device's memory; memory in use outside the
/// program's allocations is subtracted from either.
Table tabulate(const Program& program, const std::vector<Policy>& policies,
               std::optional<std::uint64_t> limit, const RowObserver& begins = {});

}  // namespace memlab::report::whatif
