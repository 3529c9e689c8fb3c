#include "report/inefficiencies/finding.hpp"

namespace memlab::report {

const std::vector<std::string>& pattern_names() {
    static const std::vector<std::string> names = {
        "leak",           "late_deallocation",   "over_long_life",    "fragmentation_source",
        "late_reuse",     "oversized_alignment", "unused_allocation", "redundant_allocation",
        "temporary_churn"};
    return names;
}

const std::string& name_of(Pattern pattern) {
    return pattern_names().at(static_cast<std::size_t>(pattern));
}

const char* name_of(Confidence confidence) {
    switch (confidence) {
        case Confidence::possible:
            return "possible";
        case Confidence::likely:
            return "likely";
        case Confidence::certain:
            return "certain";
    }
    return "possible";
}

}  // namespace memlab::report
