// Checkpoints: everything that the aggregator knows, as records. An aggregator that was restored
// from one continues exactly as the one that it was made from: the tests compare reports made with
// a checkpoint at any record with those made without.
//
// What follows from other members (indexes, free slots) is rebuilt, and every index is checked: the
// checkpoint may come from a damaged or hostile file.
#include <algorithm>

#include "trace/aggregate/aggregator.hpp"
#include "trace/aggregate/state.hpp"

namespace memlab::trace {

void Aggregator::checkpoint(RecordSink& to, TextReplacer* texts) const {
    Checkpoint begin;
    begin.time_ns = now_;
    begin.events = event_count_;
    to.on(begin);
    if (has_process_) {
        to.on(process_);
    }
    for (const OptionValue& option : options_) {
        to.on(option);
    }
    StringDef string;
    for (string.id = 1; string.id < strings_.size(); ++string.id) {
        string.text = strings_[string.id];
        to.on(string);
    }
    for (std::size_t id = 1; id < modules_.size(); ++id) {
        to.on(modules_[id]);
    }
    for (std::size_t id = 1; id < python_frames_.size(); ++id) {
        to.on(python_frames_[id]);
    }
    StackDef stack;
    for (stack.id = 1; stack.id < stacks_.size(); ++stack.id) {
        const StackFrames& of = stacks_[stack.id];
        stack.truncated = of.truncated;
        stack.frames.clear();
        for (const std::uint32_t frame : of.frames) {
            stack.frames.push_back(frames_[frame]);
        }
        to.on(stack);
    }
    for (const NnModuleStackDef& of : nn_modules_.stacks()) {
        to.on(of);
    }
    nn_modules_.for_each_name([&to](const NnModuleName& name) { to.on(name); });
    for (const auto& device : devices_) {
        if (device != nullptr) {
            to.on(device->info);
        }
    }
    for (const ContextTotals& context : contexts_) {
        to.on(context.info);
    }
    StateWriter writer(to, texts);
    state(*this, writer);
    writer.finish();
}

template <typename Self, typename Archive>
void Aggregator::state(Self& self, Archive& archive) {
    archive(self.max_split_size_);
    for (const auto& device : self.devices_) {
        if (device != nullptr) {
            archive(*device);
        }
    }
    for (auto& context : self.contexts_) {
        archive(context);
    }
    archive(self.thread_names_, self.sites_, self.live_, self.latest_, self.next_serial_,
            self.ooms_, self.oom_count_, self.marks_, self.mark_count_, self.scopes_, self.steps_,
            self.labels_, self.missed_);
    bool covered = self.coverage_.has_value();
    archive(covered);
    if constexpr (Archive::reading) {
        if (covered) {
            archive.record(self.coverage_.emplace());
        }
    } else if (covered) {
        archive.record(*self.coverage_);
    }
    archive(self.bypasses_, self.bypassed_count_, self.bypassed_bytes_, self.integrity_,
            self.event_count_, self.now_);
    archive.record(self.end_);
    if (archive.version() >= 2) {
        archive(self.collected_);
    }
    if (archive.version() >= 5) {
        bool stopped = self.log_stopped_ns_.has_value();
        std::uint64_t stopped_ns = self.log_stopped_ns_.value_or(0);
        archive(stopped, stopped_ns, self.bytes_so_far_, self.latest_event_ns_);
        if constexpr (Archive::reading) {
            self.log_stopped_ns_ = stopped ? std::optional(stopped_ns) : std::nullopt;
        }
    }
    if (archive.version() >= 7) {
        archive(self.nn_modules_);
    }
}

void Aggregator::reset() {
    process_ = ProcessInfo();
    has_process_ = false;
    options_.clear();
    max_split_size_.reset();
    devices_.clear();
    contexts_.clear();
    strings_.assign(1, {});
    modules_.assign(1, {});
    python_frames_.assign(1, {});
    stacks_.assign(1, {});
    frames_.clear();
    frame_index_.clear();
    thread_names_.clear();
    sites_.clear();
    site_index_.clear();
    collected_.clear();
    live_ = LiveTable();
    latest_.clear();
    latest_index_.clear();
    latest_used_ = 0;
    next_serial_ = 0;
    ooms_.clear();
    oom_count_ = 0;
    marks_.clear();
    mark_count_ = 0;
    latest_mark_.reset();
    scopes_ = ScopeStats();
    steps_ = StepStats();
    step_anchor_.reset();
    labels_ = LabelStats();
    nn_modules_ = NnModuleStats();
    missed_.clear();
    missed_index_.clear();
    coverage_.reset();
    bypasses_.clear();
    bypassed_count_ = 0;
    bypassed_bytes_ = 0;
    integrity_ = Integrity();
    event_count_ = 0;
    now_ = 0;
    end_ = End();
    log_stopped_ns_.reset();
    bytes_so_far_ = 0;
    latest_event_ns_ = 0;
}

void Aggregator::on(const Checkpoint& record) {
    guarded([&] {
        if (observer_ != nullptr) {
            observer_->interrupted();
        }
        reset();
        restoring_ = std::make_unique<Restoring>();
        restoring_->version = record.version;
        now_ = record.time_ns;
    });
}

void Aggregator::on(const AggregateState& record) {
    guarded([&] {
        if (restoring_ == nullptr) {
            return;
        }
        restoring_->bytes += record.bytes;
        if (record.last) {
            const std::unique_ptr<Restoring> from = std::move(restoring_);
            if (!restore(*from)) {
                reset();
                integrity_.incomplete = true;
            }
        }
    });
}

bool Aggregator::restore(const Restoring& from) {
    StateReader reader(from.bytes, from.version);
    if (from.version == 0 || from.version > Checkpoint::state_version) {
        return false;
    }
    state(*this, reader);
    return reader.ok() && reader.at_end() && is_valid() && scopes_.restored(sites_.size()) &&
           steps_.valid(sites_.size(), scopes_.path_count(), scopes_.family_count()) &&
           labels_.valid(sites_.size(), strings_.size()) && nn_modules_.restored(sites_.size()) &&
           restore_indexes();
}

/// False when something is there twice.
bool Aggregator::restore_indexes() {
    for (std::uint32_t index = 0; index < sites_.size(); ++index) {
        const Site& site = sites_[index];
        const std::uint64_t hash = site_hash(site);
        const auto same = [&](std::uint32_t other) {
            return sites_[other].stack == site.stack && sites_[other].api == site.api &&
                   sites_[other].device == site.device && sites_[other].kind == site.kind;
        };
        if (site_index_.find(hash, same) != HashIndex::none) {
            return false;
        }
        site_index_.insert(hash, index);
    }
    for (std::uint32_t index = 0; index < latest_.size(); ++index) {
        const std::uint64_t hash = HashIndex::mix(latest_[index].thread);
        const auto same = [&](std::uint32_t other) {
            return latest_[other].thread == latest_[index].thread;
        };
        if (latest_index_.find(hash, same) != HashIndex::none) {
            return false;
        }
        latest_index_.insert(hash, index);
    }
    for (std::size_t index = 0; index < missed_.size(); ++index) {
        if (!missed_index_.emplace(missed_[index].reason, index).second) {
            return false;
        }
    }
    live_.for_each([this](std::uint32_t slot, const Live& live) {
        live_[slot].has_label =
            (live.space == AddressSpace::pointer || is_suballocation(live.space)) &&
            labels_.has(live.address);
    });
    return true;
}

/// All so far.
Definitions Aggregator::definitions() const {
    Definitions definitions;
    const auto define_to = [&](Definition what, std::size_t count) {
        definitions.define(what, static_cast<std::uint32_t>(count));
    };
    define_to(Definition::string, strings_.size() - 1);
    define_to(Definition::module, modules_.size() - 1);
    define_to(Definition::python_frame, python_frames_.size() - 1);
    define_to(Definition::stack, stacks_.size() - 1);
    define_to(Definition::context, contexts_.size());
    define_to(Definition::nn_module_stack, nn_modules_.stacks().size());
    for (const auto& device : devices_) {
        if (device != nullptr) {
            definitions.define(Definition::device, device->info.index);
        }
    }
    return definitions;
}

bool Aggregator::is_valid() const {
    const Definitions known = definitions();
    const auto is_device = [this](std::uint32_t index) {
        return index < devices_.size() && devices_[index] != nullptr;
    };
    const auto is_string = [this](std::uint32_t id) { return id < strings_.size(); };
    const auto is_site = [this](std::uint32_t index) { return index < sites_.size(); };
    for (const auto& device : devices_) {
        if (device == nullptr) {
            continue;
        }
        if (!device->timeline.valid(now_) ||
            !device->ledger.valid(strings_.size(), stacks_.size())) {
            return false;
        }
        for (const auto& [kind, curve] : device->kind_curves) {
            if (counts_as_device_memory(kind) || (curve && !curve->valid(now_, sites_.size()))) {
                return false;
            }
        }
        for (const auto& [name, kernel] : device->peak_moment.kernels) {
            if (!is_string(name) || kernel.name != name) {
                return false;
            }
        }
    }
    for (const auto& [thread, name] : thread_names_) {
        if (!is_string(name)) {
            return false;
        }
    }
    for (const Site& site : sites_) {
        if (site.stack >= stacks_.size() || !is_string(site.api) || !is_device(site.device) ||
            !site.lifetimes.valid()) {
            return false;
        }
    }
    if (!collected_.empty() && !is_site(collected_.rbegin()->first)) {
        return false;
    }
    bool live_is_valid = true;
    live_.for_each([&](std::uint32_t, const Live& live) {
        live_is_valid = live_is_valid && is_site(live.site) && live.context <= contexts_.size() &&
                        live.scopes < scopes_.owner_count() &&
                        live.nn_modules <= nn_modules_.holdings().size();
    });
    for (const OomTotals& oom : ooms_) {
        const auto is_holder = [&](const Holder& holder) { return is_site(holder.site); };
        const auto is_label = [&](const SiteLabel& label) {
            return is_site(label.site) && is_string(label.name) && is_string(label.detail);
        };
        if (!known.valid(oom.event) || oom.allocations.size() != oom.holders.sites.size() ||
            !std::all_of(oom.holders.sites.begin(), oom.holders.sites.end(), is_holder) ||
            !std::all_of(oom.labels.begin(), oom.labels.end(), is_label)) {
            return false;
        }
    }
    for (const MarkTotals& mark : marks_) {
        if (!is_string(mark.name) ||
            !std::all_of(mark.devices.begin(), mark.devices.end(),
                         [&](const MarkedDevice& each) { return is_device(each.device); })) {
            return false;
        }
    }
    const auto bypass_is_valid = [&](const BypassTotals& bypass) {
        return is_device(bypass.device) && is_string(bypass.api) && bypass.stack < stacks_.size();
    };
    const auto missed_is_valid = [&](const MissedTotals& each) { return is_string(each.reason); };
    return live_is_valid && ooms_.size() <= max_ooms && marks_.size() <= max_marks &&
           bypasses_.size() <= max_bypasses && thread_names_.size() <= max_thread_names &&
           std::all_of(bypasses_.begin(), bypasses_.end(), bypass_is_valid) &&
           std::all_of(missed_.begin(), missed_.end(), missed_is_valid) &&
           (!coverage_ || known.valid(*coverage_));
}

}  // namespace memlab::trace
