// Synthetic processes for the checks.
#pragma once

#include <string>
#include <vector>

#include "report/check/check.hpp"
#include "tests/unit/runs/synthetic_member.hpp"

namespace memlab::report::check {

/// A process with one GPU; tests add more to run.members.back().
inline report::RunMember member_with_gpu(std::uint64_t allocated, std::uint64_t reserved,
                                         std::uint64_t pid = 7) {
    report::RunMember member = report::synthetic_member(pid, 1, pid);
    model::Device& device =
        report::give_device(member, "GPU-" + std::to_string(pid), allocated, reserved);
    device.name = "Made Up 9000";
    device.driver_version = 13000;
    return member;
}

inline Limit limit_of(Metric metric, const std::string& bound, Subject subject = {}) {
    std::string problem;
    const auto parsed = parse_bound(bound, info(metric).unit, &problem);
    if (!parsed) {
        throw std::invalid_argument(problem);
    }
    return {metric, std::move(subject), *parsed, "--test"};
}

/// The run and its processes, which point into it.
struct Run {
    report::RunCollection collection;
    std::unique_ptr<ProcessOptions> process_options = std::make_unique<ProcessOptions>();
    std::vector<Process> processes;

    explicit Run(std::vector<report::RunMember> members,
                 std::vector<report::Suppression> suppressions = {}) {
        collection.members = std::move(members);
        process_options->suppressions = std::move(suppressions);
        processes = prepare_processes(collection, *process_options);
    }
    Outcome held_to(const std::vector<Limit>& limits, const Options& options = {}) const {
        return check(processes, limits, options);
    }
    /// The verdict on the only limit.
    Verdict verdict(const Limit& limit, const Options& options = {}) const {
        for (const Row& row : held_to({limit}, options).rows) {
            if (row.limit) {
                return row.verdict;
            }
        }
        return Verdict::unknown;
    }
};

}  // namespace memlab::report::check
