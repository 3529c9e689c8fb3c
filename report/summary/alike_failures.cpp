#include "report/summary/alike_failures.hpp"

#include <cstring>
#include <map>
#include <string>

#include "report/summary/place_text.hpp"

namespace memlab::report {

namespace {

/// A text without its figures.
std::string without_figures(const std::string& text) {
    std::string words;
    for (std::size_t i = 0; i < text.size();) {
        const bool digit = text[i] >= '0' && text[i] <= '9';
        if (!digit) {
            words += text[i++];
            continue;
        }
        while (i < text.size() &&
               (text[i] == '.' || text[i] == ',' || (text[i] >= '0' && text[i] <= '9'))) {
            ++i;
        }
        // A size's unit may differ, too.
        for (const char* const unit : {" B", " KiB", " MiB", " GiB", " TiB"}) {
            if (text.compare(i, std::strlen(unit), unit) == 0) {
                i += std::strlen(unit);
                break;
            }
        }
        words += '#';
    }
    return words;
}

}  // namespace

std::vector<AlikeFailures> group_failures(const Summary& summary) {
    std::vector<AlikeFailures> groups;
    std::map<std::string, std::size_t> known;
    for (std::size_t i = 0; i < summary.ooms.size(); ++i) {
        const OomSummary& each = summary.ooms[i];
        const model::Oom& oom = *each.oom;
        const std::string key = std::to_string(oom.device) + '\n' + std::to_string(oom.error) +
                                '\n' + oom.api + '\n' + oom.kind + '\n' +
                                location_text(each.place, "") + '\n' + each.place.function + '\n' +
                                without_figures(each.explanation);
        const auto [found, is_new] = known.try_emplace(key, groups.size());
        if (is_new) {
            groups.emplace_back();
        }
        groups[found->second].ooms.push_back(i);
    }
    return groups;
}

}  // namespace memlab::report
