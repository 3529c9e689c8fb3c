#include "report/inefficiencies/query.hpp"

#include <algorithm>

namespace memlab::report {

bool is_wanted(const InefficiencyQuery& query, Pattern pattern) {
    return query.patterns.empty() ||
           std::find(query.patterns.begin(), query.patterns.end(), pattern) != query.patterns.end();
}

Finding make_finding(Pattern pattern, Confidence confidence, const SiteRow& row) {
    Finding finding;
    finding.pattern = pattern;
    finding.confidence = confidence;
    finding.place = row.place;
    finding.kind = row.kind;
    finding.api = row.api;
    finding.sites = row.sites;
    return finding;
}

}  // namespace memlab::report
