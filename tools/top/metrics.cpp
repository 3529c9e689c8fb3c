#include "tools/top/metrics.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>
#include <utility>

#include "own_version.hpp"
#include "report/anonymize/anonymizer.hpp"
#include "report/runs/process_matching.hpp"
#include "report/symbols/category.hpp"
#include "report/text/names.hpp"
#include "report/text/terminal.hpp"

namespace memlab::tools {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;
using StatusGpu = model::StatusDocument::Gpu;

class MetricsText {
  public:
    MetricsText(const History& history, const DetailsOf& details, const MetricsOptions& options)
        : history_(history), sample_(history.latest()), details_(details), options_(options) {
        if (options.anonymize) {
            anonymizer_.learn(sample_.host, {});
        }
    }

    std::string write() {
        family("memlab_top_info", "gauge", "", "The memlab-top that tells this; always 1.");
        value({{"host", host()}, {"version", own_version}}, 1);
        gpus();
        processes();
        memory();
        events();
        sites();
        out_ += "# EOF\n";
        return std::move(out_);
    }

  private:
    std::string host() {
        return options_.anonymize ? anonymizer_.host(sample_.host) : sample_.host;
    }

    std::string uuid_of(const Gpu& gpu) {
        return options_.anonymize ? anonymizer_.uuid(gpu.uuid) : gpu.uuid;
    }

    Labels labels_of(const Gpu& gpu) {
        return {{"host", host()}, {"gpu", std::to_string(gpu.index)}, {"uuid", uuid_of(gpu)}};
    }

    static model::Process described(const ProcessSample& process) {
        model::Process described;
        if (process.status) {
            described.executable = process.status->executable;
            described.arguments = process.status->arguments;
        } else {
            // What /proc has joined by blanks: enough for the names of programs.
            std::string_view rest = process.facts.command;
            while (!rest.empty()) {
                const std::size_t end = std::min(rest.find(' '), rest.size());
                described.arguments.emplace_back(rest.substr(0, end));
                rest.remove_prefix(std::min(end + 1, rest.size()));
            }
            described.executable =
                described.arguments.empty() ? process.facts.name : described.arguments.front();
        }
        return described;
    }

    Labels labels_of(const ProcessSample& process) {
        const model::Process program = described(process);
        const std::string executable = report::base_name(program.executable);
        Labels labels = {{"host", host()},
                         {"pid", std::to_string(process.pid())},
                         {"executable", process.facts.visible || process.status ? executable : ""}};
        const std::string script = report::program_name(program);
        if (options_.arguments && !script.empty() && script != executable) {
            labels.emplace_back("script", report::base_name(script));
        }
        if (process.status && process.status->rank) {
            labels.emplace_back("rank", *process.status->rank);
        }
        if (!process.facts.container.empty()) {
            labels.emplace_back("container", options_.anonymize ? container(process.facts.container)
                                                                : process.facts.container);
        }
        return labels;
    }

    std::string container(const std::string& id) {
        const auto [at, is_new] = containers_.try_emplace(id, containers_.size() + 1);
        return "container-" + std::to_string(at->second);
    }

    Labels labels_of(const ProcessSample& process, const GpuUse& use) {
        Labels labels = labels_of(process);
        const Gpu& gpu = sample_.gpus.at(use.gpu).gpu;
        labels.emplace_back("gpu", std::to_string(gpu.index));
        labels.emplace_back("uuid", uuid_of(gpu));
        return labels;
    }

    /// A counter's samples end in _total; its family does only in the older format.
    void family(const std::string& name, const char* type, const char* unit, const char* help) {
        const bool counter = std::string_view(type) == "counter";
        name_ = counter ? name + "_total" : name;
        const std::string& told = options_.open_metrics ? name : name_;
        out_ += "# HELP " + told + " " + help + "\n# TYPE " + told + " " + type + "\n";
        if (*unit != '\0' && options_.open_metrics) {
            out_ += "# UNIT " + told + " " + unit + "\n";
        }
    }

    template <typename Value>
    void value(const Labels& labels, Value number) {
        out_ += name_;
        const char* separator = "{";
        for (const auto& [name, text] : labels) {
            out_ += separator + name + "=\"";
            for (const char c : report::printable(text, false)) {
                if (c == '\\' || c == '"') {
                    out_ += '\\';
                }
                out_ += c;
            }
            out_ += '"';
            separator = ",";
        }
        std::array<char, 32> digits{};
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
        out_ += "} " + std::string(digits.data(), end.ptr) + "\n";
    }

    void gpus() {
        family("memlab_gpu_info", "gauge", "", "A GPU of this machine; always 1.");
        for (const GpuSample& gpu : sample_.gpus) {
            Labels labels = labels_of(gpu.gpu);
            labels.emplace_back("name", gpu.gpu.name);
            labels.emplace_back("driver", sample_.driver);
            value(labels, 1);
        }
        gpu_family("memlab_gpu_memory_bytes", "Memory of the GPU.", &Gpu::total);
        gpu_family("memlab_gpu_used_bytes", "In use, by anybody.", &Gpu::used);
        gpu_family("memlab_gpu_free_bytes", "Free.", &Gpu::free);
        family("memlab_gpu_unaccounted_bytes", "gauge", "bytes",
               "In use, and by no process that is listed.");
        for (const GpuSample& gpu : sample_.gpus) {
            if (gpu.unaccounted) {
                value(labels_of(gpu.gpu), *gpu.unaccounted);
            }
        }
    }

    void gpu_family(const char* name, const char* help, std::uint64_t Gpu::*member) {
        family(name, "gauge", "bytes", help);
        for (const GpuSample& gpu : sample_.gpus) {
            if (gpu.gpu.total != 0) {
                value(labels_of(gpu.gpu), gpu.gpu.*member);
            }
        }
    }

    void processes() {
        family("memlab_process_info", "gauge", "", "A process that uses a GPU; always 1.");
        for (const ProcessSample& process : sample_.processes) {
            Labels labels = labels_of(process);
            labels.emplace_back("memlab", process.memlab ? "yes" : "no");
            value(labels, 1);
        }
        family("memlab_process_up", "gauge", "",
               "Of a process under memlab: 1 if it answers, 0 if it does not.");
        for (const ProcessSample& process : sample_.processes) {
            if (process.memlab) {
                value(labels_of(process), process.status ? 1 : 0);
            }
        }
        family("memlab_process_start_time_seconds", "gauge", "seconds",
               "When the process started, in Unix time.");
        for (const ProcessSample& process : sample_.processes) {
            if (process.facts.start_wall_ns != 0) {
                value(labels_of(process), static_cast<double>(process.facts.start_wall_ns) / 1e9);
            }
        }
        family("memlab_process_used_bytes", "gauge", "bytes",
               "GPU memory of the whole process, as NVML says.");
        for (const ProcessSample& process : sample_.processes) {
            for (const GpuUse& use : process.uses) {
                if (use.used) {
                    value(labels_of(process, use), *use.used);
                }
            }
        }
    }

    template <typename Get>
    void memlab_family(const char* name, const char* type, const char* unit, const char* help,
                       Get get) {
        family(name, type, unit, help);
        for (const ProcessSample& process : sample_.processes) {
            for (const GpuUse& use : process.uses) {
                if (use.memlab) {
                    const std::optional<std::uint64_t> number = get(*use.memlab);
                    if (number) {
                        value(labels_of(process, use), *number);
                    }
                }
            }
        }
    }

    void bytes_family(const char* name, const char* help, std::uint64_t StatusGpu::*member) {
        memlab_family(name, "gauge", "bytes", help,
                      [member](const StatusGpu& gpu) { return std::optional(gpu.*member); });
    }

    void memory() {
        bytes_family("memlab_process_allocated_bytes", "Allocated by the process.",
                     &StatusGpu::allocated_bytes);
        bytes_family("memlab_process_max_allocated_bytes", "The most that was allocated.",
                     &StatusGpu::max_allocated_bytes);
        bytes_family("memlab_process_reserved_bytes", "Reserved by the process.",
                     &StatusGpu::reserved_bytes);
        bytes_family("memlab_process_max_reserved_bytes", "The most that was reserved.",
                     &StatusGpu::max_reserved_bytes);
        bytes_family("memlab_process_cached_bytes", "Of memlab's pool: reserved and not in use.",
                     &StatusGpu::cached_bytes);
        memlab_family("memlab_process_tensor_bytes", "gauge", "bytes",
                      "In tensors, of a framework whose cache is seen from inside.",
                      [](const StatusGpu& gpu) { return gpu.tensor_bytes; });
        memlab_family("memlab_process_limit_bytes", "gauge", "bytes", "MEMLAB_LIMIT.",
                      [](const StatusGpu& gpu) { return gpu.limit_bytes; });
        memlab_family("memlab_process_live_allocations", "gauge", "", "Allocations not freed.",
                      [](const StatusGpu& gpu) { return std::optional(gpu.live_count); });
        family("memlab_process_fragmentation_ratio", "gauge", "ratio",
               "Of what is reserved, the part that nothing is allocated in.");
        for (const ProcessSample& process : sample_.processes) {
            for (const GpuUse& use : process.uses) {
                if (use.memlab && use.memlab->reserved_bytes != 0) {
                    const std::uint64_t held =
                        std::min(use.memlab->tensor_bytes.value_or(use.memlab->allocated_bytes),
                                 use.memlab->reserved_bytes);
                    value(labels_of(process, use),
                          1.0 - static_cast<double>(held) /
                                    static_cast<double>(use.memlab->reserved_bytes));
                }
            }
        }
        family("memlab_process_kind_bytes", "gauge", "bytes",
               "Held by kind of memory: device (of all GPUs), pinned, managed.");
        for (const ProcessSample& process : sample_.processes) {
            if (process.status) {
                const std::array<std::pair<const char*, std::uint64_t>, 3> kinds = {
                    {{"device", process.allocated()},
                     {"pinned", process.status->pinned_bytes},
                     {"managed", process.status->managed_bytes}}};
                for (const auto& [kind, bytes] : kinds) {
                    Labels labels = labels_of(process);
                    labels.emplace_back("kind", kind);
                    value(labels, bytes);
                }
            }
        }
        growth();
    }

    void growth() {
        family("memlab_process_growth_bytes_per_second", "gauge", "",
               "By how much the lowest level of memory grows, over the last two minutes.");
        for (const ProcessSample& process : sample_.processes) {
            if (const auto growth = history_.growth(process).per_minute) {
                value(labels_of(process), static_cast<double>(*growth) / 60);
            }
        }
        family("memlab_process_growth_bytes_per_step", "gauge", "",
               "The same for each step of the program's loop.");
        for (const ProcessSample& process : sample_.processes) {
            if (const auto growth = history_.growth(process).per_step) {
                value(labels_of(process), *growth);
            }
        }
    }

    void events() {
        memlab_family("memlab_process_allocations", "counter", "", "Allocations so far.",
                      [](const StatusGpu& gpu) { return std::optional(gpu.allocation_count); });
        family("memlab_process_out_of_memory", "counter", "",
               "Allocations that failed for lack of memory.");
        for (const ProcessSample& process : sample_.processes) {
            if (process.status) {
                value(labels_of(process), process.status->oom_count);
            }
        }
        family("memlab_process_steps", "counter", "", "Steps of the program's loop that ended.");
        for (const ProcessSample& process : sample_.processes) {
            if (process.status && process.status->step_count) {
                value(labels_of(process), *process.status->step_count);
            }
        }
        family("memlab_process_waiting_threads", "gauge", "",
               "Threads that wait at an out-of-memory (hold-on-oom).");
        for (const ProcessSample& process : sample_.processes) {
            if (process.status) {
                value(labels_of(process), process.status->hold_on_oom.waiting);
            }
        }
    }

    using Sums = std::map<std::string, std::uint64_t>;

    template <typename SumsOf>
    void sums_family(const char* name, const char* help, const char* label, SumsOf sums_of) {
        family(name, "gauge", "bytes", help);
        for (const ProcessSample& process : sample_.processes) {
            const auto found = details_.find(process.pid());
            if (found == details_.end() || !found->second.problem.empty()) {
                continue;
            }
            for (const auto& [text, bytes] : Sums(sums_of(found->second))) {
                Labels labels = labels_of(process);
                labels.emplace_back(label, text);
                value(labels, bytes);
            }
        }
    }

    void sites() {
        sums_family("memlab_process_category_bytes",
                    "PyTorch's memory by category, of the largest call sites.", "category",
                    [](const Details& details) {
                        Sums sums;
                        for (const LiveSite& site : details.now.sites) {
                            if (site.category) {
                                sums[report::category_name(*site.category)] += site.bytes;
                            }
                        }
                        if (!sums.empty() && details.now.other_bytes != 0) {
                            sums["(other sites)"] = details.now.other_bytes;
                        }
                        return sums;
                    });
        sums_family("memlab_process_nn_module_bytes",
                    "What the calls of nn.Modules hold, their names cut to a depth.", "nn_module",
                    [this](const Details& details) { return nn_modules_of(details); });
    }

    Sums nn_modules_of(const Details& details) const {
        if (options_.nn_module_depth == 0) {
            return {};
        }
        Sums all;
        for (const auto& nn_module : details.nn_modules) {
            const std::string name =
                nn_module.name ? nn_module_at_depth(*nn_module.name, options_.nn_module_depth)
                               : "(no name)";
            all[name.empty() ? "(outermost)" : name] += nn_module.bytes;
        }
        if (all.size() <= options_.most_nn_modules) {
            return all;
        }
        std::vector<std::pair<std::uint64_t, std::string>> sorted;
        for (const auto& [name, bytes] : all) {
            sorted.emplace_back(bytes, name);
        }
        std::sort(sorted.rbegin(), sorted.rend());
        Sums kept;
        for (std::size_t i = 0; i < sorted.size(); ++i) {
            kept[i < options_.most_nn_modules ? sorted[i].second : "(others)"] += sorted[i].first;
        }
        return kept;
    }

    const History& history_;
    const MachineSample& sample_;
    const DetailsOf& details_;
    const MetricsOptions& options_;
    report::Anonymizer anonymizer_;
    std::map<std::string, std::size_t> containers_;
    std::string name_;
    std::string out_;
};

}  // namespace

std::string nn_module_at_depth(const std::string& name, std::size_t depth) {
    std::size_t end = 0;
    for (std::size_t part = 0; part < depth; ++part) {
        end = name.find('.', end + (part == 0 ? 0 : 1));
        if (end == std::string::npos) {
            return name;
        }
    }
    return name.substr(0, end);
}

std::string render_metrics(const History& history, const DetailsOf& details,
                           const MetricsOptions& options) {
    return MetricsText(history, details, options).write();
}

}  // namespace memlab::tools
