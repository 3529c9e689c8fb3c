#include "report/exports/site_choice.hpp"

namespace memlab::report::exports {

namespace {

std::string name_of(std::uint64_t device, const std::string& kind, std::uint64_t stack,
                    const std::string& api) {
    return std::to_string(device) + ' ' + kind + ' ' + std::to_string(stack) + ' ' + api;
}

}  // namespace

SiteChoice::SiteChoice(const Input& input) : input_(input) {
    if (input.filter.empty()) {
        return;
    }
    const model::Report& report = input.recording.report;
    if (input.filter.by_nn_module()) {
        nn_modules_ = input.filter.nn_modules(report);
        entries_ = NnModuleEntries(report);
    }
    // By nn.Module a report has only what was held at the peak or at the end; the events say it.
    const std::vector<bool> wanted = input.filter.sites_of_any_nn_module(report, input.resolver);
    for (std::size_t index = 0; index < report.sites.size(); ++index) {
        const model::Site& site = report.sites[index];
        if (wanted[index]) {
            taken_.insert(name_of(site.device, site.kind, site.stack, site.api));
        }
    }
}

bool SiteChoice::takes(const trace::Event& event, const std::string& api) {
    if (!input_.wants(event.device)) {
        return false;
    }
    if (input_.filter.empty()) {
        return true;
    }
    if (input_.filter.by_nn_module()) {
        const auto entry = entries_.index(event.nn_modules);
        if (!entry || !nn_modules_[*entry]) {
            return false;
        }
    }
    const Site site = {std::uint64_t{event.stack} << 32 | event.api, event.device,
                       static_cast<std::uint64_t>(event.kind)};
    const auto [at, is_new] = known_.try_emplace(site, false);
    if (is_new) {
        at->second =
            taken_.contains(name_of(event.device, trace::name_of(event.kind), event.stack, api));
    }
    return at->second;
}

}  // namespace memlab::report::exports
