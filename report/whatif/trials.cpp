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

/// PyTorch's settings in the recording: the newer name goes before the older one.
std::string pytorch_settings(const std::vector<trace::OptionValue>& options) {
    for (const std::string_view name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
        for (const trace::OptionValue& option : options) {
            if (option.name == name) {
                std::string text = option.value;
                std::erase(text, ' ');
                return text;
            }
        }
    }
    return {};
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
    const std::string settings = pytorch_settings(options);
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

std::string setting_text(const Policy& policy) {
    return !policy.how.empty() ? policy.how
           : policy.pytorch    ? "PYTORCH_ALLOC_CONF unset"
                               : "the recorded settings";
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
    return BetterSetting{setting_text(others[*best]), outcomes[*best].reserved_peak};
}

}  // namespace memlab::report::whatif
