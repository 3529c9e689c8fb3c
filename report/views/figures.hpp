// What a call site, or several of them together, took: the columns of every view.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "report/model.hpp"

namespace memlab::report {

/// Sums stop at the largest number: figures come from a file, they may not add up.
struct Figures {
    /// Held at the device's allocated peak, as far as the curve counts it.
    std::uint64_t peak_count = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t count = 0;  ///< allocated over the whole run
    std::uint64_t bytes = 0;
    std::uint64_t live_count = 0;  ///< held at the end
    std::uint64_t live_bytes = 0;
    std::uint64_t temporaries = 0;  ///< freed before their thread allocated anything else

    void add(const Figures& other);
    bool operator==(const Figures&) const = default;
};

Figures figures_of(const Site& site);

/// Of all sites of a device, of all kinds of memory.
Figures figures_of(const Report& report, const Device& device);

/// What views are sorted by.
enum class Order { peak, bytes, count, live, temporaries };

/// "peak", "bytes", "count", "live", "temporaries": in the order of Order.
const std::vector<std::string>& order_names();

/// `name` is one of order_names().
Order order_of(const std::string& name);

/// The figure that `order` sorts by.
std::uint64_t value_of(const Figures& figures, Order order);

/// {at_peak_bytes, at_peak_count, bytes, count, live_bytes, live_count, temporaries}.
nlohmann::ordered_json figures_json(const Figures& figures);

/// part / whole; 0 for a whole of 0.
double share_of(std::uint64_t part, std::uint64_t whole);

}  // namespace memlab::report
