#include "report/views/ledger_text.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/bounded_sum.hpp"
#include "report/device_label.hpp"
#include "report/summary/json_values.hpp"
#include "report/summary/place_text.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"

namespace memlab::report {
namespace {

bool is_chosen(const model::Device& device, const ViewOptions& options) {
    return device.is_gpu() && (!options.device || device.index == *options.device);
}

class LedgerText {
  public:
    LedgerText(const model::Report& report, Resolver& resolver, LedgerAt at,
               const ViewOptions& options)
        : report_(report), resolver_(resolver), at_(at), options_(options), page_(options.style) {}

    std::string write() {
        bool any = false;
        for (const model::Device& device : report_.devices) {
            if (is_chosen(device, options_)) {
                any = write(device) || any;
            }
        }
        if (!any) {
            page_.paragraph("",
                            "No ledger was kept: the recording is of an earlier memlab, "
                            "MEMLAB_LEDGER or MEMLAB_RECORD was off, or no context was made.");
        }
        return page_.take();
    }

  private:
    bool write(const model::Device& device) {
        const std::optional<LedgerPage> ledger = ledger_page(device, resolver_, at_);
        if (!ledger) {
            return false;
        }
        const std::uint64_t age =
            report_.process.duration_ns - std::min(report_.process.duration_ns, ledger->time_ns);
        page_.heading(
            device_title(device, page_.style().ascii),
            format_bytes(ledger->used) +
                (at_ == LedgerAt::peak
                     ? " in use at the sampled peak, " + format_duration(ledger->time_ns)
                     : " in use at the last sample, " + format_duration(age) + " before the end"));
        Table<std::uint64_t> groups(page_);
        groups.bytes("bytes", std::identity()).share(std::identity(), ledger->used).last("what");
        groups.head();
        for (const LedgerGroup& group : ledger->groups) {
            page_.paragraph(groups.begin(group.bytes), group.title, 0, page_.style().bold());
            lines(group);
        }
        groups.row(ledger->rest, page_.bold("the rest") +
                                     page_.dim("  other processes, and what was not measured"));
        beside(*ledger);
        communicators(*device.ledger);
        witness(*device.ledger, *ledger);
        if (device.ledger->not_measured != 0) {
            page_.line("");
            page_.paragraph("  ", format_plural(device.ledger->not_measured, "call") +
                                      " not measured (time budget used up)" + estimated(*ledger) +
                                      ". MEMLAB_LEDGER=on measures all.");
        }
        page_.warnings(ledger_advice(report_, device, *ledger));
        return true;
    }

    static std::string estimated(const LedgerPage& ledger) {
        std::uint64_t bytes = 0;
        for (const LedgerGroup& group : ledger.groups) {
            for (const LedgerLine& line : group.lines) {
                bytes = model::saturating_add(bytes, line.estimated ? line.bytes : 0);
            }
        }
        return bytes == 0 ? std::string() : ", " + format_bytes(bytes) + " estimated";
    }

    /// The rows of a group: no share, and indented below its title.
    Table<std::uint64_t> details() {
        Table<std::uint64_t> table(page_);
        table.bytes("", std::identity())
            .left("", 8, [](std::uint64_t) { return std::string(); })
            .last("");
        return table;
    }

    void lines(const LedgerGroup& group) {
        const PlaceTextOptions text{page_.style(), options_.working_directory, options_.templates};
        const Table<std::uint64_t> table = details();
        const std::size_t shown = std::min(options_.top, group.lines.size());
        for (std::size_t i = 0; i < shown; ++i) {
            const LedgerLine& line = group.lines[i];
            std::string what = page_.clean(line.what);
            if (what.empty()) {
                what = describe_place(line.place, "device", line.api, table.last_width(), text);
            }
            std::string notes;
            const auto note = [&](const std::string& more) {
                notes += (notes.empty() ? "" : ", ") + more;
            };
            if (!line.note.empty()) {
                note(line.note);
            }
            if (!line.what.empty() && (!line.place.file.empty() || !line.place.function.empty())) {
                const std::string more = line.other_places ? " and others" : "";
                const std::size_t room = table.last_width() - 3 - more.size();
                Place place = line.place;
                place.through.clear();  // the row's file
                note("by " + describe_place(place, "device", line.api, room, text) + more);
            }
            if (line.estimated || line.count > 1) {
                note(format_plural(line.count, "call"));
            }
            if (line.estimated) {
                note("estimated by the mean of the measured ones");
            }
            if (line.with_earlier) {
                note("includes what was in use before");
            }
            if (line.uncertain) {
                note("uncertain: other memory changed meanwhile");
            }
            table.row(line.bytes, what);
            page_.note_below(table.last_column(), notes);
        }
        if (shown < group.lines.size()) {
            table.only_last(
                page_.dim("[" + format_plural(group.lines.size() - shown, "row") + " more]"));
        }
    }

    void witness(const model::Ledger& ledger, const LedgerPage& shown) {
        page_.line("");
        if (ledger.witnesses.empty()) {
            const bool runs = report_.process.recording || report_.process.ended == "running";
            page_.paragraph("  ", runs ? "NVML was not queried yet."
                                       : "NVML was not queried: the process ended first.");
            return;
        }
        const model::Ledger::Witness& last = ledger.witnesses.back();
        const std::string at = " (at " + format_duration(last.time_ns) + ")";
        if (last.state == "absent") {
            page_.paragraph("  ",
                            "NVML could not be queried: nothing is known about other processes.");
        } else if (last.state == "elsewhere") {
            page_.paragraph("  ", "NVML lists " + format_plural(last.other_processes, "process") +
                                      " with " + format_bytes(last.other_bytes) +
                                      ", but not which of them is this one: its process ids are "
                                      "of another namespace" +
                                      at + ".");
        } else {
            page_.paragraph("  ", "According to NVML, this process has " +
                                      format_bytes(last.own_bytes) + ", others " +
                                      format_bytes(last.other_bytes) + at + "." + told_apart(last));
        }
        for (const model::GroupLimit& limit : last.limits) {
            page_.paragraph("  ", limit_text(limit));
        }
        if (shown.others_in_rows != 0) {
            page_.paragraph("  ", "At least " + format_bytes(shown.others_in_rows) +
                                      " in this process's rows belongs to other processes, which "
                                      "grew while calls were measured.");
        }
    }

    /// The others by their cgroup, with a space before; empty where nothing tells them apart.
    static std::string told_apart(const model::Ledger::Witness& witness) {
        const std::uint64_t told =
            model::saturating_add(witness.group_processes, witness.foreign_processes);
        if (told == 0) {
            return {};
        }
        std::string text;
        const auto add = [&](std::uint64_t count, std::uint64_t bytes, const char* which) {
            if (count != 0) {
                text += (text.empty() ? " Of the others " : ", ") +
                        format_plural(count, "process") + " with " + format_bytes(bytes) + which;
            }
        };
        const std::uint64_t bytes =
            model::saturating_add(witness.group_bytes, witness.foreign_bytes);
        add(witness.group_processes, witness.group_bytes, " of this process's cgroup");
        add(witness.foreign_processes, witness.foreign_bytes, " of other cgroups or containers");
        add(witness.other_processes - std::min(witness.other_processes, told),
            witness.other_bytes - std::min(witness.other_bytes, bytes), " of an unknown cgroup");
        return text + ".";
    }

    /// What a cgroup may have, and has.
    std::string limit_text(const model::GroupLimit& limit) const {
        const bool by_nvml = limit.source == "nvml";
        std::string text = "The cgroup " + page_.clean(limit.group) + " has " +
                           format_bytes(limit.used_bytes) + " of this GPU";
        text += !limit.limit_bytes
                    ? std::string(" and no limit")
                    : " of the " + format_bytes(*limit.limit_bytes) + " that it may have";
        text += by_nvml ? " (by NVML)" : " (dmem.max)";
        if (limit.guaranteed_bytes != 0) {
            text += ", " + format_bytes(limit.guaranteed_bytes) + " of it guaranteed";
        }
        return text + ".";
    }

    void communicators(const model::Ledger& ledger) {
        if (ledger.communicators.empty()) {
            return;
        }
        page_.line("");
        page_.paragraph("  ",
                        "NCCL's communicators, by ncclCommMemStats; the memory is part of what was "
                        "allocated:");
        std::vector<model::Ledger::Communicator> list = ledger.communicators;
        std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) {
            return a.max_total_bytes > b.max_total_bytes;
        });
        const Table<std::uint64_t> table = details();
        const std::size_t shown = std::min(options_.top, list.size());
        for (std::size_t i = 0; i < shown; ++i) {
            const model::Ledger::Communicator& each = list[i];
            std::string what = "communicator " + std::to_string(each.communicator);
            if (each.ranks != 0) {
                what += ", rank " + std::to_string(each.rank) + " of " + std::to_string(each.ranks);
            }
            table.row(each.max_total_bytes, what);
            std::string notes = format_bytes(each.suspendable_bytes) + " of " +
                                format_bytes(each.total_bytes) + " can be suspended";
            notes += each.suspended ? ", and is" : "";
            notes += each.ended ? ", when it ended" : "";
            page_.note_below(table.last_column(), notes);
        }
        if (shown < list.size()) {
            table.only_last(
                page_.dim("[" + format_plural(list.size() - shown, "communicator") + " more]"));
        }
    }

    void beside(const LedgerPage& ledger) {
        if (ledger.managed != 0) {
            page_.paragraph("  ", format_bytes(ledger.managed) +
                                      " of managed memory in addition: the part that is on the "
                                      "GPU is in the rest.");
        }
        if (ledger.imports != 0) {
            page_.paragraph("  ", format_bytes(ledger.imports) +
                                      " are mapped from other processes, which hold them.");
        }
    }

    const model::Report& report_;
    Resolver& resolver_;
    const LedgerAt at_;
    const ViewOptions& options_;
    Page page_;
};

ordered_json limits_json(const std::vector<model::GroupLimit>& limits) {
    ordered_json out = ordered_json::array();
    for (const model::GroupLimit& limit : limits) {
        out.push_back({{"source", limit.source},
                       {"group", limit.group},
                       {"limit_bytes", limit.limit_bytes ? ordered_json(*limit.limit_bytes)
                                                         : ordered_json(nullptr)},
                       {"used_bytes", limit.used_bytes},
                       {"guaranteed_bytes", limit.guaranteed_bytes},
                       {"capacity_bytes", limit.capacity_bytes}});
    }
    return out;
}

ordered_json communicators_json(const model::Ledger& ledger) {
    ordered_json out = ordered_json::array();
    for (const model::Ledger::Communicator& each : ledger.communicators) {
        out.push_back({{"communicator", each.communicator},
                       {"rank", each.rank},
                       {"ranks", each.ranks},
                       {"time_ns", each.time_ns},
                       {"total_bytes", each.total_bytes},
                       {"persistent_bytes", each.persistent_bytes},
                       {"suspendable_bytes", each.suspendable_bytes},
                       {"max_total_bytes", each.max_total_bytes},
                       {"suspended", each.suspended},
                       {"ended", each.ended}});
    }
    return out;
}

ordered_json witnesses_json(const model::Ledger& ledger) {
    ordered_json out = ordered_json::array();
    for (const model::Ledger::Witness& witness : ledger.witnesses) {
        out.push_back({{"time_ns", witness.time_ns},
                       {"state", witness.state},
                       {"own_bytes", witness.own_bytes},
                       {"other_bytes", witness.other_bytes},
                       {"other_processes", witness.other_processes},
                       {"group_bytes", witness.group_bytes},
                       {"group_processes", witness.group_processes},
                       {"foreign_bytes", witness.foreign_bytes},
                       {"foreign_processes", witness.foreign_processes},
                       {"limits", limits_json(witness.limits)}});
    }
    return out;
}

ordered_json page_json(const LedgerPage& page) {
    ordered_json groups = ordered_json::array();
    for (const LedgerGroup& group : page.groups) {
        ordered_json rows = ordered_json::array();
        for (const LedgerLine& line : group.lines) {
            rows.push_back({{"what", text_or_null(line.what)},
                            {"place", place_json(line.place)},
                            {"api", text_or_null(line.api)},
                            {"bytes", line.bytes},
                            {"count", line.count},
                            {"uncertain", line.uncertain},
                            {"with_earlier", line.with_earlier},
                            {"estimated", line.estimated}});
        }
        groups.push_back({{"kind", group.kind},
                          {"title", group.title},
                          {"bytes", group.bytes},
                          {"rows", std::move(rows)}});
    }
    return {{"time_ns", page.time_ns},       {"used_bytes", page.used},
            {"rest_bytes", page.rest},       {"others_in_rows_bytes", page.others_in_rows},
            {"managed_bytes", page.managed}, {"import_bytes", page.imports},
            {"groups", std::move(groups)}};
}

}  // namespace

std::string render_ledger_text(const model::Report& report, Resolver& resolver, LedgerAt at,
                               const ViewOptions& options) {
    return LedgerText(report, resolver, at, options).write();
}

std::string render_ledger_json(const std::string& file, const model::Report& report,
                               Resolver& resolver, const ViewOptions& options) {
    ordered_json devices = ordered_json::array();
    for (const model::Device& device : report.devices) {
        const std::optional<LedgerPage> peak = is_chosen(device, options)
                                                   ? ledger_page(device, resolver, LedgerAt::peak)
                                                   : std::nullopt;
        const std::optional<LedgerPage> end =
            peak ? ledger_page(device, resolver, LedgerAt::end) : std::nullopt;
        if (end) {
            devices.push_back({{"index", device.index},
                               {"name", device.name},
                               {"moments", {{"peak", page_json(*peak)}, {"end", page_json(*end)}}},
                               {"not_measured", device.ledger->not_measured},
                               {"witnesses", witnesses_json(*device.ledger)},
                               {"communicators", communicators_json(*device.ledger)},
                               {"advice", ledger_advice(report, device, *peak)}});
        }
    }
    return json_text({{"file", file}, {"devices", std::move(devices)}});
}

}  // namespace memlab::report
