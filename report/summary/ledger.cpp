#include "report/summary/ledger.hpp"

#include <algorithm>
#include <array>

#include "model/bounded_sum.hpp"
#include "report/summary/place_text.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"

namespace memlab::report {
namespace {

struct Title {
    const char* kind;
    const char* title;
};
/// Of the kinds of rows; each has a group.
constexpr std::array<Title, 9> titles = {{
    {"context", "contexts"},
    {"module", "code, loaded as modules"},
    {"kernel", "code, loaded lazily"},
    {"launch", "first launches: code, local memory"},
    {"limit", "heaps and limits (cuCtxSetLimit)"},
    {"graph", "executable graphs"},
    {"stream", "streams"},
    {"event", "events"},
    {"other", "textures, imports of other APIs, peers"},
}};

bool is_code(const std::string& kind) {
    return kind == "module" || kind == "kernel" || kind == "launch";
}

/// The file that code came from: the image's, else that of the library or program that loaded it.
std::string code_file(const model::Ledger::Row& row, const Place& place) {
    if (!row.object.empty()) {
        return base_name(row.object);
    }
    return !place.through.empty() ? place.through : base_name(place.module);
}

std::uint64_t less(std::uint64_t from, std::uint64_t bytes) {
    return from - std::min(from, bytes);
}

class PageMaker {
  public:
    PageMaker(const model::Device& device, Resolver& resolver, LedgerAt at)
        : ledger_(*device.ledger),
          moment_(at == LedgerAt::peak ? ledger_.peak : ledger_.latest),
          resolver_(resolver),
          at_(at) {}

    LedgerPage make() {
        page_.time_ns = moment_.time_ns;
        page_.managed = moment_.managed;
        page_.imports = moment_.imports;
        allocations();
        driver_pools();
        for (const Title& title : titles) {
            measured(title);
        }
        add_group({"growth",
                   std::string("growth while work ran: code loaded at a first launch, local "
                               "memory") +
                       (is_alone() ? "" : ", or other processes"),
                   moment_.growth,
                   {}});
        std::uint64_t known = 0;
        for (const LedgerGroup& group : page_.groups) {
            known = model::saturating_add(known, group.bytes);
        }
        page_.used = std::max(moment_.used, known);
        page_.rest = page_.used - known;
        others();
        of_the_driver();
        name_others_before();
        std::stable_sort(page_.groups.begin(), page_.groups.end(),
                         [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
        return std::move(page_);
    }

  private:
    void add_group(LedgerGroup group) {
        if (group.bytes == 0) {
            return;
        }
        std::stable_sort(group.lines.begin(), group.lines.end(),
                         [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
        page_.groups.push_back(std::move(group));
    }

    /// What the driver handed out by size, except its own pools.
    void allocations() {
        LedgerGroup group{"allocations", "memory allocated", 0, {}};
        const auto add = [&](std::uint64_t bytes, const char* what, std::string note = {}) {
            if (bytes != 0) {
                group.bytes = model::saturating_add(group.bytes, bytes);
                group.lines.push_back({.what = what,
                                       .place = {},
                                       .api = {},
                                       .bytes = bytes,
                                       .note = std::move(note)});
            }
        };
        add(moment_.pool_reserved, "memlab's pool",
            format_bytes(moment_.pool_active) + " of it active");
        std::uint64_t plain = less(moment_.reserved, moment_.pool_reserved);
        for (const std::uint64_t other :
             {moment_.arrays, moment_.vmm, moment_.async_pool, moment_.graphs}) {
            plain = less(plain, other);
        }
        add(plain, "by the driver");
        add(moment_.vmm, "virtual memory (cuMemCreate)");
        add(moment_.arrays, "arrays", "by their elements");
        if (moment_.segments != 0 && !group.lines.empty()) {
            group.lines.back().note += std::string(group.lines.back().note.empty() ? "" : "; ") +
                                       "in all, " + format_bytes(moment_.segments) +
                                       " are a framework's segments";
        }
        add_group(std::move(group));
    }

    void driver_pools() {
        const std::uint64_t served = model::saturating_add(moment_.async_pool, moment_.graphs);
        const std::uint64_t bytes = moment_.driver_pools != 0 ? moment_.driver_pools : served;
        add_group(
            {"driver_pools",
             "the driver's pools (cudaMallocAsync, memory of graphs)",
             bytes,
             {{.what = "in use", .place = {}, .api = {}, .bytes = std::min(served, bytes)},
              {.what = "kept for reuse", .place = {}, .api = {}, .bytes = less(bytes, served)}}});
    }

    /// Rows with the same text are one: contexts of one place stay apart.
    void measured(const Title& title) {
        LedgerGroup group{title.kind, title.title, 0, {}};
        for (const model::Ledger::Row& row : ledger_.rows) {
            const std::uint64_t bytes = at_ == LedgerAt::peak ? row.at_peak_bytes : row.bytes;
            if (row.kind != title.kind || bytes == 0) {
                continue;
            }
            LedgerLine line{.what = {},
                            .place = resolver_.place(row.stack),
                            .api = row.api,
                            .bytes = bytes,
                            .count = row.count,
                            .uncertain = row.uncertain,
                            .with_earlier = row.whole,
                            .estimated = row.estimated,
                            .note = {},
                            .largest = bytes};
            if (row.estimated) {
                line.what = "calls that were not measured";
            } else if (is_code(row.kind)) {
                line.what = code_file(row, line.place);
            }
            group.bytes = model::saturating_add(group.bytes, bytes);
            add_line(group, std::move(line));
        }
        add_group(std::move(group));
    }

    /// What was in use before the first context is other processes', if NVML did not tell them
    /// apart: a context takes less than 1 GiB.
    void name_others_before() {
        constexpr std::uint64_t max_context = std::uint64_t{1} << 30;
        for (LedgerGroup& group : page_.groups) {
            const bool more =
                std::any_of(group.lines.begin(), group.lines.end(), [](const LedgerLine& line) {
                    return line.with_earlier && line.bytes > max_context;
                });
            if (group.kind == "context" && more) {
                group.title = "contexts, and what other processes had in use before";
            }
        }
    }

    /// NVML found this process each time.
    bool is_seen() const {
        return !ledger_.witnesses.empty() && ledger_.witnesses.front().state == "seen" &&
               ledger_.witnesses.back().state == "seen";
    }

    /// ... and never another one: what grew is this process's.
    bool is_alone() const {
        return is_seen() && ledger_.witnesses.front().other_processes == 0 &&
               ledger_.witnesses.back().other_processes == 0;
    }

    /// Other processes by NVML. Those that were there first are in the context that was made when
    /// nobody could be asked before; those that came later are in the rest, and in the growth as
    /// far as it is more than NVML has for this process in all.
    void others() {
        if (ledger_.witnesses.empty() || ledger_.witnesses.front().state != "seen") {
            return;
        }
        std::uint64_t bytes = 0;
        const std::uint64_t first = ledger_.witnesses.front().other_bytes;
        for (LedgerGroup& group : page_.groups) {
            for (LedgerLine& line : group.lines) {
                if (line.with_earlier && bytes == 0) {
                    bytes = std::min(first, line.bytes);
                    line.bytes -= bytes;
                    group.bytes -= bytes;
                }
            }
        }
        const model::Ledger::Witness& last = ledger_.witnesses.back();
        if (is_seen()) {
            const std::uint64_t later = std::min(less(last.other_bytes, first), page_.rest);
            page_.rest -= later;
            bytes = model::saturating_add(bytes, later);
        }
        // Only what was not given back before NVML was asked is in its figure.
        if (is_seen() && !is_alone() && moment_.time_ns <= last.time_ns) {
            std::uint64_t beside = 0;
            for (LedgerGroup& group : page_.groups) {
                if (group.kind == "growth" && moment_.growth <= ledger_.latest.growth) {
                    const std::uint64_t over = less(group.bytes, last.own_bytes);
                    group.bytes -= over;
                    bytes = model::saturating_add(bytes, over);
                }
                if (group.kind != "allocations" && group.kind != "driver_pools") {
                    beside = model::saturating_add(beside, group.bytes);
                }
            }
            if (moment_.time_ns == ledger_.latest.time_ns) {
                page_.others_in_rows = less(beside, last.own_bytes);
            }
        }
        add_group({"others",
                   "other processes, by NVML",
                   bytes,
                   {{.what = format_plural(
                         std::max(ledger_.witnesses.front().other_processes, last.other_processes),
                         "process"),
                     .place = {},
                     .api = {},
                     .bytes = bytes}}});
    }

    /// What no process has by NVML was in use before the first context, which nobody could ask.
    void of_the_driver() {
        constexpr std::uint64_t same_moment_ns = 500'000'000;
        if (!is_seen()) {
            return;
        }
        const model::Ledger::Witness& last = ledger_.witnesses.back();
        const std::uint64_t asked = std::max(last.time_ns, ledger_.latest.time_ns) -
                                    std::min(last.time_ns, ledger_.latest.time_ns);
        const std::uint64_t bytes =
            less(ledger_.latest.used, model::saturating_add(last.own_bytes, last.other_bytes));
        for (LedgerGroup& group : page_.groups) {
            for (LedgerLine& line : group.lines) {
                // More is no context's: it was given back before NVML was asked.
                if (line.with_earlier && bytes < line.bytes && asked < same_moment_ns) {
                    line.bytes -= bytes;
                    line.with_earlier = bytes == 0;
                    group.bytes -= bytes;
                    add_group({"driver_own",
                               "the driver's own, of no process",
                               bytes,
                               {{.what = "in use before the first context",
                                 .place = {},
                                 .api = {},
                                 .bytes = bytes}}});
                    return;
                }
            }
        }
    }

    static void add_line(LedgerGroup& group, LedgerLine line) {
        const auto same =
            std::find_if(group.lines.begin(), group.lines.end(), [&](const LedgerLine& each) {
                return each.what == line.what && each.api == line.api &&
                       (is_code(group.kind) || each.place == line.place);
            });
        if (group.kind == "context" || same == group.lines.end()) {
            group.lines.push_back(std::move(line));
            return;
        }
        same->other_places = same->other_places || same->place != line.place;
        if (line.largest > same->largest) {
            same->place = line.place;
            same->largest = line.largest;
        }
        same->bytes = model::saturating_add(same->bytes, line.bytes);
        same->count = model::saturating_add(same->count, line.count);
        same->uncertain = same->uncertain || line.uncertain;
    }

    const model::Ledger& ledger_;
    const model::LedgerMoment& moment_;
    Resolver& resolver_;
    const LedgerAt at_;
    LedgerPage page_;
};

/// "train.py:12 main", for a sentence.
std::string made_at(const LedgerLine& line) {
    if (!line.place.recorded) {
        return "by " + line.api;
    }
    const std::string function = without_anonymous(line.place.function);
    return "at " + location_text(line.place, {}) + (function.empty() ? "" : " " + function);
}

}  // namespace

std::uint64_t LedgerPage::bytes_of(std::string_view kind) const {
    for (const LedgerGroup& group : groups) {
        if (group.kind == kind) {
            return group.bytes;
        }
    }
    return 0;
}

std::optional<LedgerPage> ledger_page(const model::Device& device, Resolver& resolver,
                                      LedgerAt at) {
    if (!device.ledger) {
        return std::nullopt;
    }
    return PageMaker(device, resolver, at).make();
}

std::vector<std::string> ledger_advice(const model::Report& report, const model::Device& device,
                                       const LedgerPage& page) {
    constexpr std::uint64_t worth = std::uint64_t{64} << 20;
    std::vector<std::string> advice;
    for (const LedgerGroup& group : page.groups) {
        if (group.kind == "context" && group.lines.size() > 1) {
            const LedgerLine& last = group.lines.back();
            advice.push_back(format_count(group.lines.size()) + " contexts are on this GPU, " +
                             format_bytes(group.bytes) + " in all; one of " +
                             format_bytes(last.bytes) + " was made " + made_at(last) +
                             ". Threads of a process can share one: the primary context.");
        } else if (group.kind == "context" && !device.used()) {
            advice.push_back("Nothing was allocated on this GPU, but a context of " +
                             format_bytes(group.bytes) + " was made " +
                             made_at(group.lines.front()) +
                             ". CUDA_VISIBLE_DEVICES keeps a process away from GPUs that are "
                             "not its own.");
        } else if (group.kind == "limit" && group.bytes >= worth) {
            advice.push_back("cuCtxSetLimit took " + format_bytes(group.bytes) + ", most of it " +
                             made_at(group.lines.front()) + ". A smaller limit gives that back.");
        }
    }
    const auto loading = report.options.find("CUDA_MODULE_LOADING");
    const std::uint64_t modules = page.bytes_of("module");
    if (loading != report.options.end() && loading->second == "EAGER" && modules >= worth) {
        advice.push_back("CUDA_MODULE_LOADING=EAGER is set, and modules take " +
                         format_bytes(modules) +
                         ". LAZY, the default, loads only kernels that are launched.");
    }
    return advice;
}

}  // namespace memlab::report
