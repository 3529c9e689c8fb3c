#include "report/summary/framework_findings.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "report/text/shell_word.hpp"
#include "report/text/units.hpp"
#include "trace/aggregate/library_memory.hpp"

namespace memlab::report {

namespace {

constexpr std::uint64_t pytorch_unit = 2ULL << 20;  // PyTorch's segments are multiples of it

constexpr std::uint64_t max_regions = 64;

/// True for CUDA libraries that frameworks call and that allocate on their own.
bool is_allocating_library(std::string_view path) {
    static constexpr std::array libraries = {"/libcublas", "/libcudnn",    "/libcufft",
                                             "/libcurand", "/libcusolver", "/libcusparse",
                                             "/libnccl"};
    return std::any_of(libraries.begin(), libraries.end(), [path](const char* library) {
        return path.find(library) != std::string_view::npos;
    });
}

const model::FrameworkCache* find_framework(const model::Report& report, const model::Site& site) {
    for (const std::size_t frame : report.stacks.at(site.stack).frames) {
        const std::string& path = report.modules.at(report.frames.at(frame).module).path;
        if (const model::FrameworkCache* cache = model::framework_of_library(path)) {
            return cache;
        }
        if (is_allocating_library(path)) {
            return nullptr;
        }
    }
    return nullptr;
}

struct Use {
    std::uint64_t peak_bytes = 0;
    std::uint64_t count = 0;
    std::uint64_t live_count = 0;
    bool whole_units = true;  ///< all sizes are multiples of pytorch_unit
};

/// True if the allocations of the library follow the pattern of its cache.
bool looks_cached(const model::FrameworkCache& cache, const Use& use) {
    const std::string_view key = cache.key;
    if (key == "pytorch") {
        return use.whole_units;
    }
    // XLA's allocator doubles its memory with each region, and frees all of it at the end.
    return key == "jax" ? use.count <= max_regions : use.live_count == use.count;
}

std::string own_cache(const model::FrameworkCache& cache) {
    return std::string(cache.name) + "'s own cache";
}

void describe(const model::Report& report, FrameworkFinding& finding, std::uint64_t whole) {
    const model::FrameworkCache& cache = *finding.cache;
    if (finding.switched_off) {
        finding.text = std::string(cache.switch_name) + "=" + report.options.at(cache.switch_name) +
                       " was in effect: " + own_cache(cache) + " was off. " + cache.changes;
        return;
    }
    finding.text = own_cache(cache) + " holds " + format_bytes(finding.peak_bytes) + " of the " +
                   format_bytes(whole) +
                   " at the peak: memlab sees what the cache took, not what is in it.";
    if (cache.switch_name == nullptr) {
        finding.text +=
            std::string(" The line ") + cache.line + " at the start of the program turns it off.";
    } else {
        finding.text += " To see each tensor:";
        finding.command = std::string("memlab-run --replace=") + cache.key + " -- " +
                          command_line(report.process.arguments);
    }
}

}  // namespace

std::vector<FrameworkFinding> find_frameworks(const model::Report& report) {
    std::uint64_t whole = 0;
    std::vector<std::uint64_t> at_peak(report.sites.size());
    for (const model::Device& device : report.devices) {
        whole += device.at_peak.bytes;
        for (const model::Holders::Share& share : device.at_peak.sites) {
            at_peak.at(share.site) += share.bytes;
        }
    }
    const auto caches = model::framework_caches();
    std::vector<Use> uses(caches.size());
    const auto is_off = [&](const model::FrameworkCache& cache) {
        const auto option = cache.switch_name == nullptr ? report.options.end()
                                                         : report.options.find(cache.switch_name);
        return option != report.options.end() &&
               model::switches_off(cache, option->first, option->second);
    };
    for (std::size_t i = 0; i < report.sites.size(); ++i) {
        const model::Site& site = report.sites[i];
        const model::FrameworkCache* cache = find_framework(report, site);
        // Without its cache a framework may use the driver's.
        if (cache == nullptr || (site.kind != "device" && site.kind != "vmm" &&
                                 !(site.kind == "async_pool" && is_off(*cache)))) {
            continue;
        }
        Use& use = uses.at(static_cast<std::size_t>(cache - caches.data()));
        use.peak_bytes += at_peak[i];
        use.count += site.count;
        use.live_count += site.live_count;
        use.whole_units &= site.requested_bytes % pytorch_unit == 0;
    }
    std::vector<FrameworkFinding> findings;
    for (std::size_t i = 0; i < caches.size(); ++i) {
        const Use& use = uses[i];
        FrameworkFinding finding{&caches[i], is_off(caches[i]), use.peak_bytes, {}, {}};
        const bool seen_from_inside = std::any_of(
            report.devices.begin(), report.devices.end(),
            [&](const model::Device& device) { return device.allocator == caches[i].name; });
        const bool on_top = !seen_from_inside && use.count != 0 && use.peak_bytes >= whole / 4 &&
                            use.peak_bytes != 0 && looks_cached(caches[i], use);
        if (use.count != 0 && (finding.switched_off || on_top)) {
            describe(report, finding, whole);
            findings.push_back(std::move(finding));
        }
    }
    return findings;
}

bool is_pytorchs_own(const model::Report& report, const model::Site& site) {
    if ((site.kind != "suballocation" && site.kind != "pinned") || site.live_count != site.count) {
        return false;
    }
    for (const std::size_t frame : report.stacks.at(site.stack).frames) {
        const std::string_view path = report.modules.at(report.frames.at(frame).module).path;
        if (!trace::passes_on_requests(path)) {
            return trace::is_pytorchs_cuda(path);
        }
    }
    return false;
}

bool is_frameworks_cache(const model::Device& device) {
    const auto caches = model::framework_caches();
    return std::any_of(caches.begin(), caches.end(), [&](const model::FrameworkCache& cache) {
        return device.allocator == cache.name;
    });
}

bool is_segment_seen_inside(const model::Report& report, const model::Site& site) {
    if (site.kind != "device" && site.kind != "vmm") {
        return false;
    }
    return std::any_of(report.devices.begin(), report.devices.end(),
                       [&](const model::Device& device) {
                           if (!is_frameworks_cache(device) || device.gpu() != site.device) {
                               return false;
                           }
                           const model::FrameworkCache* const cache = find_framework(report, site);
                           return cache != nullptr && device.allocator == cache->name;
                       });
}

}  // namespace memlab::report
