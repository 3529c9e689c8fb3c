#include "profiler/python/nn_modules.hpp"

#include "profiler/python/objects.hpp"

namespace memlab::profiler::python {

std::optional<std::uint32_t> NnModules::intern(std::span<const std::uintptr_t> calls,
                                               std::uint64_t hash) {
    const threads::LockGuard lock(mutex_);
    std::uint32_t id = 0;
    for (std::size_t i = calls.size(); i-- != 0;) {
        if (!numbers_.contains(calls[i]) &&
            !is_collected_object(calls[i], ObjectClass::by_python_code)) {
            return std::nullopt;
        }
        id = id_of(id, number_of(calls[i]));
    }
    if (cache_ == nullptr) {
        cache_ = std::make_unique<MergedStackCache>();
        known_.store(cache_.get(), std::memory_order_release);
    }
    if (id != 0) {
        cache_->insert(key(hash), id);
    }
    return id;
}

std::uint32_t NnModules::number_of(std::uintptr_t address) {
    const auto [at, added] = numbers_.try_emplace(address, latest_number_ + 1);
    latest_number_ += added ? 1 : 0;
    return at->second;
}

/// Beyond the limit a call counts as that around it.
std::uint32_t NnModules::id_of(std::uint32_t parent, std::uint32_t number) {
    const std::uint64_t key = std::uint64_t{parent} << 32 | number;
    if (const auto known = ids_.find(key); known != ids_.end()) {
        return known->second;
    }
    if (ids_.size() >= max_stacks) {
        if (!full_) {
            full_ = true;
            definitions_.report_limitation(
                "the program calls its nn.Modules in more than 100000 ways: memory of further ones "
                "counts as that of the nn.Modules around them");
        }
        return parent;
    }
    const trace::NnModuleStackDef definition{static_cast<std::uint32_t>(ids_.size() + 1), parent,
                                             number};
    definitions_.define(definition);
    ids_.emplace(key, definition.id);
    return definition.id;
}

void NnModules::name(std::uintptr_t address, std::string_view name, std::string_view class_name) {
    const threads::LockGuard lock(mutex_);
    trace::NnModuleName definition;
    definition.nn_module = number_of(address);
    definition.name = name.empty() ? 0 : definitions_.string_id(name);
    definition.class_name = class_name.empty() ? 0 : definitions_.string_id(class_name);
    definitions_.define(definition);
}

void NnModules::end(std::uintptr_t address) {
    const threads::LockGuard lock(mutex_);
    if (numbers_.erase(address) != 0) {
        ends_.fetch_add(1, std::memory_order_release);
    }
}

}  // namespace memlab::profiler::python
