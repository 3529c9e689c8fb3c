#include "report/views/diff_calls.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "report/summary/place_text.hpp"
#include "report/text/names.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report {

namespace {

using Names = std::vector<std::string>;

/// For each of `rows`, which are in ascending order: the positions at which it parts from any
/// other. Rows that are equal to the end of one part there, if the other goes on.
std::vector<std::set<std::size_t>> partings(const std::vector<const Names*>& rows) {
    std::vector<std::size_t> common(rows.size());  // with the row before
    for (std::size_t i = 1; i < rows.size(); ++i) {
        const auto ends = std::mismatch(rows[i - 1]->begin(), rows[i - 1]->end(), rows[i]->begin(),
                                        rows[i]->end());
        common[i] = static_cast<std::size_t>(ends.second - rows[i]->begin());
    }
    // In this order, two rows have as much in common as the neighbours between them that have
    // least.
    std::vector<std::set<std::size_t>> out(rows.size());
    const auto add = [&](std::size_t row, std::size_t position) {
        if (position < rows[row]->size()) {
            out[row].insert(position);
        }
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
        std::size_t least = SIZE_MAX;
        for (std::size_t k = i + 1; k < rows.size() && least != 0; ++k) {
            least = std::min(least, common[k]);
            add(i, least);
        }
        least = SIZE_MAX;
        for (std::size_t k = i; k > 0 && least != 0; --k) {
            least = std::min(least, common[k]);
            add(i, least);
        }
    }
    return out;
}

}  // namespace

std::vector<std::vector<TellingCall>> CallTexts::telling_calls(
    const SiteChanges& changes, const std::vector<std::string>& rows) const {
    std::map<std::string, std::vector<std::size_t>> same;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        same[rows[i]].push_back(i);
    }
    std::vector<std::vector<TellingCall>> out(rows.size());
    for (const auto& [row, sites] : same) {
        if (sites.size() == 1) {
            continue;
        }
        for (const bool exact : {false, true}) {
            std::vector<std::pair<Names, std::size_t>> named;
            for (const std::size_t i : sites) {
                const SiteDiff& site = changes.sites[i];
                Names names;
                for (std::size_t k = 0; k < site.calls.size(); ++k) {
                    names.push_back(exact ? exact_name(site.calls[k]) : name(site, k, true));
                }
                named.emplace_back(std::move(names), i);
            }
            std::sort(named.begin(), named.end());
            std::vector<const Names*> in_order;
            in_order.reserve(named.size());
            for (const auto& each : named) {
                in_order.push_back(&each.first);
            }
            const auto positions = partings(in_order);
            for (std::size_t i = 0; i < named.size(); ++i) {
                std::vector<TellingCall>& telling = out[named[i].second];
                if (!exact || telling.empty()) {
                    for (const std::size_t position : positions[i]) {
                        telling.push_back({position, exact});
                    }
                }
            }
        }
    }
    return out;
}

std::string CallTexts::text(const SiteDiff& site, const std::vector<TellingCall>& telling,
                            std::size_t width) const {
    std::size_t first = 0;  // of the telling calls that fit
    while (first + 1 < telling.size() && display_width(rest(site, telling, first, 0)) > width) {
        ++first;
    }
    std::string out;
    std::string tail = rest(site, telling, first, 0);
    for (std::size_t next = 0; next < site.calls.size(); ++next) {
        const bool tells = first < telling.size() && telling[first].index == next;
        std::string longer =
            out + arrow() +
            (tells && telling[first].exact ? exact_name(site.calls[next]) : name(site, next, true));
        std::string after = rest(site, telling, first + (tells ? 1 : 0), next + 1);
        if (display_width(longer) + display_width(after) > width) {
            break;
        }
        first += tells ? 1 : 0;
        out = std::move(longer);
        tail = std::move(after);
    }
    const std::string all = out + tail;
    return display_width(all) <= width
               ? all
               : arrow() + shorten_begin(all.substr(arrow().size()),
                                         width - std::min(width, display_width(arrow())),
                                         options_.style.ascii);
}

/// The telling calls from `first` on, where those before `next` are shown.
std::string CallTexts::rest(const SiteDiff& site, const std::vector<TellingCall>& telling,
                            std::size_t first, std::size_t next) const {
    std::string out;
    for (std::size_t i = first; i < telling.size(); ++i) {
        const TellingCall& call = telling[i];
        if (call.index != next) {
            out += arrow() + (options_.style.ascii ? "..." : "…");
        }
        out += arrow() + (call.exact ? exact_name(site.calls[call.index])
                                     : name(site, call.index, call.index == next));
        next = call.index + 1;
    }
    return out;
}

/// A caller's function, else its location: "+0x12f0" if the call before is shown and in the same
/// module.
std::string CallTexts::name(const SiteDiff& site, std::size_t call, bool after_previous) const {
    const Place& place = site.calls[call];
    const bool ascii = options_.style.ascii;
    if (!place.function.empty()) {
        std::string function = without_anonymous(place.function);
        return printable(options_.templates ? function : collapse_templates(function, ascii),
                         ascii);
    }
    const std::string where = location_text(place, options_.working_directory);
    const std::string& before = call == 0 ? site.place.module : site.calls[call - 1].module;
    const bool same = after_previous && place.file.empty() && place.module == before;
    return printable(same && !before.empty() ? where.substr(base_name(place.module).size()) : where,
                     ascii);
}

/// With all that rows are matched by.
std::string CallTexts::exact_name(const Place& call) const {
    const std::string where = base_name(call.file.empty() ? call.module : call.file);
    return printable(call.function.empty() ? location_text(call, options_.working_directory)
                                           : call.function + " (" + where + ")",
                     options_.style.ascii);
}

}  // namespace memlab::report
