#include "report/whatif/trials.hpp"

#include <algorithm>
#include <string_view>

#include "report/parallel.hpp"

namespace memlab::report::whatif {

namespace {

constexpr std::uint64_t bytes_of_a_mib = std::uint64_t{1} << 20;
constexpr std::uint64_t tolerance = 20;  ///< 1/20 of the recorded peak

bool is_pytorchs(const Program& program) {
    return program.device.allocator == trace::DeviceInfo::pytorch;
}

bool is_pooled(const Program& program) {
    return program.device.is_gpu() && program.recorded.pooled != 0;
}

std::optional<Policy> policy_of(const std::string& name, const ReadPoolSettings& read_pool) {
    Policy policy;
    std::string problem;
    return read_policy(name, read_pool, &policy, &problem) ? std::optional(std::move(policy))
                                                           : std::nullopt;
}

constexpr std::string_view newer_name = "PYTORCH_ALLOC_CONF";
constexpr std::string_view older_name = "PYTORCH_CUDA_ALLOC_CONF";

/// PyTorch's settings in the recording: the newer name goes before the older one. Null: none.
const trace::OptionValue* pytorch_settings(const std::vector<trace::OptionValue>& options) {
    for (const std::string_view name : {newer_name, older_name}) {
        const auto found =
            std::find_if(options.begin(), options.end(),
                         [name](const trace::OptionValue& option) { return option.name == name; });
        if (found != options.end()) {
            return &*found;
        }
    }
    return nullptr;
}

/// The variable to set. Every PyTorch reads the older name, unless the newer one is set; those
/// before 2.9 read that alone, and 2.9 turns no expandable segments on by the newer one.
std::string pytorch_variable(const std::vector<trace::OptionValue>& options) {
    const trace::OptionValue* const recorded = pytorch_settings(options);
    return recorded == nullptr ? std::string(older_name) : recorded->name;
}

/// The largest power of two <= count; 0 for 0.
std::uint64_t largest_power_of_two(std::uint64_t count) {
    std::uint64_t power = count == 0 ? 0 : 1;
    while (power != 0 && power <= count / 2) {
        power *= 2;
    }
    return power;
}

}  // namespace

std::optional<Policy> recorded_settings(const Program& program,
                                        const std::vector<trace::OptionValue>& options,
                                        const ReadPoolSettings& read_pool) {
    if (program.device.is_gpu()) {
        return policy_of(is_pooled(program) ? "pool" : "plain", read_pool);
    }
    if (!is_pytorchs(program)) {
        return std::nullopt;  // any other allocator of the program's has no model
    }
    std::string settings;
    if (const trace::OptionValue* const recorded = pytorch_settings(options)) {
        settings = recorded->value;
        std::erase(settings, ' ');
    }
    return policy_of(settings.empty() ? "pytorch" : "pytorch:" + settings, read_pool);
}

std::vector<Policy> other_settings(const Program& program, const ReadPoolSettings& read_pool,
                                   std::uint64_t request) {
    std::vector<std::string> names;
    if (is_pytorchs(program)) {
        names = {"pytorch:expandable_segments:True", "pytorch", "pytorch:max_split_size_mb:128",
                 "pytorch:roundup_power2_divisions:4"};
    } else if (is_pooled(program)) {
        for (const std::string& name : default_policies()) {
            if (name.starts_with("pool:")) {
                names.push_back(name);
            }
        }
        constexpr std::uint64_t min_split_mib = 20;  // the least that the option takes
        if (const std::uint64_t split = largest_power_of_two(request / bytes_of_a_mib);
            split >= min_split_mib) {
            names.push_back("pool:MEMLAB_MAX_SPLIT_SIZE_MB=" + std::to_string(split));
        }
    }
    std::vector<Policy> policies;
    for (const std::string& name : names) {
        if (std::optional<Policy> policy = policy_of(name, read_pool)) {
            policies.push_back(std::move(*policy));
        }
    }
    return policies;
}

std::string setting_text(const Policy& policy, const std::vector<trace::OptionValue>& options) {
    if (policy.pytorch) {
        return pytorch_variable(options) + (policy.how.empty() ? " unset" : "=" + policy.how);
    }
    return policy.how.empty() ? "the recorded settings" : policy.how;
}

bool reproduces(const Program& program, const Outcome& outcome, std::uint64_t reserved_peak) {
    const std::uint64_t larger = std::max(outcome.reserved_peak, reserved_peak);
    const std::uint64_t smaller = std::min(outcome.reserved_peak, reserved_peak);
    return !outcome.failure && program.inconsistencies == 0 &&
           larger - smaller <= reserved_peak / tolerance;
}

std::optional<BetterSetting> find_better_setting(const Program& program,
                                                 const std::vector<trace::OptionValue>& options,
                                                 const ReadPoolSettings& read_pool,
                                                 std::uint64_t reserved_peak, std::uint64_t least) {
    std::optional<Policy> recorded = recorded_settings(program, options, read_pool);
    if (!recorded) {
        return std::nullopt;
    }
    const Outcome as_recorded = run(program, *recorded->make(unlimited_capacity, program));
    if (!reproduces(program, as_recorded, reserved_peak)) {
        return std::nullopt;
    }
    const std::vector<Policy> others = other_settings(program, read_pool, 0);
    std::vector<Outcome> outcomes(others.size());
    report::for_each_in_parallel(others.size(), [&](std::size_t i) {
        outcomes[i] = run(program, *others[i].make(unlimited_capacity, program));
    });
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < others.size(); ++i) {
        const std::uint64_t peak = outcomes[i].reserved_peak;
        if (!outcomes[i].failure && peak < as_recorded.reserved_peak &&
            as_recorded.reserved_peak - peak >= std::max<std::uint64_t>(least, 1) &&
            (!best || peak < outcomes[*best].reserved_peak)) {
            best = i;
        }
    }
    if (!best) {
        return std::nullopt;
    }
    return BetterSetting{setting_text(others[*best], options), outcomes[*best].reserved_peak};
}

}  // namespace memlab::report::whatif
