#include "model/oom_explanation.hpp"

#include <algorithm>
#include <limits>

#include "model/bounded_sum.hpp"
#include "model/python_source.hpp"
#include "model/size_text.hpp"

namespace memlab::model {

namespace {

using trace::MemoryKind;
using trace::OomTotals;

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t gib = std::uint64_t{1} << 30;
constexpr std::size_t max_advice = 3;
constexpr std::size_t current_allocated = 1;  // of OomTotals::current
constexpr std::size_t current_reserved = 3;

// By how much the driver's free memory may be less than the room that it is made of.
constexpr std::uint64_t driver_reserve = 64 * mib;

// Upper bound of a context's own memory: it was far below this on every GPU measured.
constexpr std::uint64_t max_context = gib;

std::uint64_t subtract(std::uint64_t from, std::uint64_t what) {
    return from - std::min(from, what);
}

bool comes_from_a_pool(MemoryKind kind) {
    return kind == MemoryKind::device || kind == MemoryKind::suballocation;
}

/// The figures used in the sentences.
struct Situation {
    explicit Situation(const OomTotals& oom)
        : requested(oom.event.requested),
          limited(oom.event.limit != 0 && oom.event.limit < oom.event.device_total),
          visible(limited ? oom.event.limit : oom.event.device_total),
          used(subtract(oom.event.device_total, oom.event.device_free)),
          reserved(saturating_add(oom.current[current_reserved], oom.reserved_beside)),
          bounded(oom.event.limit_source != trace::LimitSource::none &&
                  oom.event.group_limit.limit != trace::GroupLimit::unlimited),
          room(bounded ? subtract(oom.event.group_limit.limit,
                                  std::max(oom.event.group_limit.used, reserved))
                       : std::numeric_limits<std::uint64_t>::max()),
          below_limit(subtract(visible, used)),
          capped(bounded && oom.event.device_total == oom.event.group_limit.limit &&
                 room <= saturating_add(below_limit, driver_reserve)),
          free(std::min(below_limit, room)),
          others(subtract(used, reserved)),
          cached(subtract(oom.pool.reserved, oom.pool.active)),
          pending(subtract(oom.pool.active, oom.pool.allocated)),
          reachable(saturating_add(free, comes_from_a_pool(oom.event.kind) ? cached : 0)) {}

    std::uint64_t requested;
    bool limited;
    std::uint64_t visible;      ///< the limit, or the device's total
    std::uint64_t used;         ///< per the driver
    std::uint64_t reserved;     ///< device memory of this program's allocations
    bool bounded;               ///< a cgroup of this process has a limit
    std::uint64_t room;         ///< below that
    std::uint64_t below_limit;  ///< visible and unused
    bool capped;                ///< the driver shows the cgroup's limit as the device's total
    std::uint64_t free;         ///< visible and unused, but no more than the room
    std::uint64_t others;       ///< used by anything else
    std::uint64_t cached;       ///< unused in the pool
    std::uint64_t pending;      ///< freed, not yet safe to reuse
    std::uint64_t reachable;    ///< free, or cached and usable for this kind of memory

    /// It is the cgroup's limit alone that stands against the request.
    bool stopped_by_group() const {
        return bounded && requested > reachable &&
               (capped || requested - (reachable - free) <= below_limit);
    }
    bool fits_in_pieces() const { return requested <= reachable; }
    /// The shortage without any fragmentation.
    std::uint64_t missing() const { return subtract(requested, reachable); }
};

std::string device_sentence(const OomTotals& oom, const Situation& now) {
    std::string text = "The device has " + size_text(now.visible);
    if (now.limited) {
        text += " by MEMLAB_LIMIT (" + size_text(oom.event.device_total) + " without)";
    }
    return text + ", " + size_text(now.below_limit) + " of it free.";
}

/// What the cgroup's limit is called where it is set.
const char* limit_name(trace::LimitSource source) {
    return source == trace::LimitSource::nvml ? "NVML's memory limit" : "dmem.max";
}

/// The limit of the cgroup; empty if there is none.
std::string group_sentence(const OomFigures& figures, const Situation& now) {
    if (!now.bounded) {
        return {};
    }
    const trace::OomEvent& event = figures.oom.event;
    const bool asked_earlier = event.limit_source == trace::LimitSource::nvml;
    const std::uint64_t others = subtract(event.group_limit.used, now.reserved);
    return "The cgroup " + figures.group + " may have " + size_text(event.group_limit.limit) +
           (now.capped ? ", which the driver shows as the device's memory (" : " of it (") +
           limit_name(event.limit_source) + "), and its processes " +
           (asked_earlier ? "had " : "have ") + size_text(event.group_limit.used) +
           (asked_earlier ? " when NVML was last asked" : "") + ": " + size_text(now.room) +
           " are left" +
           (others > max_context
                ? "; " + size_text(others) + " of that are not this program's allocations."
                : ".");
}

std::string pool_sentence(const OomFigures& figures, const Situation& now) {
    const OomTotals& oom = figures.oom;
    std::string text = pool_name(figures.allocator) + " holds " + size_text(oom.pool.reserved) +
                       ": " + size_text(oom.pool.allocated) + " allocated";
    if (now.pending != 0) {
        text += ", " + size_text(now.pending) + " freed but not yet safe to reuse";
    }
    if (now.cached != 0) {
        // What would not have sufficed was kept, whole segments included; else all that could be
        // given back was. The smallest segment has 2 MiB.
        constexpr std::uint64_t smallest_segment = std::uint64_t{2} << 20;
        const bool kept = now.cached >= smallest_segment &&
                          oom.event.requested > now.free + now.cached + now.pending;
        text += ", " + size_text(now.cached) + " reserved but unallocated, " +
                (kept ? "too little for the request" : "in segments that are partly in use");
        if (oom.pool.largest_free < now.cached) {
            text += " (the largest piece has " + size_text(oom.pool.largest_free) + ")";
        }
    }
    return text + ".";
}

/// The memory of this program outside the pool, by kind; empty if there is none.
std::string kinds_sentence(const OomFigures& figures) {
    const OomTotals& oom = figures.oom;
    if (!figures.allocator.empty()) {
        return oom.reserved_beside == 0
                   ? std::string()
                   : "Outside of it this program holds " + size_text(oom.reserved_beside) + ".";
    }
    std::string list;
    std::string tail;
    for (int i = 0; i < trace::memory_kind_count; ++i) {
        const auto kind = static_cast<MemoryKind>(i);
        std::uint64_t bytes = oom.kinds[static_cast<std::size_t>(i)];
        if (kind == MemoryKind::device) {
            bytes = subtract(bytes, oom.pool.allocated);
        }
        if (bytes == 0 || kind == MemoryKind::pinned) {
            continue;
        }
        if (kind == MemoryKind::managed) {
            tail = " Its " + size_text(bytes) +
                   " of managed memory may be on the device or on the host.";
        } else if (kind == MemoryKind::ipc_import) {
            tail += " It also maps " + size_text(bytes) + " of other processes' memory.";
        } else {
            list += (list.empty() ? "" : ", ") + size_text(bytes) + " (" + name_of(kind) + ")";
        }
    }
    if (!list.empty()) {
        list = "Outside the pool this program holds " + list + ".";
    }
    if (list.empty() && !tail.empty()) {
        tail.erase(0, 1);
    }
    return list + tail;
}

std::string verdict(const OomFigures& figures, const Situation& now) {
    const OomTotals& oom = figures.oom;
    const std::uint64_t largest =
        figures.allocator.empty() ? oom.event.largest_free_block : oom.pool.largest_free;
    std::string text;
    if (now.stopped_by_group()) {
        return "It is short by " + size_text(now.missing()) + ", by the cgroup's limit" +
               (now.capped ? "." : ": the device itself has that much free.");
    }
    if (now.requested > now.visible) {
        text = now.limited ? "The request is larger than the limit"
                           : "The request is larger than the whole device";
    } else if (!now.fits_in_pieces()) {
        text = "It is short by " + size_text(now.missing()) + ", fragmentation aside";
    } else if (now.requested > now.free) {
        text = "There was enough in all (" + size_text(now.reachable) +
               "), but in pieces: the largest free block of " +
               (figures.allocator.empty() ? "the pool" : pool_name(figures.allocator)) + " had " +
               size_text(largest) + ". This is fragmentation";
    } else {
        text = "The driver refused it although " + size_text(now.free) +
               " were free: it needs them in one piece, in whole pages";
    }
    if (now.limited && now.requested <= oom.event.device_free) {
        text += "; without the limit it would have fit";
    }
    return text + ".";
}

/// The largest power of two <= bytes.
std::uint64_t power_of_two_floor(std::uint64_t bytes) {
    std::uint64_t power = 1;
    while (power <= bytes / 2) {
        power *= 2;
    }
    return power;
}

void advise_on_caches(const OomFigures& figures, std::vector<std::string>& advice) {
    const auto& sites = figures.oom.holders.sites;
    for (const FrameworkCache& cache : framework_caches()) {
        std::uint64_t bytes = 0;
        for (std::size_t i = 0; i < sites.size() && i < figures.caches.size(); ++i) {
            bytes = saturating_add(bytes, figures.caches[i] == &cache ? sites[i].bytes : 0);
        }
        if (bytes > figures.oom.holders.bytes / 4) {
            advice.push_back(size_text(bytes) + " were allocated through " + cache.name + ": " +
                             cache.advice + ".");
        }
    }
}

void advise_on_fragmentation(const OomFigures& figures, const Situation& now,
                             std::vector<std::string>& advice) {
    if (!figures.allocator.empty()) {
        advice.emplace_back(
            "PYTORCH_ALLOC_CONF=expandable_segments:True lets PyTorch map scattered free memory as "
            "one piece.");
        return;
    }
    constexpr std::uint64_t min_split_mib = 20;  // the minimum of that option
    const trace::PoolBytes& pool = figures.oom.pool;
    const std::uint64_t split_mib = power_of_two_floor(now.requested / mib);
    if (saturating_add(now.free, pool.large_free) >= now.requested && split_mib >= min_split_mib) {
        advice.push_back("Of the unallocated memory " + size_text(pool.large_free) +
                         " are remainders of split blocks: MEMLAB_MAX_SPLIT_SIZE_MB=" +
                         std::to_string(split_mib) + " keeps blocks that large for requests that " +
                         "large.");
    } else {
        advice.push_back("The unallocated memory is scattered between small allocations, at most " +
                         size_text(pool.largest_free) +
                         " in one piece: allocate together what is freed together.");
    }
    if (!figures.vmm_backend) {
        advice.emplace_back("MEMLAB_BACKEND=vmm maps scattered free pages of 2 MiB as one piece.");
    }
}

void advise_on_growth(const OomFigures& figures, std::vector<std::string>& advice) {
    const OomTotals& oom = figures.oom;
    constexpr std::uint64_t min_count = 8;
    for (std::size_t i = 0; i < oom.holders.sites.size() && i < oom.allocations.size(); ++i) {
        const trace::Holder& holder = oom.holders.sites[i];
        const bool cache = i < figures.caches.size() && figures.caches[i] != nullptr;
        if (!cache && holder.count >= min_count && holder.count == oom.allocations[i] &&
            holder.bytes > oom.holders.bytes / 4) {
            const std::string name =
                i < figures.labels.size() ? format_labels(figures.labels[i], holder.bytes) : "";
            advice.push_back("One call site" + (name.empty() ? name : " (" + name + ")") +
                             " has allocated " + count_text(holder.count, "time") +
                             " and freed nothing, and holds " + size_text(holder.bytes) +
                             ": if that is not meant to grow, it is a leak.");
            return;
        }
    }
}

std::vector<std::string> advice_for(const OomFigures& figures, const Situation& now) {
    std::vector<std::string> advice;
    const std::uint64_t missing = now.missing();
    if (now.stopped_by_group()) {
        const trace::OomEvent& event = figures.oom.event;
        advice.push_back("A limit of at least " +
                         size_text(saturating_add(event.group_limit.limit, missing)) +
                         " for the cgroup " + figures.group +
                         " would let it pass: who runs the container sets it (" +
                         "nvidia-smi memory-limits --set).");
    }
    if (now.requested > now.visible && !now.stopped_by_group()) {
        if (now.limited && now.requested <= figures.oom.event.device_total) {
            advice.push_back("A limit of at least " +
                             size_text(saturating_add(now.requested, now.used)) +
                             " would let it pass.");
        } else {
            advice.push_back("No setting helps: work in pieces of less than " +
                             size_text(now.visible) + ", or on more devices.");
        }
        return advice;
    }
    advise_on_caches(figures, advice);
    if (now.fits_in_pieces() && now.requested > now.free) {
        advise_on_fragmentation(figures, now, advice);
    }
    if (missing != 0 && now.pending >= missing) {
        advice.push_back("The " + size_text(now.pending) +
                         " that are freed but not yet safe to reuse would have been enough: they "
                         "come back when the capture or the work that may use them has ended.");
    }
    if (missing != 0 && !comes_from_a_pool(figures.oom.event.kind) && now.cached >= missing) {
        advice.push_back("The unallocated " + size_text(now.cached) +
                         " of memlab's pool would have been enough, but only cudaMalloc's memory "
                         "comes from there: MEMLAB_POOL=off leaves it to the driver.");
    }
    if (missing != 0 && !now.stopped_by_group() && now.others > max_context &&
        subtract(now.others, max_context) >= missing) {
        advice.push_back(
            "Other processes probably hold most of the " + size_text(now.others) +
            " that this program did not allocate (a context takes below 1 GiB): nvidia-smi lists "
            "them.");
    }
    if (missing != 0 && figures.async_pools && now.others >= missing) {
        advice.push_back(
            "The driver's stream-ordered pools may keep what was freed to them, up to "
            "their release threshold: cudaMemPoolTrimTo gives it back.");
    }
    advise_on_growth(figures, advice);
    const std::uint64_t held = figures.oom.current[current_allocated];
    if (advice.empty() && missing > held) {
        const std::uint64_t wanted = saturating_add(now.used, now.requested);
        advice.push_back(
            "That is more than the " + size_text(held) + " that this program holds: " +
            (now.limited && now.requested <= figures.oom.event.device_free
                 ? "a limit of at least " + size_text(wanted) + " would let it pass."
                 : "do the work in smaller parts, or on a GPU with more free memory."));
    } else if (advice.empty() && missing != 0) {
        advice.push_back("Of the " + size_text(held) + " that this program holds, " +
                         size_text(missing) +
                         " must be freed first, or the work done in smaller parts.");
    }
    if (advice.size() > max_advice) {
        advice.resize(max_advice);
    }
    return advice;
}

bool is_switched_off(const trace::Aggregator& from, const FrameworkCache& cache) {
    return std::any_of(from.options().begin(), from.options().end(), [&](const auto& option) {
        return switches_off(cache, option.name, option.value);
    });
}

const FrameworkCache* find_cache(const trace::Aggregator& from, std::uint32_t stack) {
    for (const std::uint32_t frame : from.stacks()[stack].frames) {
        const std::string& path = from.modules()[from.frames()[frame].module].path;
        if (const FrameworkCache* cache = framework_of_library(path)) {
            return is_switched_off(from, *cache) ? nullptr : cache;
        }
    }
    return nullptr;
}

std::vector<OomHolder::Frame> holder_frames(const trace::Aggregator& from, std::uint32_t stack) {
    std::vector<OomHolder::Frame> frames;
    for (const std::uint32_t index : from.stacks()[stack].frames) {
        const trace::Frame& frame = from.frames()[index];
        if (frame.python != 0) {
            const trace::PythonFrameDef& python = from.python_frames()[frame.python];
            const std::string& file = from.string(python.file);
            if (is_forward_marker(from.string(python.function), file)) {
                frames.push_back({.python = std::string(trace::forward_marker), .library = true});
                continue;
            }
            frames.push_back({.python = file + ":" + std::to_string(python.line) + " in " +
                                        from.string(python.function),
                              .library = is_python_library(file)});
            continue;
        }
        const trace::ModuleDef& module = from.modules()[frame.module];
        frames.push_back({.module = module.path, .address = frame.address, .bias = module.bias});
    }
    return frames;
}

std::vector<MemoryLabel> holder_labels(const trace::Aggregator& from, const trace::OomTotals& oom,
                                       std::uint32_t site) {
    std::vector<MemoryLabel> labels;
    for (const trace::SiteLabel& label : oom.labels) {
        if (label.site == site) {
            labels.push_back({.name = label_name(from, label.name),
                              .count = label.live_count,
                              .bytes = label.live_bytes});
        }
    }
    return labels;
}

}  // namespace

std::string error_text(std::int64_t error) {
    // Those with which allocations fail for lack of memory, of the driver API.
    const char* name = error == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
                       : error == 1   ? "CUDA_ERROR_INVALID_VALUE"
                       : error == 801 ? "CUDA_ERROR_NOT_SUPPORTED"
                       : error == 304 ? "CUDA_ERROR_OPERATING_SYSTEM"
                                      : nullptr;
    return name == nullptr ? "error " + std::to_string(error)
                           : std::string(name) + " (" + std::to_string(error) + ")";
}

std::string pool_name(const std::string& allocator) {
    return allocator.empty() ? "memlab's pool" : allocator + "'s cache";
}

std::string label_name(const trace::Aggregator& from, std::uint32_t name) {
    return name == 0 ? "(other names)" : from.string(name);
}

OomFigures oom_figures(const trace::Aggregator& from, const trace::OomTotals& oom) {
    OomFigures figures;
    figures.oom = oom;
    const auto& device = from.devices()[oom.event.device];
    figures.allocator = device->info.allocator;
    figures.group = from.string(oom.event.group_limit.group);
    figures.async_pools =
        device->kinds[static_cast<std::size_t>(MemoryKind::async_pool)].count != 0;
    for (const trace::OptionValue& option : from.options()) {
        figures.vmm_backend |= option.name == "MEMLAB_BACKEND" && option.value == "vmm";
    }
    figures.caches.reserve(oom.holders.sites.size());
    figures.labels.reserve(oom.holders.sites.size());
    for (const trace::Holder& holder : oom.holders.sites) {
        // A suballocation is what the cache holds for the program.
        const trace::Site& site = from.sites()[holder.site];
        figures.caches.push_back(
            site.kind == MemoryKind::suballocation ? nullptr : find_cache(from, site.stack));
        figures.labels.push_back(holder_labels(from, oom, holder.site));
    }
    return figures;
}

std::vector<std::string> explain_oom(const OomFigures& figures) {
    const OomTotals& oom = figures.oom;
    const Situation now(oom);
    if (oom.event.kind == MemoryKind::pinned) {
        return {
            "The request was for pinned memory of the host: the machine's free memory, the "
            "container's limit and `ulimit -l` bound it, not the GPU."};
    }
    std::vector<std::string> sentences;
    if (oom.event.device_total != 0) {
        sentences.push_back(device_sentence(oom, now));
    }
    if (std::string group = group_sentence(figures, now); !group.empty()) {
        sentences.push_back(std::move(group));
    }
    if (oom.pool.reserved != 0) {
        sentences.push_back(pool_sentence(figures, now));
    }
    if (std::string kinds = kinds_sentence(figures); !kinds.empty()) {
        sentences.push_back(std::move(kinds));
    }
    if (oom.event.device_total == 0) {
        return sentences;  // the driver did not answer: nothing can be concluded
    }
    if (now.others != 0) {
        sentences.push_back(size_text(now.others) +
                            " are in use by contexts, modules, the driver's own pools and other "
                            "processes.");
    }
    sentences.push_back(verdict(figures, now));
    for (std::string& advice : advice_for(figures, now)) {
        sentences.push_back(std::move(advice));
    }
    return sentences;
}

OomHolder oom_request(const trace::Aggregator& from, const trace::OomTotals& oom) {
    return {.bytes = 0,
            .count = 0,
            .api = from.string(oom.event.api),
            .frames = holder_frames(from, oom.event.stack)};
}

std::vector<OomHolder> oom_holders(const trace::Aggregator& from, const trace::OomTotals& oom,
                                   std::size_t limit) {
    std::vector<OomHolder> holders;
    for (std::size_t i = 0; i < oom.holders.sites.size() && i < limit; ++i) {
        const trace::Holder& holder = oom.holders.sites[i];
        const trace::Site& site = from.sites()[holder.site];
        holders.push_back({.bytes = holder.bytes,
                           .count = holder.count,
                           .api = from.string(site.api),
                           .frames = holder_frames(from, site.stack),
                           .labels = holder_labels(from, oom, holder.site)});
    }
    return holders;
}

}  // namespace memlab::model
