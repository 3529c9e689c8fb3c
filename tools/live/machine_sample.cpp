#include "tools/live/machine_sample.hpp"

#include <algorithm>
#include <utility>

namespace memlab::tools {
namespace {

using StatusGpu = model::StatusDocument::Gpu;

class Joiner {
  public:
    explicit Joiner(Observed observed) : observed_(std::move(observed)) {}

    MachineSample run() {
        out_.driver = observed_.gpus.driver;
        out_.nvml_problem = observed_.gpus.problem;
        out_.pids_of_the_host = observed_.pids_of_the_host;
        for (const Gpu& gpu : observed_.gpus.gpus) {
            GpuSample sample;
            sample.gpu = gpu;
            sample.gpu.processes.clear();
            sample.by_nvml = true;
            out_.gpus.push_back(std::move(sample));
        }
        for (const LiveStatus& status : observed_.statuses) {
            add_memlab(status);
        }
        for (std::size_t i = 0; i < observed_.gpus.gpus.size(); ++i) {
            for (const GpuProcess& process : observed_.gpus.gpus[i].processes) {
                add_listed(i, process);
            }
        }
        for (const OpenDevices& open : observed_.open) {
            add_open(open);
        }
        for (auto& [pid, process] : processes_) {
            std::sort(process.uses.begin(), process.uses.end(),
                      [](const GpuUse& a, const GpuUse& b) { return a.gpu < b.gpu; });
            out_.processes.push_back(std::move(process));
        }
        add_remainders();
        return std::move(out_);
    }

  private:
    ProcessSample& process(pid_t pid) {
        const auto [at, is_new] = processes_.try_emplace(pid);
        if (is_new) {
            const auto facts = observed_.facts.find(pid);
            if (facts != observed_.facts.end()) {
                at->second.facts = facts->second;
            }
            at->second.facts.pid = pid;
        }
        return at->second;
    }

    static GpuUse& use(ProcessSample& process, std::size_t gpu) {
        for (GpuUse& known : process.uses) {
            if (known.gpu == gpu) {
                return known;
            }
        }
        process.uses.emplace_back().gpu = gpu;
        return process.uses.back();
    }

    /// The GPU with this UUID; one that NVML did not list (an instance of MIG, or there is no NVML)
    /// is known by what the process says of it.
    std::size_t gpu_of(const StatusGpu& gpu) {
        for (std::size_t i = 0; i < out_.gpus.size(); ++i) {
            if (out_.gpus[i].gpu.uuid == gpu.uuid) {
                return i;
            }
        }
        GpuSample sample;
        sample.gpu.index = static_cast<unsigned>(out_.gpus.size());
        sample.gpu.minor = ~0U;
        sample.gpu.uuid = gpu.uuid;
        sample.gpu.name = gpu.name;
        sample.gpu.processes_known = false;
        sample.gpu.total = gpu.total_bytes.value_or(0);
        sample.gpu.free = gpu.free_bytes.value_or(0);
        sample.gpu.used = gpu.total_bytes && gpu.free_bytes
                              ? *gpu.total_bytes - std::min(*gpu.free_bytes, *gpu.total_bytes)
                              : 0;
        out_.gpus.push_back(std::move(sample));
        return out_.gpus.size() - 1;
    }

    void add_memlab(const LiveStatus& status) {
        ProcessSample& sample = process(status.process);
        sample.memlab = true;
        sample.status = status.status;
        sample.problem = status.problem;
        if (status.status) {
            for (const StatusGpu& gpu : status.status->gpus) {
                use(sample, gpu_of(gpu)).memlab = gpu;
            }
        }
    }

    const OpenDevices* open_of(pid_t pid) const {
        const auto found = std::find_if(observed_.open.begin(), observed_.open.end(),
                                        [pid](const OpenDevices& open) { return open.pid == pid; });
        return found == observed_.open.end() ? nullptr : &*found;
    }

    void add_listed(std::size_t gpu, const GpuProcess& listed) {
        ProcessSample& sample = process(listed.pid);
        // Without the machine's own process ids, a process here that has the same number and uses
        // no GPU is another one.
        if (!observed_.pids_of_the_host && !sample.memlab && open_of(listed.pid) == nullptr) {
            sample.facts = {};
            sample.facts.pid = listed.pid;
        }
        GpuUse& entry = use(sample, gpu);
        entry.listed = true;
        entry.used = listed.bytes;
        entry.graphics = listed.graphics && !listed.compute;
    }

    /// A GPU's file alone is open in nvidia-persistenced, too; with that of unified memory CUDA was
    /// started in it or in the process that it is a fork of.
    void add_open(const OpenDevices& open) {
        if (!open.uvm || open.pid == observed_.own_child) {
            return;
        }
        const auto known = processes_.find(open.pid);
        if (known != processes_.end() && !known->second.uses.empty()) {
            return;
        }
        ProcessSample& sample = process(open.pid);
        for (std::size_t i = 0; i < out_.gpus.size(); ++i) {
            if (std::find(open.minors.begin(), open.minors.end(), out_.gpus[i].gpu.minor) !=
                open.minors.end()) {
                use(sample, i).open_only = true;
            }
        }
        if (sample.uses.empty() && !sample.memlab) {
            processes_.erase(open.pid);
        }
    }

    void add_remainders() {
        for (std::size_t i = 0; i < out_.gpus.size(); ++i) {
            GpuSample& gpu = out_.gpus[i];
            if (!gpu.by_nvml || !gpu.gpu.processes_known) {
                continue;
            }
            std::uint64_t known = 0;
            bool all_known = true;
            for (const ProcessSample& process : out_.processes) {
                for (const GpuUse& each : process.uses) {
                    known += each.gpu == i ? each.known_bytes() : 0;
                    all_known &= each.gpu != i || !each.listed || each.used.has_value();
                }
            }
            if (all_known) {
                gpu.unaccounted = gpu.gpu.used - std::min(known, gpu.gpu.used);
            }
        }
    }

    Observed observed_;
    MachineSample out_;
    std::map<pid_t, ProcessSample> processes_;
};

template <typename Get>
std::uint64_t sum_of_memlab(const ProcessSample& process, Get get) {
    std::uint64_t sum = 0;
    for (const GpuUse& use : process.uses) {
        sum += use.memlab ? get(*use.memlab) : 0;
    }
    return sum;
}

}  // namespace

std::uint64_t ProcessSample::known_bytes() const {
    std::uint64_t sum = 0;
    for (const GpuUse& use : uses) {
        sum += use.known_bytes();
    }
    return sum;
}

std::uint64_t ProcessSample::allocated() const {
    return sum_of_memlab(*this, [](const StatusGpu& gpu) { return gpu.allocated_bytes; });
}

std::uint64_t ProcessSample::reserved() const {
    return sum_of_memlab(*this, [](const StatusGpu& gpu) { return gpu.reserved_bytes; });
}

std::optional<std::uint64_t> ProcessSample::tensors() const {
    const bool any = std::any_of(uses.begin(), uses.end(), [](const GpuUse& use) {
        return use.memlab && use.memlab->tensor_bytes;
    });
    if (!any) {
        return std::nullopt;
    }
    return sum_of_memlab(*this, [](const StatusGpu& gpu) { return gpu.tensor_bytes.value_or(0); });
}

std::uint64_t ProcessSample::live_count() const {
    return sum_of_memlab(*this, [](const StatusGpu& gpu) { return gpu.live_count; });
}

std::uint64_t ProcessSample::cached() const {
    return sum_of_memlab(*this, [](const StatusGpu& gpu) { return gpu.cached_bytes; });
}

const ProcessSample* MachineSample::find(pid_t pid) const {
    const auto found = std::find_if(processes.begin(), processes.end(),
                                    [pid](const ProcessSample& each) { return each.pid() == pid; });
    return found == processes.end() ? nullptr : &*found;
}

MachineSample join(Observed observed) {
    return Joiner(std::move(observed)).run();
}

}  // namespace memlab::tools
