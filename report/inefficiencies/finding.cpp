#include "report/inefficiencies/finding.hpp"

#include "model/bounded_sum.hpp"
#include "trace/event.hpp"

namespace memlab::report {

const std::vector<std::string>& pattern_names() {
    static const std::vector<std::string> names = {"leak",
                                                   "late_deallocation",
                                                   "over_long_life",
                                                   "fragmentation_source",
                                                   "late_reuse",
                                                   "oversized_alignment",
                                                   "unused_allocation",
                                                   "reference_cycle",
                                                   "redundant_allocation",
                                                   "temporary_churn",
                                                   "unused_reserve"};
    return names;
}

const std::string& name_of(Pattern pattern) {
    return pattern_names().at(static_cast<std::size_t>(pattern));
}

model::Collected sum_collected(const model::Report& report, const std::vector<std::size_t>& sites) {
    model::Collected sum;
    for (const std::size_t index : sites) {
        const model::Collected of_site = report.sites[index].collected.value_or(model::Collected());
        model::add_to(sum.count, of_site.count);
        model::add_to(sum.bytes, of_site.bytes);
        model::add_to(sum.at_peak_count, of_site.at_peak_count);
        model::add_to(sum.at_peak_bytes, of_site.at_peak_bytes);
    }
    return sum;
}

const char* name_of(Confidence confidence) {
    static constexpr const char* names[] = {"possible", "likely", "certain"};
    return trace::name_in<Confidence::certain>(names, confidence, "possible");
}

}  // namespace memlab::report
