// Programs to run models with: written step by step, or random.
#pragma once

#include <cstdint>
#include <vector>

#include "report/whatif/program.hpp"
#include "tests/unit/trace/recording.hpp"

namespace memlab::test {

/// Writes a program call by call.
class ProgramWriter {
  public:
    std::uint32_t allocate(std::uint64_t requested, std::uint64_t stream = 0) {
        const auto id = static_cast<std::uint32_t>(program.allocations.size());
        report::whatif::Allocation allocation;
        allocation.requested = requested;
        allocation.stream = stream;
        allocation.context = 1;
        allocation.event = program.steps.size() + 1;
        allocation.time_ns = 1000 * allocation.event;
        program.allocations.push_back(allocation);
        program.steps.push_back({report::whatif::StepKind::allocate, id});
        return id;
    }
    void request_free(std::uint32_t id) {
        program.steps.push_back({report::whatif::StepKind::free, id});
    }
    void complete(std::uint32_t id) {
        program.steps.push_back({report::whatif::StepKind::complete, id});
    }
    void free(std::uint32_t id) {
        request_free(id);
        complete(id);
    }
    void empty_cache() { program.steps.push_back({report::whatif::StepKind::empty_cache, 0}); }
    void mark() { program.steps.push_back({report::whatif::StepKind::mark, 0}); }

    report::whatif::Program program;
};

/// Allocations up to `largest`, freed in any order, completions late, several streams.
inline report::whatif::Program random_program(std::uint64_t seed, int steps, std::uint64_t largest,
                                              std::uint64_t streams = 1) {
    Random random(seed);
    ProgramWriter writer;
    std::vector<std::uint32_t> live;
    std::vector<std::uint32_t> freed;
    for (int i = 0; i < steps; ++i) {
        const std::uint64_t choice = random.below(10);
        if (choice < 5 || live.empty()) {
            live.push_back(writer.allocate(random.below(1 + (largest >> random.below(16))),
                                           random.below(streams)));
        } else if (choice < 9) {
            const std::size_t index = random.below(live.size());
            writer.request_free(live[index]);
            freed.push_back(live[index]);
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
        } else if (random.one_in(10)) {
            writer.empty_cache();
        } else if (random.one_in(10)) {
            writer.mark();
        }
        while (!freed.empty() && random.one_in(2)) {
            writer.complete(freed.front());
            freed.erase(freed.begin());
        }
    }
    return std::move(writer.program);
}

}  // namespace memlab::test
