#include "interpose/ledger/code_files.hpp"

#include "interpose/driver/driver.hpp"
#include "interpose/driver/loaded_objects.hpp"

namespace memlab::interpose {
namespace {

const void* library_of(CUkernel kernel) {
    CUlibrary library = nullptr;
    return call_real(&Driver::cuKernelGetLibrary, &library, kernel) == CUDA_SUCCESS ? library
                                                                                    : nullptr;
}

const void* module_of(CUfunction function) {
    CUmodule module = nullptr;
    return call_real(&Driver::cuFuncGetModule, &module, function) == CUDA_SUCCESS ? module
                                                                                  : nullptr;
}

}  // namespace

std::uint32_t CodeFiles::keep(const void* handle, const std::string& file) {
    const std::uint32_t id = recorder_ != nullptr && !file.empty() ? recorder_->string_id(file) : 0;
    const threads::LockGuard lock(mutex_);
    if (id != 0) {
        files_[handle] = id;
    } else {
        files_.erase(handle);  // the handle may have been another's
    }
    return id;
}

std::uint32_t CodeFiles::loaded(const void* handle, const char* file) {
    return keep(handle, file == nullptr ? std::string() : std::string(file));
}

std::uint32_t CodeFiles::loaded_image(const void* handle, const void* image) {
    return keep(handle, loaded_object_at(image));
}

std::uint32_t CodeFiles::derived(const void* handle, const void* library) {
    const threads::LockGuard lock(mutex_);
    const auto known = files_.find(library);
    if (known == files_.end()) {
        return 0;
    }
    const std::uint32_t id = known->second;
    files_[handle] = id;
    return id;
}

std::uint32_t CodeFiles::find(const void* handle) const {
    const threads::LockGuard lock(mutex_);
    const auto known = files_.find(handle);
    return known == files_.end() ? 0 : known->second;
}

std::uint32_t CodeFiles::find_kernel(CUkernel kernel) const {
    return find(library_of(kernel));
}

std::uint32_t CodeFiles::find_function(CUfunction function) const {
    return find(module_of(function));
}

std::uint32_t CodeFiles::derived_function(CUfunction made, CUkernel from) {
    const void* const module = module_of(made);
    if (module == nullptr) {
        return find_kernel(from);
    }
    keep_function(made, module);
    return derived(module, library_of(from));
}

std::uint32_t CodeFiles::found_function(CUfunction made, CUmodule module) {
    keep_function(made, module);
    return find(module);
}

void CodeFiles::keep_function(const void* function, const void* module) {
    const threads::LockGuard lock(mutex_);
    const auto [known, is_new] = module_of_.try_emplace(function, module);
    if (is_new || known->second != module) {
        known->second = module;
        functions_[module].push_back(function);
    }
}

void CodeFiles::unloaded(const void* handle) {
    const threads::LockGuard lock(mutex_);
    files_.erase(handle);
    const auto functions = functions_.find(handle);
    if (functions == functions_.end()) {
        return;
    }
    for (const void* const function : functions->second) {
        const auto known = module_of_.find(function);
        if (known != module_of_.end() && known->second == handle) {
            module_of_.erase(known);
        }
    }
    functions_.erase(functions);
}

bool CodeFiles::is_function(const void* handle) const {
    const threads::LockGuard lock(mutex_);
    return module_of_.contains(handle);
}

const void* CodeFiles::code_of(const void* function) const {
    {
        const threads::LockGuard lock(mutex_);
        const auto known = module_of_.find(function);
        if (known != module_of_.end()) {
            return known->second;
        }
    }
    void* const handle = const_cast<void*>(function);
    const void* const library = library_of(static_cast<CUkernel>(handle));
    return library != nullptr ? library : module_of(static_cast<CUfunction>(handle));
}

}  // namespace memlab::interpose
