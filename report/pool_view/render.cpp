#include "report/pool_view/render.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "model/memory_label.hpp"
#include "model/oom_explanation.hpp"
#include "report/summary/json_values.hpp"
#include "report/summary/place_text.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"
#include "report/views/site_table.hpp"
#include "trace/event.hpp"

namespace memlab::report {

namespace {

const char* name_of(PoolSnapshot::What what) {
    static constexpr const char* names[] = {"peak", "oom", "end", "stop"};
    return trace::name_in<PoolSnapshot::What::stop>(names, what);
}

/// The blocks of one place in partly free segments.
struct BlockHolder {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t segments = 0;
    std::uint64_t free_alone = 0;   ///< free memory of segments without other blocks
    std::uint64_t free_shared = 0;  ///< free memory of the other segments
    std::map<std::string, model::MemoryLabel> labels;  ///< by name

    void add(const BlockLayout& block) {
        ++count;
        bytes += block.size;
        if (!block.label.empty()) {
            const model::MemoryLabel added{block.label, 1, block.size, block.label_detail};
            const auto [known, is_new] = labels.try_emplace(block.label, added);
            if (!is_new) {
                model::keep_common_detail(known->second, added);
                ++known->second.count;
                known->second.bytes += block.size;
            }
        }
    }
    /// The largest first.
    std::string labels_text() const {
        std::vector<model::MemoryLabel> sorted;
        for (const auto& [name, label] : labels) {
            sorted.push_back(label);
        }
        std::stable_sort(sorted.begin(), sorted.end(),
                         [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
        return model::format_labels(sorted, bytes);
    }
};

class PoolText {
  public:
    PoolText(Resolver& resolver, const PoolViewOptions& options)
        : resolver_(resolver), options_(options), style_(options.style), page_(options.style) {}

    std::string write(const PoolSnapshots& pools) {
        if (pools.devices.empty()) {
            page_.line("No GPU memory was allocated.");
        }
        for (const DevicePool& pool : pools.devices) {
            page_.heading(device_title(*pool.device, style_.ascii),
                          page_.clean(model::pool_name(pool.device->allocator)));
            // Mapped memory has no segments, by PyTorch's words: the statistics count none.
            const auto segments = pool.device->memory_stats.find("segment.all.peak");
            unit_ = segments != pool.device->memory_stats.end() && segments->second == 0
                        ? "mapped range"
                        : "segment";
            give_back_ = pool.device->is_gpu() ? "memlab_empty_cache() would give that back"
                         : pool.device->is_pytorchs()
                             ? "torch.cuda.empty_cache() would give that back"
                             : "these could be given back";
            for (const PoolSnapshot& each : pool.moments) {
                moment(each);
            }
            if (pool.moments.empty()) {
                page_.line("");
                page_.paragraph("  ",
                                "The segments are known from the event log alone: give the "
                                "*.memlog that belongs to the report.");
            }
            statistics(*pool.device);
        }
        if (!pools.stretch.empty()) {
            page_.warnings({pools.stretch});
        }
        return page_.take();
    }

  private:
    std::string title(const PoolSnapshot& moment) const {
        switch (moment.what) {
            case PoolSnapshot::What::peak:
                return "At the allocated peak";
            case PoolSnapshot::What::oom:
                return "When " + format_bytes(moment.requested) + " did not fit";
            case PoolSnapshot::What::stop:
                return "When the recording stopped";
            case PoolSnapshot::What::end:
                break;
        }
        return "At the end";
    }

    void moment(const PoolSnapshot& moment) {
        page_.heading(title(moment), format_duration(moment.time_ns));
        const std::uint64_t reserved = moment.reserved_bytes();
        if (reserved == 0) {
            page_.line("  nothing is reserved");
            return;
        }
        const std::uint64_t active = moment.active_bytes();
        std::uint64_t empty_count = 0;
        std::uint64_t empty_bytes = 0;
        for (const SegmentLayout& segment : moment.segments) {
            empty_count += segment.blocks.empty() ? 1 : 0;
            empty_bytes += segment.blocks.empty() ? segment.size : 0;
        }
        std::string text = format_bytes(reserved) + " reserved in " +
                           format_plural(moment.segments.size(), unit_.c_str()) + ", " +
                           format_bytes(active) + " of it active";
        if (const std::uint64_t pending = moment.pending_bytes(); pending != 0) {
            text += " (" + format_bytes(pending) + " freed, but maybe still in use by the GPU)";
        }
        if (active == reserved) {
            text += "; nothing is free.";
        } else {
            text += "; " + format_bytes(reserved - active) + " free, the largest block " +
                    format_bytes(moment.largest_free()) + ". " +
                    (empty_count == 0
                         ? "No " + unit_ + " is empty: none could be given back."
                         : format_plural(empty_count, unit_.c_str()) + " (" +
                               format_bytes(empty_bytes) + ") " +
                               (empty_count == 1 ? "is" : "are") + " empty: " + give_back_ + ".");
        }
        page_.paragraph("  ", text);
        picture(moment);
        holders(moment);
    }

    /// Segments by free memory, largest first; empty ones are only counted.
    void picture(const PoolSnapshot& moment) {
        std::vector<const SegmentLayout*> segments;
        std::uint64_t empty = 0;
        std::uint64_t empty_bytes = 0;
        for (const SegmentLayout& segment : moment.segments) {
            if (segment.blocks.empty()) {
                ++empty;
                empty_bytes += segment.size;
            } else {
                segments.push_back(&segment);
            }
        }
        std::stable_sort(segments.begin(), segments.end(),
                         [](const SegmentLayout* a, const SegmentLayout* b) {
                             return a->free_bytes() > b->free_bytes();
                         });
        page_.line("");
        struct Row {
            std::optional<std::uint64_t> size;
            std::uint64_t free;
            std::optional<std::uint64_t> blocks;
        };
        Table<Row> table(page_);
        table.bytes("size", 11, &Row::size).bytes("free", &Row::free).count("blocks", &Row::blocks);
        table.last(style_.ascii ? "# active, o freed and pending, . free"
                                : "█ active  ▒ freed and pending  · free");
        table.head();
        std::uint64_t rest = 0;
        std::uint64_t rest_free = 0;
        for (std::size_t i = 0; i < segments.size(); ++i) {
            const SegmentLayout& segment = *segments[i];
            if (i < options_.top) {
                table.row({segment.size, segment.free_bytes(), segment.blocks.size()},
                          drawn(segment));
            } else {
                ++rest;
                rest_free += segment.free_bytes();
            }
        }
        if (rest != 0) {
            page_.line(page_.dim(table.line({std::nullopt, rest_free, std::nullopt},
                                            "[" + format_plural(rest, unit_.c_str()) + " more]")));
        }
        if (empty != 0) {
            page_.line(page_.dim(
                table.line({empty_bytes, empty_bytes, 0},
                           "[" + format_plural(empty, ("empty " + unit_).c_str()) + "]")));
        }
    }

    /// A cell shows what most of its bytes are, but is never free if it has a block.
    std::string drawn(const SegmentLayout& segment) const {
        const std::size_t cells = static_cast<std::size_t>(std::clamp(style_.width - 37, 16, 60));
        std::vector<std::array<std::uint64_t, 2>> bytes(cells);  // active, pending
        const double per_cell = static_cast<double>(segment.size) / static_cast<double>(cells);
        for (const BlockLayout& block : segment.blocks) {
            const double from = static_cast<double>(block.address - segment.address) / per_cell;
            const double to =
                static_cast<double>(block.address - segment.address + block.size) / per_cell;
            const auto last = std::min(cells - 1, static_cast<std::size_t>(to));
            for (auto cell = std::min(cells - 1, static_cast<std::size_t>(from)); cell <= last;
                 ++cell) {
                const double part = std::min(to, static_cast<double>(cell) + 1) -
                                    std::max(from, static_cast<double>(cell));
                bytes[cell][block.pending ? 1 : 0] +=
                    static_cast<std::uint64_t>(std::max(0.0, part) * per_cell);
            }
        }
        std::string text;
        for (const auto& [active, pending] : bytes) {
            if (active == 0 && pending == 0) {
                text += style_.ascii ? "." : "·";
            } else if (active >= pending) {
                text += style_.ascii ? "#" : "█";
            } else {
                text += style_.ascii ? "o" : "▒";
            }
        }
        return text;
    }

    void holders(const PoolSnapshot& moment) {
        std::map<Place, BlockHolder> holders;
        for (const SegmentLayout& segment : moment.segments) {
            if (segment.blocks.empty() || segment.free_bytes() == 0) {
                continue;
            }
            std::set<Place> here;
            for (const BlockLayout& block : segment.blocks) {
                const Place& place = resolver_.place(block.stack);
                holders[place].add(block);
                here.insert(place);
            }
            for (const Place& place : here) {
                BlockHolder& holder = holders[place];
                ++holder.segments;
                (here.size() == 1 ? holder.free_alone : holder.free_shared) += segment.free_bytes();
            }
        }
        if (holders.empty()) {
            return;
        }
        std::vector<std::pair<Place, BlockHolder>> sorted(holders.begin(), holders.end());
        std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
            return std::pair(a.second.free_alone, a.second.free_shared) >
                   std::pair(b.second.free_alone, b.second.free_shared);
        });
        page_.line("");
        page_.line("  What keeps partly free " + unit_ + "s from being given back:");
        Table<BlockHolder> table(page_);
        table.bytes("free alone", 11, &BlockHolder::free_alone)
            .bytes("shared", &BlockHolder::free_shared)
            .count("blocks", &BlockHolder::count)
            .bytes("bytes", &BlockHolder::bytes)
            .last("where");
        table.head();
        for (std::size_t i = 0; i < sorted.size() && i < options_.top; ++i) {
            table.row(sorted[i].second,
                      describe_place(sorted[i].first, "device", "", table.last_width(),
                                     {style_, options_.working_directory}));
            page_.note_below(table.last_column(), sorted[i].second.labels_text());
        }
        if (sorted.size() > options_.top) {
            page_.line(
                page_.dim("  [" + format_plural(sorted.size() - options_.top, "place") + " more]"));
        }
        page_.paragraph("  ", "free alone: in " + unit_ +
                                  "s with blocks of this place only; shared: in " + unit_ +
                                  "s with blocks of other places, too.");
    }

    void statistics(const model::Device& device) {
        page_.heading("Statistics", "as torch.cuda.memory_stats has them, of " +
                                        page_.clean(model::pool_name(device.allocator)));
        const auto& stats = device.memory_stats;
        const auto figure = [&stats](const char* which) {
            return [&stats, which](const std::string& name) {
                const bool bytes = name.find("bytes") != std::string::npos;
                const auto found = stats.find(name + which);
                return found == stats.end() ? std::string("-")
                       : bytes              ? format_bytes(found->second)
                                            : format_count(found->second);
            };
        };
        Table<std::string> table(page_);
        table.left("", 34, [](const std::string& name) { return name; })
            .right("current", 12, figure(".current"))
            .right("peak", 12, figure(".peak"));
        if (style_.width >= 88) {
            table.right("allocated", 13, figure(".allocated")).right("freed", 13, figure(".freed"));
        }
        table.head();
        std::set<std::string> shown;
        for (const auto& [key, value] : stats) {
            const std::size_t dot = key.rfind('.');
            const std::string name = key.substr(0, dot);
            const bool of_one_pool = name.ends_with(".small_pool") || name.ends_with(".large_pool");
            if (dot != std::string::npos && (!of_one_pool || options_.all_figures) &&
                shown.insert(name).second) {
                table.row(name);
            }
        }
        using Plain = std::pair<std::string, std::uint64_t>;
        Table<Plain> alone(page_);
        alone.left("", 34, &Plain::first).count("", 12, &Plain::second);
        for (const auto& [key, value] : stats) {
            if (key.find('.') == std::string::npos) {
                alone.row({key, value});
            }
        }
    }

    Resolver& resolver_;
    const PoolViewOptions& options_;
    const Style style_;
    std::string unit_ = "segment";
    std::string give_back_;  ///< what gives empty segments back
    Page page_;
};

ordered_json segment_json(const SegmentLayout& segment, Resolver& resolver) {
    ordered_json out;
    out["address"] = segment.address;
    out["size"] = segment.size;
    out["blocks"] = ordered_json::array();
    for (const BlockLayout& block : segment.blocks) {
        ordered_json& shown = out["blocks"].emplace_back();
        shown["address"] = block.address;
        shown["size"] = block.size;
        shown["time_ns"] = block.time_ns;
        shown["pending"] = block.pending;
        shown["label"] = text_or_null(block.label);
        if (!block.label_detail.empty()) {
            shown["label_detail"] = block.label_detail;
        }
        shown["place"] = place_json(resolver.place(block.stack));
    }
    return out;
}

ordered_json moment_json(const PoolSnapshot& moment, Resolver& resolver) {
    ordered_json out;
    out["what"] = name_of(moment.what);
    out["time_ns"] = moment.time_ns;
    if (moment.what == PoolSnapshot::What::oom) {
        out["requested_bytes"] = moment.requested;
    }
    out["reserved_bytes"] = moment.reserved_bytes();
    out["active_bytes"] = moment.active_bytes();
    out["pending_bytes"] = moment.pending_bytes();
    out["largest_free_bytes"] = moment.largest_free();
    out["segments"] = ordered_json::array();
    for (const SegmentLayout& segment : moment.segments) {
        out["segments"].push_back(segment_json(segment, resolver));
    }
    return out;
}

ordered_json pool_json(const DevicePool& pool, Resolver& resolver) {
    const auto ratio = [](const std::optional<double>& value) {
        return value ? ordered_json(*value) : ordered_json();
    };
    const model::Fragmentation& fragmentation = pool.device->fragmentation;
    ordered_json out;
    out["index"] = pool.device->index;
    out["name"] = pool.device->name;
    out["memory_stats"] = pool.device->memory_stats;
    out["fragmentation"] = {{"at_peak", ratio(fragmentation.at_peak)},
                            {"external", ratio(fragmentation.external)},
                            {"internal", ratio(fragmentation.internal)}};
    out["moments"] = ordered_json::array();
    for (const PoolSnapshot& moment : pool.moments) {
        out["moments"].push_back(moment_json(moment, resolver));
    }
    return out;
}

}  // namespace

std::string render_pools(const PoolSnapshots& pools, Resolver& resolver,
                         const PoolViewOptions& options) {
    return PoolText(resolver, options).write(pools);
}

std::string pools_json(const PoolSnapshots& pools, Resolver& resolver) {
    ordered_json out;
    out["devices"] = ordered_json::array();
    for (const DevicePool& pool : pools.devices) {
        out["devices"].push_back(pool_json(pool, resolver));
    }
    if (!pools.stretch.empty()) {
        out["stretch"] = pools.stretch;
    }
    return json_text(out);
}

}  // namespace memlab::report
