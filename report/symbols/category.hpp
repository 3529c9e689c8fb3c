// Classifies PyTorch's memory (parameters, gradients, activations, ...) as its own profiler does:
// by the stack that allocated it and by the thread that freed it. Other programs' memory has no
// category.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "report/symbols/frame_choice.hpp"
#include "report/symbols/resolver.hpp"

namespace memlab::report {

/// In the order of tables.
enum class Category : std::uint8_t {
    parameters,       ///< weights and buffers of an nn.Module
    gradients,        ///< of parameters: what backward made and something else frees
    optimizer_state,  ///< Adam's moments
    activations,      ///< results of forward
    inputs,           ///< batches that were copied to the GPU
    workspaces,       ///< of cuBLAS and cuDNN
    communication,    ///< of torch.distributed
    other,            ///< backward's and the optimizer's own temporaries, and what is not PyTorch's
};
inline constexpr std::size_t category_count = 8;

/// Sentences below categories: of memory that has none, where most of PyTorch's functions have no
/// name, and where an nn.Module is called in a way that is not known.
inline constexpr const char* no_categories = "Only memory of PyTorch's has categories.";
inline constexpr const char* no_names_for_categories =
    "PyTorch's functions have no names here: workspaces, inputs and some gradients are in other "
    "rows. Read the recording where PyTorch is installed, or run memlab-report symbolize there.";
inline constexpr const char* unknown_nn_module_calls =
    "PyTorch: calls of nn.Module not read: nn.Module._call_impl is on no stack. What forward made "
    "is "
    "in other rows.";

/// "parameters", "gradients", "optimizer state", ...
const char* category_name(Category category);

/// Of memory that the stack (leaf first) allocated. `freed_elsewhere`: most of it was freed by
/// another thread than allocated it, or never. Needs the names of PyTorch's functions: without
/// them, what is known by Python's frames alone is told, the rest is `other`.
Category categorize(const std::vector<StackFrame>& stack, bool freed_elsewhere);

/// Of a call site of the resolver's report.
Category categorize(const model::Site& site, Resolver& resolver);

/// Whether the memory of a device has categories: PyTorch allocated there, and no cache of its is
/// seen from inside, whose blocks have them.
bool has_categories(const model::Report& report, const model::Device& device);

/// The sentence that says why categories of the device are not to be relied on, by the stacks of
/// what it held at its allocated peak; null: they are, or it has none.
const char* doubt_about_categories(const model::Report& report, const model::Device& device,
                                   Resolver& resolver);

/// Whether an nn.Module runs its forward on the stack, and is called as is known.
enum class NnModuleCall : std::uint8_t { none, known, unknown };
NnModuleCall nn_module_call(const std::vector<StackFrame>& stack);

/// What there was of a category at the device's allocated peak.
struct CategoryShare {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
};
using CategoryShares = std::array<CategoryShare, category_count>;

/// All 0 without has_categories(). Sums saturate.
CategoryShares categories_at_peak(const model::Report& report, const model::Device& device,
                                  Resolver& resolver);

}  // namespace memlab::report
