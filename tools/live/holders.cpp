#include "tools/live/holders.hpp"

#include <algorithm>
#include "report/summary/json_object.hpp"
#include "report/summary/json_values.hpp"
#include "report/text/names.hpp"
#include "report/text/page.hpp"
#include "report/text/units.hpp"
#include "tools/doctor/environment.hpp"
#include "tools/live/machine_rows.hpp"

namespace memlab::tools {
namespace {

using report::format_bytes;

/// Below that a cache is not worth a line.
constexpr std::uint64_t least_cached = std::uint64_t{16} << 20;

bool is_shown(const GpuSample& gpu, const HoldersOptions& options) {
    return !options.device || gpu.gpu.index == *options.device;
}

struct Entry {
    const ProcessSample* process;
    const GpuUse* use;
};

/// The users of a GPU, the largest first.
std::vector<Entry> users_of(const MachineSample& sample, std::size_t gpu) {
    std::vector<Entry> entries;
    for (const ProcessSample& process : sample.processes) {
        for (const GpuUse& use : process.uses) {
            if (use.gpu == gpu) {
                entries.push_back({&process, &use});
            }
        }
    }
    std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
        return a.use->known_bytes() > b.use->known_bytes();
    });
    return entries;
}

std::string gpu_title(const GpuSample& gpu) {
    std::string title = "GPU " + std::to_string(gpu.gpu.index);
    if (!gpu.gpu.name.empty()) {
        title += "  " + gpu.gpu.name;
    }
    return title;
}

std::string gpu_figures(const GpuSample& gpu) {
    if (gpu.gpu.total == 0) {
        return "its use is not known";
    }
    return format_bytes(gpu.gpu.used) + " of " + format_bytes(gpu.gpu.total) + " in use, " +
           format_bytes(gpu.gpu.free) + " free";
}

std::string bytes_text(const GpuUse& use) {
    if (use.used || use.memlab) {
        return format_bytes(use.known_bytes());
    }
    return "?";
}

/// "user alice, since ..., parent 12 (bash), container 4f5c..."
std::string origin_text(const ProcessSample& process, bool arguments, const report::Page& page) {
    const ProcessFacts& facts = process.facts;
    if (!facts.visible) {
        return "";
    }
    std::vector<std::string> parts;
    if (!facts.user.empty()) {
        parts.push_back("user " + facts.user);
    }
    if (facts.start_wall_ns != 0) {
        parts.push_back("since " + report::format_wall_time(facts.start_wall_ns));
    }
    if (facts.parent > 0) {
        std::string command = facts.parent_command;
        if (!arguments) {
            command = command.substr(0, command.find(' '));
        }
        constexpr std::size_t shown = 40;
        command = report::shorten_end(page.clean(command), shown, page.style().ascii);
        parts.push_back("parent " + std::to_string(facts.parent) +
                        (command.empty() ? "" : " (" + command + ")"));
    }
    if (!facts.container.empty()) {
        parts.push_back("container " + facts.container);
    } else if (!facts.cgroup.empty()) {
        parts.push_back("cgroup " + facts.cgroup);
    }
    std::string text;
    for (const std::string& part : parts) {
        text += (text.empty() ? "" : page.separator()) + part;
    }
    return text;
}

std::string memlab_text(const ProcessSample& process, const GpuUse& use) {
    if (!use.memlab) {
        return process.memlab && !process.status ? "memlab: " + process.problem : "";
    }
    const auto& gpu = *use.memlab;
    std::string text = "memlab: allocated " + format_bytes(gpu.allocated_bytes) + " (at most " +
                       format_bytes(gpu.max_allocated_bytes) + "), reserved " +
                       format_bytes(gpu.reserved_bytes);
    if (gpu.tensor_bytes) {
        text += ", tensors " + format_bytes(*gpu.tensor_bytes);
    }
    return text + ", " + report::format_plural(gpu.live_count, "allocation");
}

class HoldersPage {
  public:
    HoldersPage(const MachineSample& sample, const SitesOf& sites, const HoldersOptions& options,
                const report::Style& style)
        : sample_(sample), sites_(sites), options_(options), page_(style) {}

    std::string write() {
        for (std::size_t i = 0; i < sample_.gpus.size(); ++i) {
            if (is_shown(sample_.gpus[i], options_)) {
                write_gpu(i);
            }
        }
        if (page_.empty()) {
            page_.line(sample_.gpus.empty() ? "No GPU is known here."
                                            : "There is no such GPU here.");
        }
        std::vector<std::string> unknown = unknown_in(sample_);
        page_.warnings(unknown);
        return page_.take();
    }

  private:
    void write_gpu(std::size_t index) {
        const GpuSample& gpu = sample_.gpus[index];
        page_.heading(page_.clean(gpu_title(gpu)), gpu_figures(gpu));
        const std::vector<Entry> entries = users_of(sample_, index);
        for (const Entry& entry : entries) {
            write_entry(entry);
        }
        if (entries.empty()) {
            page_.line("  no process is known to hold memory of it");
        }
        if (gpu.unaccounted && *gpu.unaccounted != 0) {
            page_.line("  " + format_bytes(*gpu.unaccounted) +
                       " by no process that is listed: the driver's own" +
                       (sample_.pids_of_the_host ? "" : ", and other containers'"));
        }
    }

    void write_entry(const Entry& entry) {
        const ProcessSample& process = *entry.process;
        const std::string pid = std::to_string(process.pid());
        const std::string bytes = bytes_text(*entry.use);
        std::string begin = "  " + std::string(bytes.size() < 12 ? 12 - bytes.size() : 0, ' ') +
                            bytes + "  " + std::string(pid.size() < 7 ? 7 - pid.size() : 0, ' ') +
                            pid + "  ";
        const std::string command =
            report::shorten_end(page_.clean(shown_command(process, options_.arguments)),
                                page_.remaining_width(begin.size()), page_.style().ascii);
        page_.line(begin + page_.bold(command));
        constexpr std::size_t column = 25;
        page_.note_below(column, origin_text(process, options_.arguments, page_));
        page_.note_below(column, memlab_text(process, *entry.use));
        const auto sites = sites_.find(process.pid());
        if (entry.use->memlab && sites != sites_.end()) {
            write_sites(sites->second, entry.use->memlab->gpu, process.facts.directory);
        }
        const std::string indent(column - 2, ' ');
        for (const std::string& advice :
             advice_for(process, *entry.use, sample_.pids_of_the_host)) {
            page_.paragraph(indent + page_.yellow(page_.style().ascii ? "> " : "→ "),
                            page_.clean(advice));
        }
    }

    void write_sites(const LiveSites& sites, std::uint64_t gpu, const std::string& directory) {
        std::size_t shown = 0;
        for (const LiveSite& site : one_per_place(sites.sites)) {
            if (site.gpu != gpu || shown == options_.top_sites) {
                continue;
            }
            ++shown;
            const std::string bytes = format_bytes(site.bytes);
            const std::string begin = std::string(25, ' ') +
                                      std::string(bytes.size() < 12 ? 12 - bytes.size() : 0, ' ') +
                                      bytes + "  ";
            page_.line(begin + site_text(site, page_.remaining_width(begin.size()),
                                         page_.style().ascii, directory));
        }
    }

    const MachineSample& sample_;
    const SitesOf& sites_;
    const HoldersOptions& options_;
    report::Page page_;
};

report::HoldersDocument::Process process_row(const Entry& entry, const MachineSample& sample,
                                             const SitesOf& sites, const HoldersOptions& options) {
    const ProcessSample& process = *entry.process;
    const ProcessFacts& facts = process.facts;
    report::HoldersDocument::Process row{
        .pid = static_cast<std::uint64_t>(process.pid()),
        .visible = facts.visible,
        .bytes = entry.use->used,
        .listed_by_nvml = entry.use->listed,
        .command = shown_command(process, options.arguments),
        .user = facts.user,
        .start_wall_ns = facts.start_wall_ns,
        .state = std::string(1, facts.state),
        .parent = static_cast<std::uint64_t>(std::max<pid_t>(facts.parent, 0)),
        .parent_gone = facts.parent_gone,
        .zombie = facts.zombie,
        .container = facts.container,
        .cgroup = facts.cgroup,
        .memlab = memlab_row(*entry.use),
        .sites = {},
        .advice = advice_for(process, *entry.use, sample.pids_of_the_host)};
    const auto found = sites.find(process.pid());
    if (entry.use->memlab && found != sites.end()) {
        for (const LiveSite& site : one_per_place(found->second.sites)) {
            if (site.gpu == entry.use->memlab->gpu && row.sites.size() < options.top_sites) {
                row.sites.push_back(site_row(site));
            }
        }
    }
    return row;
}

}  // namespace

bool shows_arguments() {
    return effective_settings({}).settings.arguments;
}

std::string shown_command(const ProcessSample& process, bool arguments) {
    std::string command = process.facts.command;
    if (process.status && !process.status->arguments.empty()) {
        command.clear();
        for (const std::string& argument : process.status->arguments) {
            command += (command.empty() ? "" : " ") + argument;
        }
    }
    if (!process.facts.visible && command.empty()) {
        return "(not visible here)";
    }
    if (!arguments && !command.starts_with('[')) {
        command = report::base_name(command.substr(0, command.find(' ')));
    }
    return command;
}

std::vector<std::string> advice_for(const ProcessSample& process, const GpuUse& use,
                                    bool pids_of_the_host) {
    const ProcessFacts& facts = process.facts;
    const std::string pid = std::to_string(process.pid());
    const std::string parent = std::to_string(facts.parent);
    std::vector<std::string> advice;
    if (!facts.visible) {
        advice.push_back(
            pids_of_the_host
                ? "it has ended, or is hidden from this user; if its memory stays, look "
                  "as root for processes that it started"
                : "it is of another container, or of the host: look for " + pid + " on the host");
        return advice;
    }
    const auto add = [&](std::string text) { advice.push_back(std::move(text)); };
    if (facts.zombie && facts.is_ending) {
        add("it is ending: its memory goes once the driver has cleaned up");
    } else if (facts.zombie && facts.threads_left) {
        add("its main thread has ended, others have not, and the memory stays until they have: "
            "kill -9 " +
            pid);
    } else if (facts.zombie) {
        add("it is a zombie: its memory goes once the driver has cleaned up, its entry once " +
            parent + " waits for it, or ends: kill " + parent);
    } else if (facts.state == 'D') {
        add("it waits in the kernel, probably in the driver: a signal takes effect when that "
            "returns");
    } else if (facts.state == 'T' || facts.state == 't') {
        add("it is stopped and keeps its memory: kill -CONT " + pid + " lets it go on");
    }
    if (facts.parent_gone && facts.worker) {
        add("the parent of this worker is gone: kill " + pid);
    } else if (facts.parent_gone && facts.leader_gone) {
        add("the program that it was part of has ended: if it should have ended, too, kill " + pid);
    } else if (use.open_only) {
        add("NVML lists no memory of it, but it has the GPU open: it started CUDA without a "
            "context, or is a fork of a program that used CUDA, whose memory stays until both "
            "have ended; kill " +
            pid + " ends it");
    } else if (advice.empty() && !facts.parent_gone && facts.worker) {
        add("it is a worker of process " + parent + ", which ends it: kill " + parent);
    }
    if (process.cached() >= least_cached) {
        add("memlab-ctl " + pid + " empty-cache gives " + format_bytes(process.cached()) + " back");
    }
    if (advice.empty() && facts.of_another) {
        add("it belongs to " + facts.user + ": they or root can end it");
    } else if (advice.empty() && process.pid() != 1) {
        add("kill " + pid + " ends it");
    }
    return advice;
}

std::vector<std::string> unknown_in(const MachineSample& sample) {
    std::vector<std::string> unknown;
    if (!sample.nvml_problem.empty()) {
        unknown.push_back("NVML says nothing (" + sample.nvml_problem +
                          "): what processes without memlab hold is not known.");
    }
    for (const GpuSample& gpu : sample.gpus) {
        if (gpu.by_nvml && !gpu.gpu.processes_known) {
            unknown.push_back("GPU " + std::to_string(gpu.gpu.index) +
                              ": this driver does not list processes.");
        }
    }
    const bool hides_bytes = std::any_of(
        sample.processes.begin(), sample.processes.end(), [](const ProcessSample& process) {
            return std::any_of(process.uses.begin(), process.uses.end(),
                               [](const GpuUse& use) { return use.listed && !use.used; });
        });
    if (hides_bytes) {
        unknown.push_back("This driver does not tell how much each process holds.");
    }
    if (sample.nvml_problem.empty() && !sample.pids_of_the_host) {
        unknown.push_back(
            "This is another pid namespace than the machine's, as in a container: NVML's process "
            "ids may be those of the host, or it may leave out other containers' processes.");
    }
    return unknown;
}

std::string render_holders_text(const MachineSample& sample, const SitesOf& sites,
                                const HoldersOptions& options, const report::Style& style) {
    return HoldersPage(sample, sites, options, style).write();
}

std::string render_holders_json(const MachineSample& sample, const SitesOf& sites,
                                const HoldersOptions& options) {
    report::HoldersDocument out{.host = sample.host,
                                .wall_ns = sample.wall_ns,
                                .driver = sample.driver,
                                .gpus = {},
                                .unknown = unknown_in(sample)};
    for (std::size_t i = 0; i < sample.gpus.size(); ++i) {
        if (!is_shown(sample.gpus[i], options)) {
            continue;
        }
        auto& gpu = out.gpus.emplace_back();
        gpu.gpu = gpu_row(sample.gpus[i]);
        for (const Entry& entry : users_of(sample, i)) {
            gpu.processes.push_back(process_row(entry, sample, sites, options));
        }
    }
    return report::json_text(report::JsonObject::of(out));
}

SitesOf ask_sites(Collector& collector, const MachineSample& sample, std::size_t top) {
    std::vector<pid_t> pids;
    for (const ProcessSample& process : sample.processes) {
        if (process.status) {
            pids.push_back(process.pid());
        }
    }
    constexpr std::size_t least = 50;  // several may be of one place
    const std::string most = std::to_string(std::max(top, least));
    SitesOf sites;
    SiteNames names;
    for (const auto& [pid, reply] : collector.ask_all(pids, Verb::sites, {most})) {
        std::string problem;
        const auto document = reply.ok() ? read_interval(reply.document, &problem) : std::nullopt;
        if (document) {
            sites[pid] = names.name(*document, pid);
        }
    }
    return sites;
}

}  // namespace memlab::tools
