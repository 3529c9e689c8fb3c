#include "report/html/page_sites.hpp"

#include <algorithm>

#include "model/bounded_sum.hpp"
#include "report/symbols/category.hpp"

namespace memlab::report {

PageSites::PageSites(const PageRecording& recording, CodeTable& code) : recording_(recording) {
    add_rows(code);
    find_numbers();
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
        if (numbers_[i] >= 0) {
            const model::Site& site = recording.report->sites[i];
            PageSite& of = all_[static_cast<std::size_t>(numbers_[i])];
            model::add_to(of.temporaries, site.temporaries);
            model::add_to(of.leaked_bytes, recording.suppressed[i] ? 0 : site.live_bytes);
        }
    }
    divide_leaks();
}

std::int64_t PageSites::module_number(std::optional<std::size_t> nn_module) {
    if (!nn_module) {
        return -1;
    }
    const auto [at, is_new] =
        module_numbers_.try_emplace(*nn_module, static_cast<std::int64_t>(nn_modules_.size()));
    if (is_new) {
        nn_modules_.push_back(recording_.history.nn_modules.all[*nn_module]);
    }
    return at->second;
}

void PageSites::add_rows(CodeTable& code) {
    const History& history = recording_.history;
    const auto category = [](std::optional<std::size_t> number) {
        return number ? std::string(category_name(static_cast<Category>(*number))) : std::string();
    };
    for (std::size_t i = 0; i < history.sites.size(); ++i) {
        const History::Followed& of = history.sites[i];
        const model::Site& site = recording_.report->sites[of.site];
        followed_.emplace(of, all_.size());
        PageSite row;
        row.stack = code.stack(site.stack);
        row.kind = site.kind;
        row.device = site.device;
        row.category = category(recording_.categories[of.site]);
        row.nn_module = module_number(of.nn_module);
        // What a recording has of the whole run it does not have by nn.Module.
        row.allocations = of.nn_module ? 0 : site.count;
        row.allocated_bytes = of.nn_module ? 0 : site.bytes;
        row.holder = &history.holders[i];
        all_.push_back(std::move(row));
    }
    for (const History::Rest& rest : history.rest) {
        rest_.emplace(rest.of, all_.size());
        PageSite row;
        row.kind = rest.of.kind;
        row.device = rest.of.device;
        row.category = category(rest.of.category);
        row.nn_module = module_number(rest.of.nn_module);
        row.allocations = rest.allocations;
        row.allocated_bytes = rest.allocated_bytes;
        row.holder = &rest.holder;
        all_.push_back(std::move(row));
    }
}

std::optional<std::size_t> PageSites::row_of(const History::Followed& of) const {
    if (const auto known = followed_.find(of); known != followed_.end()) {
        return known->second;
    }
    const model::Site& site = recording_.report->sites[of.site];
    const auto known =
        rest_.find({site.device, site.kind, recording_.categories[of.site], of.nn_module});
    return known != rest_.end() ? std::optional(known->second) : std::nullopt;
}

std::int64_t PageSites::number_of(std::size_t site, std::uint32_t nn_modules) const {
    if (site >= numbers_.size()) {
        return several;
    }
    if (nn_modules != 0) {
        if (const auto module = recording_.history.nn_modules.of_code(nn_modules)) {
            if (const auto row = row_of({site, shown_[*module]})) {
                return static_cast<std::int64_t>(*row);
            }
        }
    }
    return numbers_[site];
}

void PageSites::find_numbers() {
    PageNnModules modules = recording_.history.nn_modules;
    shown_ = modules.to_depth(modules.depth);
    numbers_.assign(recording_.report->sites.size(), several);
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
        if (const auto row = row_of({i, std::nullopt})) {
            numbers_[i] = static_cast<std::int64_t>(*row);
        }
    }
}

void PageSites::divide_leaks() {
    const model::Report& report = *recording_.report;
    const PageNnModules& modules = recording_.history.nn_modules;
    for (std::size_t stack = 0; stack < report.nn_modules.size(); ++stack) {
        const std::size_t module = modules.of_stack[stack];
        for (const model::NnModuleStack::Holding& held : report.nn_modules[stack].sites) {
            if (recording_.suppressed[held.site] || numbers_[held.site] < 0) {
                continue;
            }
            const auto part = row_of({held.site, shown_[module]});
            PageSite& whole = all_[static_cast<std::size_t>(numbers_[held.site])];
            if (part) {
                const std::uint64_t bytes = std::min(whole.leaked_bytes, held.live_bytes);
                whole.leaked_bytes -= bytes;
                model::add_to(all_[*part].leaked_bytes, bytes);
            }
        }
    }
}

}  // namespace memlab::report
