// The memory of PyTorch's nn.Modules: what their calls had allocated and labels say is theirs of
// what a device held at its allocated peak, by qualified name and by what it was for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "report/symbols/category.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

/// What is added up of allocations.
struct NnModuleShare {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    CategoryShares categories{};  ///< all 0 without has_categories()

    void add(std::uint64_t more_count, std::uint64_t more_bytes, Category category);
};

/// An nn.Module, or several of one name. Its share is with those within.
struct NnModule {
    std::string name;        ///< qualified; empty: the outermost
    std::string class_name;  ///< empty: unknown, not called itself, or of several classes
    NnModuleShare share;
    NnModuleShare own;             ///< without those within
    std::list<NnModule> children;  ///< largest first

    /// The last component of its name.
    std::string short_name() const { return name.substr(name.rfind('.') + 1); }
};

struct NnModulesOfDevice {
    const model::Device* device = nullptr;
    bool categories = false;  ///< the device has_categories()
    std::uint64_t held = 0;   ///< at its allocated peak
    NnModule outermost;       ///< of all that have names
    NnModuleShare unnamed;    ///< of those that have none
    std::size_t unnamed_count = 0;
    NnModuleShare outside;  ///< of none
    /// The program's names for memory of the call sites of `outside`, those first under which most
    /// lives at the end.
    std::vector<model::SiteLabel> outside_labels;
    const char* doubt = nullptr;  ///< doubt_about_categories()
};

/// Of the devices where an nn.Module held something at the peak. Points into `report`.
std::vector<NnModulesOfDevice> nn_modules(const model::Report& report, Resolver& resolver,
                                          const ViewOptions& options);

/// Text; ends with a newline. options.top limits the children of each nn.Module.
std::string render_nn_modules_text(const model::Report& report,
                                   const std::vector<NnModulesOfDevice>& devices,
                                   const ViewOptions& options);

/// {file, devices [{index, name, peak_bytes, nn_modules [{name, class, bytes, count, own_bytes,
/// own_count, categories (bytes by name; null: it has none)}], unnamed {nn_modules, bytes, count,
/// categories}, outside {bytes, count, categories, labels (labels_json(); only if there are
/// any)}}]}; parents before their children.
std::string render_nn_modules_json(const std::string& file,
                                   const std::vector<NnModulesOfDevice>& devices);

}  // namespace memlab::report
