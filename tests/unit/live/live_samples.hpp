// What the tests of tools/live and tools/top are made of: a machine with GPUs and processes.
#pragma once

#include <string>

#include "tools/live/machine_sample.hpp"

namespace memlab::tools {

inline constexpr std::uint64_t mib = std::uint64_t{1} << 20;
inline constexpr std::uint64_t gib = std::uint64_t{1} << 30;

inline Gpu gpu_of(unsigned index, std::uint64_t used) {
    Gpu gpu;
    gpu.index = index;
    gpu.minor = index;
    gpu.uuid = "GPU-" + std::to_string(index);
    gpu.name = "NVIDIA H200";
    gpu.total = 141 * gib;
    gpu.used = used;
    gpu.free = gpu.total - used;
    return gpu;
}

inline ProcessFacts facts_of(pid_t pid, const std::string& command, pid_t parent = 100) {
    ProcessFacts facts;
    facts.pid = pid;
    facts.visible = true;
    facts.parent = parent;
    facts.parent_command = "bash";
    facts.command = command;
    facts.name = command.substr(0, command.find(' '));
    facts.user = "alice";
    facts.state = 'S';
    facts.start_ticks = static_cast<std::uint64_t>(pid);
    return facts;
}

inline LiveStatus status_of(pid_t pid, unsigned gpu, std::uint64_t allocated,
                            std::uint64_t reserved) {
    model::StatusDocument document;
    document.pid = static_cast<std::uint64_t>(pid);
    document.host = "node1";
    document.arguments = {"python3", "train.py"};
    document.recording = true;
    model::StatusDocument::Gpu entry;
    entry.gpu = 0;
    entry.uuid = "GPU-" + std::to_string(gpu);
    entry.name = "NVIDIA H200";
    entry.allocated_bytes = allocated;
    entry.max_allocated_bytes = allocated;
    entry.reserved_bytes = reserved;
    entry.max_reserved_bytes = reserved;
    entry.cached_bytes = reserved - allocated;
    entry.live_count = 12;
    entry.allocation_count = 40;
    document.gpus.push_back(entry);
    LiveStatus status{};
    status.process = pid;
    status.status = document;
    return status;
}

/// Two GPUs: on 0 a training under memlab, and a program without it; on 1 a worker that was left.
inline Observed small_machine() {
    Observed observed;
    observed.gpus.driver = "580.65.06";
    Gpu first = gpu_of(0, 40 * gib);
    first.processes = {{4711, 20 * gib, true, false}, {4712, 18 * gib, true, false}};
    Gpu second = gpu_of(1, 5 * gib);
    second.processes = {{4713, 4 * gib, true, false}};
    observed.gpus.gpus = {first, second};
    observed.statuses = {status_of(4711, 0, 12 * gib, 19 * gib)};
    observed.facts[4711] = facts_of(4711, "python3 train.py --epochs 3");
    observed.facts[4712] = facts_of(4712, "python3 serve.py --token secret");
    observed.facts[4713] = facts_of(4713, "python3 -c multiprocessing-fork", 1);
    observed.facts[4713].worker = true;
    observed.facts[4713].parent_gone = true;
    return observed;
}

}  // namespace memlab::tools
