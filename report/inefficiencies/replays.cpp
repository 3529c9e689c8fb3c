#include "report/inefficiencies/replays.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <unordered_set>
#include <utility>

namespace memlab::report {

namespace {

using whatif::Allocation;
using whatif::Model;
using whatif::Program;

/// Passes on what it does not change. Its own meter counts nothing: ask the model's.
class ChangedModel : public Model {
  public:
    explicit ChangedModel(std::unique_ptr<Model> model)
        : Model(whatif::unlimited_capacity), model_(std::move(model)) {}

    bool allocate(std::uint32_t id, const Allocation& allocation) override {
        return model_->allocate(id, allocation);
    }
    void free(std::uint32_t id) override { model_->free(id); }
    void complete(std::uint32_t id) override { model_->complete(id); }
    void empty_cache() override { model_->empty_cache(); }
    void synchronize() override { model_->synchronize(); }
    void context_lost(std::uint32_t context) override { model_->context_lost(context); }

    std::uint64_t reserved_peak() const { return model_->meter().reserved_peak(); }

  protected:
    Model& model() { return *model_; }

  private:
    std::unique_ptr<Model> model_;
};

/// Allocates some before all others.
class TheseFirst final : public ChangedModel {
  public:
    TheseFirst(std::unique_ptr<Model> model, const Program& program,
               const std::vector<std::uint32_t>& first)
        : ChangedModel(std::move(model)) {
        for (const std::uint32_t id : first) {
            if (ChangedModel::allocate(id, program.allocations[id])) {
                first_.insert(id);
            }
        }
    }
    bool allocate(std::uint32_t id, const Allocation& allocation) override {
        return first_.contains(id) || ChangedModel::allocate(id, allocation);
    }

  private:
    std::unordered_set<std::uint32_t> first_;
};

/// Of some call stacks the device is done with memory when it is freed.
class DoneAtOnce final : public ChangedModel {
  public:
    DoneAtOnce(std::unique_ptr<Model> model, const Program& program, std::set<std::size_t> stacks)
        : ChangedModel(std::move(model)), program_(program), stacks_(std::move(stacks)) {}

    void free(std::uint32_t id) override {
        ChangedModel::free(id);
        if (is_changed(id)) {
            ChangedModel::complete(id);
        }
    }
    void complete(std::uint32_t id) override {
        if (!is_changed(id)) {
            ChangedModel::complete(id);
        }
    }

  private:
    bool is_changed(std::uint32_t id) const {
        return stacks_.contains(program_.allocations[id].stack);
    }

    const Program& program_;
    const std::set<std::size_t> stacks_;
};

std::uint64_t saved(std::uint64_t before, const whatif::Outcome& outcome,
                    const ChangedModel& model) {
    return outcome.failure ? 0 : before - std::min(before, model.reserved_peak());
}

}  // namespace

bool Replays::read() {
    if (!tried_ && settings_) {
        std::string error;
        recording_ = whatif::read_recording(log_, &error);
        if (!error.empty() || !recording_.warning.empty()) {
            recording_ = {};  // of a part a replay tells nothing of the whole
        }
        whatif::prefer_allocators(recording_.programs);
    }
    tried_ = true;
    return !recording_.programs.empty();
}

const Program* Replays::find(const model::Device& device) {
    if (!read()) {
        return nullptr;
    }
    const auto found =
        std::find_if(recording_.programs.begin(), recording_.programs.end(),
                     [&](const Program& each) { return each.device.index == device.index; });
    return found == recording_.programs.end() ? nullptr : &*found;
}

std::optional<whatif::BetterSetting> Replays::better_setting(const model::Device& device,
                                                             std::uint64_t least) {
    const Program* const program = find(device);
    return program == nullptr ? std::nullopt
                              : whatif::find_better_setting(
                                    *program, recording_.options, settings_(recording_.options),
                                    device.curve(model::Curve::reserved).peak_bytes, least);
}

const Replays::Baseline* Replays::baseline(const model::Device& device) {
    const auto [known, is_new] = baselines_.try_emplace(device.index);
    std::optional<Baseline>& made = known->second;
    const Program* const program = is_new ? find(device) : nullptr;
    if (program != nullptr) {
        const auto policy =
            whatif::recorded_settings(*program, recording_.options, settings_(recording_.options));
        const whatif::Outcome outcome =
            policy ? whatif::run(*program, *policy->make(whatif::unlimited_capacity, *program))
                   : whatif::Outcome();
        if (policy && whatif::reproduces(*program, outcome,
                                         device.curve(model::Curve::reserved).peak_bytes)) {
            made = Baseline{program, *policy, outcome.reserved_peak};
        }
    }
    return made ? &*made : nullptr;
}

std::uint64_t Replays::saved_if_first(const model::Device& device,
                                      const std::vector<BlockLayout>& blocks) {
    const Baseline* const base = baseline(device);
    if (base == nullptr) {
        return 0;
    }
    std::set<std::pair<std::uint64_t, std::size_t>> wanted;
    for (const BlockLayout& block : blocks) {
        wanted.emplace(block.time_ns, block.stack);
    }
    std::vector<std::uint32_t> first;
    const whatif::Allocations& all = base->program->allocations;
    for (std::uint32_t id = 0; id < all.size(); ++id) {
        const Allocation each = all[id];
        if (wanted.contains({each.time_ns, each.stack})) {
            first.push_back(id);
        }
    }
    TheseFirst model(base->policy.make(whatif::unlimited_capacity, *base->program), *base->program,
                     first);
    const whatif::Outcome outcome = whatif::run(*base->program, model);
    return saved(base->reserved_peak, outcome, model);
}

std::uint64_t Replays::saved_if_reused_at_once(const model::Device& device,
                                               const std::vector<BlockLayout>& blocks) {
    const Baseline* const base = baseline(device);
    if (base == nullptr) {
        return 0;
    }
    std::set<std::size_t> stacks;
    for (const BlockLayout& block : blocks) {
        stacks.insert(block.stack);
    }
    DoneAtOnce model(base->policy.make(whatif::unlimited_capacity, *base->program), *base->program,
                     std::move(stacks));
    const whatif::Outcome outcome = whatif::run(*base->program, model);
    return saved(base->reserved_peak, outcome, model);
}

}  // namespace memlab::report
