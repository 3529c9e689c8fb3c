// What each of PyTorch's nn.Modules held, as call sites of their own: every view that
// filters and groups call sites then filters and groups by nn.Module. And how names of nn.Modules
// are compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report.hpp"

namespace memlab::report {

/// Where the nn.Modules of a replay are in Report::nn_modules, which may be of an older memlab, or
/// of a recording that was shorter.
class NnModuleEntries {
  public:
    NnModuleEntries() = default;
    explicit NnModuleEntries(const model::Report& report);
    /// By trace::NnModuleHolder::code(). None: the report does not have it.
    std::optional<std::size_t> index(std::uint32_t code) const;

  private:
    std::vector<std::size_t> of_calls_;
    std::vector<std::size_t> of_labels_;
};

/// Appends to Report::sites one with Site::part for what each stack of nn.Modules held of a call
/// site, at the peak and at the end, and takes that from the call site: sums are the same. Figures
/// of the whole run, which a recording does not have by nn.Module, stay where they are, as do
/// labels. Lists of holders are divided the same way, those of failures excepted. Once for each
/// report, before anything points into it.
void separate_nn_modules(model::Report& report);

/// The indexes in the recording of these sites, each once, in the same order.
std::vector<std::size_t> recorded_sites(const model::Report& report,
                                        const std::vector<std::size_t>& sites);

/// The name as comparisons take it: without the parts that torch.compile, FSDP and
/// checkpoint_wrapper put in, and a leading one of DistributedDataParallel.
std::string compared_nn_module(const std::string& name);

/// Whether `pattern`, a name or a glob pattern of one, names the nn.Module or one around it, with
/// or without the first part of the name, which may be the model's. None has an empty name.
bool matches_nn_module(const std::string& pattern, const std::string& name);

/// By index into Report::nn_modules, whether that one's name matches; those without a name do not.
std::vector<bool> matching_nn_modules(const std::string& pattern, const model::Report& report);

/// Who a site belongs to, for a row: the compared name, the class of an outermost one without a
/// name, or in brackets that it has none or none holds it. Needs
/// separate_nn_modules().
std::string nn_module_of(const model::Report& report, const model::Site& site);

/// What the nn.Modules of one name held of what a device held at its
/// allocated peak, without those within.
struct NnModuleAtPeak {
    std::string name;  ///< as of nn_module_of()
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
};
/// Those that held something, most bytes first. Sums saturate.
std::vector<NnModuleAtPeak> nn_modules_at_peak(const model::Report& report,
                                               const model::Device& device);

/// Sentences: of a recording without calls of nn.Modules, and where some have no name.
inline constexpr const char* no_nn_modules =
    "No call of a PyTorch nn.Module was recorded: the program made none, Python frames were not "
    "read (MEMLAB_PYTHON), or the memlab that recorded it is older.";
inline constexpr const char* how_nn_modules_get_names =
    "memlab-run names nn.Modules by itself (MEMLAB_NAMES). In a program that it did not start, "
    "call memlab.watch(model) of the Python package once the model is on the GPU "
    "(docs/python.md).";
inline constexpr const char* outside_nn_modules = "[of no nn.Module]";
inline constexpr const char* unnamed_nn_modules = "[nn.Modules without a name]";

}  // namespace memlab::report
