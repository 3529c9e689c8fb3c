#include "profiler/python/nn_modules.hpp"

#include <algorithm>

#include "profiler/python/objects.hpp"

namespace memlab::profiler::python {

std::optional<std::uint32_t> NnModules::intern(std::span<const std::uintptr_t> calls,
                                               std::uint64_t hash) {
    const AddPendingCall add = add_pending_call_.load(std::memory_order_acquire);
    std::optional<std::uint32_t> id;
    bool tells = false;
    {
        const threads::LockGuard lock(mutex_);
        id = intern_locked(calls, hash);
        tells = id && add != nullptr && !calls.empty() && keep_unnamed(calls.back());
    }
    if (tells) {
        add(pending_call_.load(std::memory_order_relaxed), nullptr);
    }
    return id;
}

std::optional<std::uint32_t> NnModules::intern_locked(std::span<const std::uintptr_t> calls,
                                                      std::uint64_t hash) {
    std::uint32_t id = 0;
    for (std::size_t i = calls.size(); i-- != 0;) {
        if (!nn_modules_.contains(calls[i]) &&
            !is_collected_object(calls[i], ObjectClass::by_python_code)) {
            return std::nullopt;
        }
        id = id_of(id, at(calls[i]).number);
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

NnModules::NnModule& NnModules::at(std::uintptr_t address) {
    const auto [at, added] = nn_modules_.try_emplace(address, NnModule{latest_number_ + 1});
    latest_number_ += added ? 1 : 0;
    return at->second;
}

/// Whether it is kept now. Beyond the limit, as where nobody takes them, it is at its next call.
bool NnModules::keep_unnamed(std::uintptr_t outermost) {
    NnModule& nn_module = at(outermost);
    if (nn_module.is_told || unnamed_.size() == max_unnamed) {
        return false;
    }
    unnamed_.push_back(outermost);
    nn_module.is_told = true;
    return true;
}

std::size_t NnModules::take_unnamed(std::span<std::uintptr_t> addresses) {
    const threads::LockGuard lock(mutex_);
    const std::size_t count = std::min(addresses.size(), unnamed_.size());
    std::copy_n(unnamed_.begin(), count, addresses.begin());
    unnamed_.erase(unnamed_.begin(), unnamed_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
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
    NnModule& nn_module = at(address);
    nn_module.is_told = true;
    trace::NnModuleName definition;
    definition.nn_module = nn_module.number;
    definition.name = name.empty() ? 0 : definitions_.string_id(name);
    definition.class_name = class_name.empty() ? 0 : definitions_.string_id(class_name);
    definitions_.define(definition);
}

void NnModules::end(std::uintptr_t address) {
    const threads::LockGuard lock(mutex_);
    if (nn_modules_.erase(address) != 0) {
        std::erase(unnamed_, address);
        ends_.fetch_add(1, std::memory_order_release);
    }
}

}  // namespace memlab::profiler::python
