#include "report/html/moment_recorder.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

namespace memlab::report {

SiteSlots::SiteSlots(const model::Report& report, const SiteCategories& categories,
                     const HistoryLimits& limits, History& history)
    : categories_(categories),
      history_(history),
      most_parts_(limits.parts),
      of_site_(report.sites.size(), none) {
    history.nn_modules = page_nn_modules(report);
    for (const model::Device& device : report.devices) {
        devices_.insert(device.index);
    }
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < report.sites.size(); ++i) {
        if (devices_.contains(report.sites[i].device)) {
            order.push_back(i);
        }
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return std::tie(report.sites[a].peak_bytes, report.sites[a].bytes) >
               std::tie(report.sites[b].peak_bytes, report.sites[b].bytes);
    });
    for (std::size_t i = 0; i < order.size(); ++i) {
        const model::Site& site = report.sites[order[i]];
        if (i < limits.sites) {
            of_site_[order[i]] = follow({order[i], std::nullopt});
            continue;
        }
        of_site_[order[i]] = sum({site.device, site.kind, categories.at(order[i]), std::nullopt});
        History::Rest& rest = history.rest[slots_[of_site_[order[i]]].at];
        rest.allocations += site.count;
        rest.allocated_bytes += site.bytes;
        ++rest.sites;
    }
}

std::size_t SiteSlots::slot(std::size_t index, const trace::Site& site) {
    if (index >= of_site_.size()) {
        of_site_.resize(index + 1, none);
        if (devices_.contains(site.device)) {
            of_site_[index] =
                sum({site.device, trace::name_of(site.kind), std::nullopt, std::nullopt});
        }
    }
    return of_site_[index];
}

std::size_t SiteSlots::slot(const trace::NnModuleStats& modules, std::uint32_t number,
                            const trace::Site& site) {
    const trace::NnModuleHolding& holding = modules.holdings()[number - 1];
    const std::size_t own = slot(holding.site, site);
    const auto nn_module = history_.nn_modules.of_code(modules.code_of(number));
    if (own == none || !nn_module) {
        return own;
    }
    const History::Followed part{holding.site, nn_module};
    if (const auto known = of_part_.find(part); known != of_part_.end()) {
        return known->second;
    }
    if (slots_[own].summed || most_parts_ == 0) {
        return sum({site.device, trace::name_of(site.kind), category_of(holding.site), nn_module});
    }
    --most_parts_;
    return of_part_[part] = follow(part);
}

History::Holder& SiteSlots::holder(std::size_t slot) {
    const Slot& of = slots_[slot];
    return of.summed ? history_.rest[of.at].holder : history_.holders[of.at];
}

std::size_t SiteSlots::follow(const History::Followed& followed) {
    slots_.push_back({false, history_.sites.size()});
    history_.sites.push_back(followed);
    history_.holders.emplace_back();
    return slots_.size() - 1;
}

std::size_t SiteSlots::sum(const History::RestKey& key) {
    const auto [at, is_new] = of_rest_.try_emplace(key, slots_.size());
    if (is_new) {
        slots_.push_back({true, history_.rest.size()});
        history_.rest.push_back({key, 0, 0, 0, {}});
    }
    return at->second;
}

MomentRecorder::MomentRecorder(const model::Report& report, const SiteCategories& categories,
                               const HistoryLimits& limits, std::uint64_t stretch_ns,
                               History& history)
    : categories_(categories),
      history_(history),
      slots_(report, categories, limits, history),
      stretch_ns_(std::max<std::uint64_t>(stretch_ns, 1)),
      end_ns_(stretch_ns_),
      now_(slots_.count()) {
    history.moment_ns = stretch_ns_;
    for (std::size_t i = 0; i < categories.size(); ++i) {
        if (categories[i]) {
            const auto [at, is_new] = category_at_.try_emplace(
                {report.sites[i].device, *categories[i]}, history.categories.size());
            if (is_new) {
                history.categories.push_back({report.sites[i].device, *categories[i], 0, 0});
            }
        }
    }
    category_bytes_.resize(history.categories.size());
    keep(0, {}, std::nullopt);
}

void MomentRecorder::update(const trace::Aggregator& state) {
    if (touched_.empty()) {
        return;
    }
    ++change_;
    for (High& high : highs_) {
        high.within = high.within || high.time_ns == state.duration_ns();
    }
    for (const Touched& touched : touched_) {
        take(touched.site, state.sites()[touched.site]);
        if (touched.nn_modules != 0) {
            take(touched.nn_modules, state);
        }
    }
    touched_.clear();
    if (moving_) {
        take_moving(state);
    }
    serial_ = state.latest_serial();
    note_categories(state.duration_ns());
}

void MomentRecorder::move(const trace::Live& live, std::uint32_t to) {
    touch(live);
    touched_.push_back({live.site, to});
    moving_ = {touched_[touched_.size() - 2], touched_.back(), live.size, live.serial};
}

/// Keeps what finish() corrects, unless the allocation is younger than all moments.
void MomentRecorder::take_moving(const trace::Aggregator& state) {
    const Moving moving = *std::exchange(moving_, std::nullopt);
    const auto is_in = [&](const auto& moment) { return moment.serial >= moving.serial; };
    if ((written_.empty() || written_.back().second < moving.serial) &&
        std::none_of(moments_.begin(), moments_.end(), is_in) &&
        std::none_of(highs_.begin(), highs_.end(), is_in)) {
        return;
    }
    const auto slot = [&](const Touched& of) {
        const trace::Site& site = state.sites()[of.site];
        return of.nn_modules == 0 ? slots_.slot(of.site, site)
                                  : slots_.slot(state.nn_modules(), of.nn_modules, site);
    };
    const std::size_t from = slot(moving.from);
    const std::size_t to = slot(moving.to);
    if (from != to) {
        moved_.push_back({from, to, moving.bytes, moving.serial, change_});
    }
}

void MomentRecorder::finish() {
    Corrections corrections;
    for (const Moved& moved : moved_) {
        const auto begin =
            std::partition_point(written_.begin(), written_.end(),
                                 [&](const auto& at) { return at.second < moved.serial; });
        const auto end = std::partition_point(
            begin, written_.end(), [&](const auto& at) { return at.first < moved.change; });
        const auto first = static_cast<std::size_t>(begin - written_.begin());
        const auto behind = static_cast<std::size_t>(end - written_.begin());
        const auto shift = [&](std::size_t slot, std::size_t moment, bool more) {
            Held& held = corrections[slot][moment];
            held.bytes += more ? moved.bytes : -moved.bytes;
            held.blocks += more ? 1 : ~std::uint64_t{0};
        };
        shift(moved.to, first, true);
        shift(moved.to, behind, false);
        shift(moved.from, first, false);
        shift(moved.from, behind, true);
    }
    for (const auto& [slot, held] : corrections) {
        correct(slots_.holder(slot).changes, held, written_.size());
    }
}

void MomentRecorder::correct(std::vector<History::Change>& changes,
                             const std::map<std::size_t, Held>& corrections, std::size_t moments) {
    std::vector<History::Change> corrected;
    History::Change held;  // as it was
    Held more;
    auto change = changes.begin();
    auto correction = corrections.begin();
    while (change != changes.end() || correction != corrections.end()) {
        std::size_t at = change != changes.end() ? change->moment : moments;
        at = correction != corrections.end() ? std::min(at, correction->first) : at;
        if (at == moments) {
            break;
        }
        if (change != changes.end() && change->moment == at) {
            held = *change++;
        }
        if (correction != corrections.end() && correction->first == at) {
            more.bytes += correction->second.bytes;
            more.blocks += correction++->second.blocks;
        }
        const History::Change now{static_cast<std::uint32_t>(at),
                                  static_cast<std::uint32_t>(held.blocks + more.blocks),
                                  held.bytes + more.bytes};
        if (corrected.empty()
                ? now.bytes != 0 || now.blocks != 0
                : corrected.back().bytes != now.bytes || corrected.back().blocks != now.blocks) {
            corrected.push_back(now);
        }
    }
    changes = std::move(corrected);
}

void MomentRecorder::update_all(const trace::Aggregator& state) {
    touched_.clear();
    for (std::size_t i = 0; i < state.sites().size(); ++i) {
        touched_.push_back({static_cast<std::uint32_t>(i), 0});
    }
    const auto& holdings = state.nn_modules().holdings();
    for (std::size_t i = 0; i < holdings.size(); ++i) {
        touched_.push_back({holdings[i].site, static_cast<std::uint32_t>(i + 1)});
    }
    update(state);
}

void MomentRecorder::take(std::uint32_t index, const trace::Site& site) {
    if (index >= of_site_.size()) {
        of_site_.resize(std::size_t{index} + 1);
    }
    Held& before = of_site_[index];
    const Held after{site.live_bytes, site.live_count};
    const std::size_t slot = slots_.slot(index, site);
    if (slot == SiteSlots::none || before == after) {
        return;
    }
    add(slot, before, after);
    add_to_category(index, site, after.bytes - before.bytes);
    before = after;
}

/// Its bytes are among those of its site, which has been taken.
void MomentRecorder::take(std::uint32_t number, const trace::Aggregator& state) {
    const trace::NnModuleHolding& holding = state.nn_modules().holdings()[number - 1];
    if (number > of_part_.size()) {
        of_part_.resize(number);
    }
    Held& before = of_part_[number - 1];
    const Held after{holding.live_bytes, holding.live_count};
    const trace::Site& site = state.sites()[holding.site];
    const std::size_t slot = slots_.slot(state.nn_modules(), number, site);
    const std::size_t own = slots_.slot(holding.site, site);
    if (slot != own && !(before == after)) {
        add(slot, before, after);
        add(own, after, before);
    }
    before = after;
}

void MomentRecorder::add(std::size_t slot, const Held& before, const Held& after) {
    if (slot >= now_.size()) {
        now_.resize(slot + 1);
    }
    save(slot);
    // A smaller number is added as its complement.
    now_[slot].bytes += after.bytes - before.bytes;
    now_[slot].blocks += after.blocks - before.blocks;
}

/// What the slot held at the latest high of each device.
void MomentRecorder::save(std::size_t slot) {
    for (High& high : highs_) {
        if (slot >= high.seen.size()) {
            high.seen.resize(now_.size());
            high.saved.resize(now_.size());
        }
        if (high.seen[slot] != high.number) {
            high.seen[slot] = high.number;
            high.saved[slot] = now_[slot];
        }
    }
}

void MomentRecorder::add_to_category(std::uint32_t index, const trace::Site& site,
                                     std::uint64_t bytes) {
    if (index >= categories_.size() || !categories_[index] ||
        !trace::counts_as_device_memory(site.kind)) {
        return;
    }
    if (const auto at = category_at_.find({site.device, *categories_[index]});
        at != category_at_.end()) {
        category_bytes_[at->second] += bytes;
    }
}

void MomentRecorder::note_categories(std::uint64_t now_ns) {
    for (std::size_t i = 0; i < category_bytes_.size(); ++i) {
        History::CategoryMost& most = history_.categories[i];
        if (category_bytes_[i] > most.bytes) {
            most.bytes = category_bytes_[i];
            most.time_ns = now_ns;
        }
    }
}

void MomentRecorder::set_allocated(std::size_t device, std::uint64_t bytes, std::uint64_t now_ns) {
    High& high = highs_[device];
    high.changed = high.changed || bytes != high.now;
    high.now = bytes;
    if (bytes > high.bytes) {
        rise(high, now_ns);
    }
}

void MomentRecorder::rise(High& high, std::uint64_t time_ns) {
    high.bytes = high.now;
    high.time_ns = time_ns;
    high.change = change_;
    high.serial = serial_;
    high.within = false;
    ++high.number;
}

MomentRecorder::State MomentRecorder::state_now() {
    if (state_ == nullptr || state_of_ != change_) {
        state_ = std::make_shared<const std::vector<Held>>(now_);
        state_of_ = change_;
    }
    return state_;
}

void MomentRecorder::keep(std::uint64_t time_ns, std::vector<std::size_t> events,
                          std::optional<History::Map> map) {
    moments_.push_back(
        {time_ns, change_, serial_, state_now(), false, std::move(events), std::move(map)});
}

void MomentRecorder::end_stretch() {
    // A device that did not change held as much at any moment of the stretch.
    bool any = false;
    for (std::size_t i = 0; i < highs_.size(); ++i) {
        const High& high = highs_[i];
        if (!high.changed && (any || i + 1 < highs_.size())) {
            continue;
        }
        any = true;
        std::vector<Held> state = now_;
        for (std::size_t slot = 0; slot < high.seen.size(); ++slot) {
            if (high.seen[slot] == high.number) {
                state[slot] = high.saved[slot];
            }
        }
        moments_.push_back({high.time_ns,
                            high.change,
                            high.serial,
                            std::make_shared<const std::vector<Held>>(std::move(state)),
                            high.within,
                            {},
                            {}});
    }
    std::stable_sort(moments_.begin(), moments_.end(), [](const Moment& a, const Moment& b) {
        return std::tie(a.time_ns, a.change) < std::tie(b.time_ns, b.change);
    });
    for (std::size_t i = 0; i < moments_.size(); ++i) {
        const bool same = i > 0 && moments_[i].time_ns == moments_[i - 1].time_ns &&
                          moments_[i].change == moments_[i - 1].change;
        if (!same) {
            history_.moments.push_back(moments_[i].time_ns);
            written_.emplace_back(moments_[i].change, moments_[i].serial);
        }
        const std::size_t number = history_.moments.size() - 1;
        if (moments_[i].within && (history_.within.empty() || history_.within.back() != number)) {
            history_.within.push_back(number);
        }
        write(moments_[i]);
    }
    moments_.clear();
    for (High& high : highs_) {
        high.bytes = high.now;
        high.changed = false;
        rise(high, end_ns_);
    }
    end_ns_ = end_ns_ > std::numeric_limits<std::uint64_t>::max() - stretch_ns_
                  ? std::numeric_limits<std::uint64_t>::max()
                  : end_ns_ + stretch_ns_;
}

void MomentRecorder::skip_to(std::uint64_t time_ns) {
    end_stretch();
    const std::uint64_t begin = time_ns - time_ns % stretch_ns_;
    end_ns_ = std::max(end_ns_, begin > std::numeric_limits<std::uint64_t>::max() - stretch_ns_
                                    ? std::numeric_limits<std::uint64_t>::max()
                                    : begin + stretch_ns_);
    for (High& high : highs_) {
        rise(high, time_ns);
    }
}

/// As the latest of History::moments.
void MomentRecorder::write(Moment& moment) {
    const std::size_t number = history_.moments.size() - 1;
    for (const std::size_t event : moment.events) {
        history_.events[event].moment = number;
    }
    if (moment.map) {
        moment.map->moment = number;
        history_.maps.push_back(std::move(*moment.map));
    }
    constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
    for (std::size_t slot = 0; slot < moment.state->size(); ++slot) {
        const Held& held = (*moment.state)[slot];
        const auto blocks = static_cast<std::uint32_t>(std::min(held.blocks, most));
        std::vector<History::Change>& changes = slots_.holder(slot).changes;
        if (changes.empty()
                ? held.bytes != 0 || blocks != 0
                : changes.back().bytes != held.bytes || changes.back().blocks != blocks) {
            changes.push_back({static_cast<std::uint32_t>(number), blocks, held.bytes});
        }
    }
}

}  // namespace memlab::report
