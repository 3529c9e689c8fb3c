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

const void* code_of(const void* function) {
    void* const handle = const_cast<void*>(function);
    const void* const module = module_of(static_cast<CUfunction>(handle));
    return module != nullptr ? module : library_of(static_cast<CUkernel>(handle));
}

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
    return module != nullptr ? derived(module, library_of(from)) : find_kernel(from);
}

void CodeFiles::unloaded(const void* handle) {
    const threads::LockGuard lock(mutex_);
    files_.erase(handle);
}

}  // namespace memlab::interpose
