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
constexpr std::size_t current_reserved = 3;  // of OomTotals::current

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
            text += " (the largest free block has " + size_text(oom.pool.largest_free) + ")";
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

/// What NVML counted for other processes on the GPU nearest to the failure, as a sentence.
std::string others_sentence(const OomFigures& figures, const Situation& now) {
    const trace::OtherProcesses& nvml = figures.oom.others;
    if (now.others == 0) {
        return {};
    }
    const char* const own = "this process's contexts and code and the driver's own pools";
    if (!nvml.known) {
        return size_text(now.others) + " are in use by " + own + ", or by other processes.";
    }
    const std::uint64_t theirs = std::min(nvml.bytes, now.others);
    const std::uint64_t rest = now.others - theirs;
    if (theirs == 0) {
        return size_text(rest) + " are in use by " + own + ".";
    }
    const std::uint64_t failed = figures.oom.event.time_ns;
    return "Other processes hold " + size_text(theirs) + " of it (" +
           count_text(nvml.count, "process") + ", by NVML, asked " +
           (nvml.time_ns < failed ? "before" : "after") + " the failure)" +
           (rest == 0 ? "." : "; " + size_text(rest) + " are in use by " + own + ".");
}

/// As Oom::refused_by.
const char* refuser(const OomFigures& figures, const Situation& now) {
    return figures.by_own_limit                             ? "allocator"
           : now.stopped_by_group()                         ? "cgroup"
           : now.limited && now.requested > now.below_limit ? "memlab_limit"
                                                            : "driver";
}

std::string refusal(const OomFigures& figures, const Situation& now) {
    const std::string_view who = refuser(figures, now);
    if (who == "allocator") {
        return figures.allocator + " refused it by a limit of its own" +
               (figures.allocator == trace::DeviceInfo::pytorch
                    ? " (torch.cuda.set_per_process_memory_fraction)"
                    : "") +
               ": no call of the driver failed, and " + size_text(now.free) + " were free.";
    }
    if (who == "memlab_limit") {
        return "MEMLAB_LIMIT refused it, not the driver.";
    }
    // The verdict on the others names the driver.
    return who == "driver" && now.requested > now.free ? "The driver refused it." : "";
}

std::string verdict(const OomFigures& figures, const Situation& now) {
    const OomTotals& oom = figures.oom;
    const std::uint64_t largest =
        figures.allocator.empty() ? oom.event.largest_free_block : oom.pool.largest_free;
    std::string text;
    if (figures.by_own_limit) {
        return "With the " + size_text(now.requested) + " it would have reserved up to " +
               size_text(saturating_add(oom.pool.reserved, now.requested)) +
               "; the largest free block of " + pool_name(figures.allocator) + " had " +
               size_text(largest) + ".";
    }
    if (now.stopped_by_group()) {
        return "The driver refused it: it is short by " + size_text(now.missing()) +
               ", by the cgroup's limit" +
               (now.capped ? "." : ": the device itself has that much free.");
    }
    if (now.requested > now.visible) {
        text = now.limited ? "The request is larger than the limit"
                           : "The request is larger than the whole device";
    } else if (!now.fits_in_pieces()) {
        text = "It is short by " + size_text(now.missing()) + ", fragmentation aside";
    } else if (now.requested > now.free) {
        text = "There was enough free memory in total (" + size_text(now.reachable) +
               "), but fragmented: the largest free block of " +
               (figures.allocator.empty() ? "the pool" : pool_name(figures.allocator)) + " had " +
               size_text(largest);
    } else {
        text = "The driver refused it although " + size_text(now.free) +
               " were free: it needs a contiguous range of whole pages";
    }
    if (now.limited && now.requested <= oom.event.device_free) {
        text += "; without the limit it would have fit";
    }
    return text + ".";
}

/// What lay behind caches that memlab does not see into.
void add_caches(const OomFigures& figures, std::vector<std::string>& sentences) {
    if (figures.sees_into_caches) {
        return;
    }
    const auto& sites = figures.oom.holders.sites;
    for (const FrameworkCache& cache : framework_caches()) {
        std::uint64_t bytes = 0;
        for (std::size_t i = 0; i < sites.size() && i < figures.caches.size(); ++i) {
            bytes = saturating_add(bytes, figures.caches[i] == &cache ? sites[i].bytes : 0);
        }
        if (bytes > figures.oom.holders.bytes / 4) {
            sentences.push_back(size_text(bytes) + " were allocated through " + cache.name +
                                "'s own cache: how much of that was in use is not known.");
        }
    }
}

/// A call site that holds much and has never freed anything.
std::string growth_sentence(const OomFigures& figures) {
    const OomTotals& oom = figures.oom;
    constexpr std::uint64_t min_count = 8;
    for (std::size_t i = 0; i < oom.holders.sites.size() && i < oom.allocations.size(); ++i) {
        const trace::Holder& holder = oom.holders.sites[i];
        const bool cache = i < figures.caches.size() && figures.caches[i] != nullptr;
        if (!cache && holder.count >= min_count && holder.count == oom.allocations[i] &&
            holder.bytes > oom.holders.bytes / 4) {
            const std::string name =
                i < figures.labels.size() ? format_labels(figures.labels[i], holder.bytes) : "";
            return "One call site" + (name.empty() ? name : " (" + name + ")") + " has allocated " +
                   count_text(holder.count, "time") + ", freed nothing, and holds " +
                   size_text(holder.bytes) + ".";
        }
    }
    return {};
}

/// Memory that would have been enough, and why it could not serve the request.
void add_unusable(const OomFigures& figures, const Situation& now,
                  std::vector<std::string>& sentences) {
    const std::uint64_t missing = now.missing();
    if (missing == 0 || now.requested > now.visible) {
        return;
    }
    if (now.pending >= missing) {
        sentences.push_back("The " + size_text(now.pending) +
                            " that are freed but not yet safe to reuse would have been enough: the "
                            "capture or the work that may use them has not ended.");
    }
    if (!comes_from_a_pool(figures.oom.event.kind) && now.cached >= missing) {
        sentences.push_back("The unallocated " + size_text(now.cached) +
                            " of memlab's pool would have been enough, but only cudaMalloc's "
                            "memory comes from there.");
    }
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

std::vector<MemoryLabel> holder_labels(const trace::Aggregator& from, const trace::OomTotals& oom,
                                       std::uint32_t site) {
    std::vector<MemoryLabel> labels;
    for (const trace::SiteLabel& label : oom.labels) {
        if (label.site == site) {
            labels.push_back({.name = label_name(from, label.name),
                              .count = label.live_count,
                              .bytes = label.live_bytes,
                              .detail = from.string(label.detail)});
        }
    }
    return labels;
}

/// Whether a call of the driver failed in the request of an allocator of the program's: the failure
/// of its own thread before this one, of the same GPU, with nothing allocated there in between.
/// (The first failures are kept, so one that led to `oom` is.)
bool driver_failed_before(const trace::Aggregator& from, const OomTotals& oom) {
    const trace::DeviceInfo& allocator = from.devices()[oom.event.device]->info;
    const OomTotals* before = nullptr;
    for (const OomTotals& each : from.ooms()) {
        if (&each == &oom) {
            break;
        }
        if (each.event.thread == oom.event.thread &&
            (each.event.device == allocator.gpu || each.event.device == oom.event.device)) {
            before = &each;
        }
    }
    return before != nullptr && before->event.device == allocator.gpu &&
           before->allocations_on_gpu == oom.allocations_on_gpu;
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
    return name == 0 ? std::string(other_names) : from.string(name);
}

OomFigures oom_figures(const trace::Aggregator& from, const trace::OomTotals& oom) {
    OomFigures figures;
    figures.oom = oom;
    const auto& device = from.devices()[oom.event.device];
    figures.allocator = device->info.allocator;
    figures.group = from.string(oom.event.group_limit.group);
    figures.sees_into_caches =
        std::any_of(from.devices().begin(), from.devices().end(),
                    [](const auto& each) { return each != nullptr && !each->info.is_gpu(); });
    figures.by_own_limit =
        oom.event.kind == MemoryKind::suballocation && !driver_failed_before(from, oom);
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

std::string refused_by(const OomFigures& figures) {
    const trace::OomEvent& event = figures.oom.event;
    if (event.kind == MemoryKind::pinned || event.device_total == 0) {
        return {};
    }
    return refuser(figures, Situation(figures.oom));
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
    for (std::string sentence : {others_sentence(figures, now), refusal(figures, now),
                                 verdict(figures, now), growth_sentence(figures)}) {
        if (!sentence.empty()) {
            sentences.push_back(std::move(sentence));
        }
    }
    add_unusable(figures, now, sentences);
    add_caches(figures, sentences);
    return sentences;
}

std::vector<OomHolder::Frame> holder_frames(const trace::Aggregator& from, std::uint32_t stack) {
    std::vector<OomHolder::Frame> frames;
    if (stack >= from.stacks().size()) {
        return frames;
    }
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
