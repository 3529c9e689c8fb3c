// Which devices of two reports are compared: those of the same index; where each side used one GPU
// alone, as the ranks of a run do, that and what is on it by its name.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "model/report.hpp"

namespace memlab::report {

/// Thread-safety: none.
class DevicePairs {
  public:
    DevicePairs(const model::Report& before, const model::Report& after) {
        const std::set<std::uint64_t> was = gpus(before);
        const std::set<std::uint64_t> is = gpus(after);
        if (was.size() != 1 || is.size() != 1 || was == is) {
            return;
        }
        for (const model::Device& old : before.devices) {
            for (const model::Device& now : after.devices) {
                if (old.used() && now.used() && old.allocator == now.allocator) {
                    after_.emplace(old.index, now.index);
                    before_.emplace(now.index, old.index);
                }
            }
        }
    }

    /// The index in AFTER of a device of BEFORE; of one that has no counterpart its own.
    std::uint64_t in_after(std::uint64_t before) const { return other(after_, before); }
    std::uint64_t in_before(std::uint64_t after) const { return other(before_, after); }

  private:
    static std::set<std::uint64_t> gpus(const model::Report& report) {
        std::set<std::uint64_t> out;
        for (const model::Device& device : report.devices) {
            if (device.used()) {
                out.insert(device.gpu());
            }
        }
        return out;
    }
    static std::uint64_t other(const std::map<std::uint64_t, std::uint64_t>& of,
                               std::uint64_t index) {
        const auto found = of.find(index);
        return found == of.end() ? index : found->second;
    }

    std::map<std::uint64_t, std::uint64_t> after_;  ///< by index in BEFORE
    std::map<std::uint64_t, std::uint64_t> before_;
};

}  // namespace memlab::report
