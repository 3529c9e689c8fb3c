#include "report/symbols/category.hpp"

#include <algorithm>
#include <string_view>

#include "model/bounded_sum.hpp"

namespace memlab::report {

namespace {

bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

bool is_nn_module_function(const StackFrame& frame, std::string_view name) {
    return frame.python && has(frame.file, "torch/nn/modules/module.py") &&
           has(frame.function, name);
}

/// What a frame says of what it calls. The innermost frame that says something decides: a forward
/// that checkpointing repeats lies within backward, a hook's within the optimizer.
enum class Says : std::uint8_t {
    nothing,
    forward,
    backward,
    state,
    optimizer,
    nn_module,
    distributed
};

Says says(const StackFrame& frame) {
    if (frame.is_forward_marker()) {
        return Says::backward;
    }
    if (!frame.python) {
        // Reducer: the buckets of DistributedDataParallel.
        return has(frame.function, "torch::autograd::Engine::") ? Says::backward
               : frame.function.starts_with("c10d::")           ? Says::distributed
                                                                : Says::nothing;
    }
    if (has(frame.file, "/torch/optim/")) {
        return has(frame.function, "_init_group") ? Says::state : Says::optimizer;
    }
    // MemTracker and its like watch every operation; they communicate nothing.
    if (has(frame.file, "/torch/distributed/")) {
        return has(frame.file, "/distributed/_tools/") ? Says::nothing : Says::distributed;
    }
    // cuda(), to(), half() and their like; __init__ of an nn.Module on the GPU; weights from a
    // file.
    if (is_nn_module_function(frame, "Module._apply") ||
        (has(frame.file, "/torch/nn/") && has(frame.function, "__init__")) ||
        has(frame.file, "/transformers/modeling_utils.py") ||
        is_nn_module_function(frame, "load_state_dict")) {
        return Says::nn_module;
    }
    return is_nn_module_function(frame, "_call_impl") ? Says::forward : Says::nothing;
}

bool is_workspace(const StackFrame& frame) {
    return !frame.python && (has(frame.function, "setWorkspaceForHandle") ||
                             has(frame.function, "BlasLtWorkspace") ||
                             has(frame.function, "at::native::run_conv_plan") ||
                             has(frame.function, "at::native::Workspace"));
}

/// A copy from the host or another type: what `batch.cuda()` and `batch.to(device)` run.
bool is_copy(const StackFrame& frame) {
    return !frame.python && (frame.function.starts_with("at::_ops::_to_copy") ||
                             frame.function.starts_with("at::_ops::to_"));
}

/// An operation that backward will need, with a result of its own.
bool is_differentiable(const StackFrame& frame) {
    return !frame.python && has(frame.function, "torch::autograd::VariableType::");
}

}  // namespace

const char* category_name(Category category) {
    constexpr std::array<const char*, category_count> names = {
        "parameters", "gradients",  "optimizer state", "activations",
        "inputs",     "workspaces", "communication",   "other"};
    return names[static_cast<std::size_t>(category)];
}

Category categorize(const std::vector<StackFrame>& stack, bool freed_elsewhere) {
    bool copies = false;
    bool differentiable = false;
    for (const StackFrame& frame : stack) {
        if (is_workspace(frame)) {
            return Category::workspaces;
        }
        switch (says(frame)) {
            case Says::forward:
                return Category::activations;
            case Says::backward:
                // Gradients of parameters are freed by zero_grad() or at the end, the others by
                // backward's own thread, when the next operation has used them.
                return freed_elsewhere ? Category::gradients : Category::other;
            case Says::state:
                return Category::optimizer_state;
            case Says::optimizer:
                return Category::other;
            case Says::nn_module:
                return Category::parameters;
            case Says::distributed:
                return Category::communication;
            case Says::nothing:
                break;
        }
        copies = copies || is_copy(frame);
        differentiable = differentiable || is_differentiable(frame);
    }
    return copies ? Category::inputs : differentiable ? Category::activations : Category::other;
}

Category categorize(const model::Site& site, Resolver& resolver) {
    const model::Site& whole = site.part ? resolver.report().sites[site.part->of] : site;
    const std::uint64_t kept = model::saturating_add(whole.freed_elsewhere, whole.live_count);
    return categorize(resolver.frames(site.stack), kept > whole.count / 2);
}

bool has_categories(const model::Report& report, const model::Device& device) {
    const bool by_pytorch = device.is_gpu()
                                ? std::any_of(report.modules.begin(), report.modules.end(),
                                              [](const model::Module& module) {
                                                  return has(module.path, "/libtorch_cuda.so");
                                              })
                                : device.is_pytorchs();
    const auto is_cut = [&](const model::Device& other) {
        return device.is_gpu() && other.on_gpu && other.gpu() == device.index;
    };
    return by_pytorch && std::none_of(report.devices.begin(), report.devices.end(), is_cut);
}

NnModuleCall nn_module_call(const std::vector<StackFrame>& stack) {
    bool forward = false;
    for (const StackFrame& frame : stack) {
        if (is_nn_module_function(frame, "_call_impl")) {
            return NnModuleCall::known;
        }
        forward =
            forward || (frame.python && has(frame.file, "/torch/nn/modules/") &&
                        !has(frame.file, "/module.py") && frame.function.ends_with("forward"));
    }
    return forward ? NnModuleCall::unknown : NnModuleCall::none;
}

const char* doubt_about_categories(const model::Report& report, const model::Device& device,
                                   Resolver& resolver) {
    if (!has_categories(report, device)) {
        return nullptr;
    }
    std::uint64_t named = 0;
    std::uint64_t nameless = 0;
    std::uint64_t known_calls = 0;
    std::uint64_t unknown_calls = 0;
    for (const model::Site& site : report.sites) {
        if (site.device != device.index || site.at_peak_count == 0) {
            continue;
        }
        const auto& stack = resolver.frames(site.stack);
        const NnModuleCall call = nn_module_call(stack);
        known_calls += call == NnModuleCall::known ? 1 : 0;
        unknown_calls += call == NnModuleCall::unknown ? 1 : 0;
        for (const StackFrame& frame : stack) {
            if (!frame.python && has(frame.module, "libtorch")) {
                ++(frame.function.empty() ? nameless : named);
            }
        }
    }
    return nameless > named                         ? no_names_for_categories
           : known_calls == 0 && unknown_calls != 0 ? unknown_nn_module_calls
                                                    : nullptr;
}

CategoryShares categories_at_peak(const model::Report& report, const model::Device& device,
                                  Resolver& resolver) {
    CategoryShares shares{};
    if (!has_categories(report, device)) {
        return shares;
    }
    for (const model::Site& site : report.sites) {
        if (site.device == device.index && site.at_peak_count != 0) {
            CategoryShare& share = shares[static_cast<std::size_t>(categorize(site, resolver))];
            share.count = model::saturating_add(share.count, site.at_peak_count);
            share.bytes = model::saturating_add(share.bytes, site.at_peak_bytes);
        }
    }
    return shares;
}

}  // namespace memlab::report
