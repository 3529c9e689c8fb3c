// Synthetic recordings of processes, for tests of runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "report/runs/collection.hpp"

namespace memlab::report {

inline RunMember synthetic_member(std::uint64_t pid, std::uint64_t parent, std::uint64_t start,
                                  const std::string& host = "node1") {
    RunMember member;
    member.file = "memlab.x." + std::to_string(pid) + ".json";
    model::Process& process = member.report.process;
    process.pid = pid;
    process.parent_pid = parent;
    process.host = host;
    process.start_wall_ns = start;
    process.duration_ns = 1000;
    process.ended = "exit";
    process.executable = "/bin/x";
    member.report.modules.emplace_back();
    member.report.stacks.emplace_back();
    return member;
}

/// Adds a device with these peaks to `member`.
inline model::Device& give_device(RunMember& member, const std::string& uuid,
                                  std::uint64_t allocated, std::uint64_t reserved) {
    model::Device device;
    device.index = member.report.devices.size();
    device.uuid = uuid;
    device.curves[static_cast<std::size_t>(model::Curve::allocated)] =
        model::CurveSummary{allocated, 0, 0};
    device.curves[static_cast<std::size_t>(model::Curve::reserved)] =
        model::CurveSummary{reserved, 0, 0};
    device.kinds["device"].count = 1;
    member.report.devices.push_back(std::move(device));
    return member.report.devices.back();
}

}  // namespace memlab::report
