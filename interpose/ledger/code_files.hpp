// The files that loaded code came from, by the driver's handles of modules and libraries.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"
#include "profiler/recorder.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread. Call without any of memlab's locks. May throw
/// std::bad_alloc. Ids are string ids of the recording; 0: unknown.
class CodeFiles {
  public:
    explicit CodeFiles(profiler::Recorder* recorder) : recorder_(recorder) {}

    /// A module or library was loaded from this file.
    std::uint32_t loaded(const void* handle, const char* file);
    /// From this image in memory: the file is the loaded object that the image lies in.
    std::uint32_t loaded_image(const void* handle, const void* image);
    /// A module of a library.
    std::uint32_t derived(const void* handle, const void* library);
    std::uint32_t find(const void* handle) const;
    std::uint32_t find_kernel(CUkernel kernel) const;
    std::uint32_t find_function(CUfunction function) const;
    /// Of a kernel that became this function of the current context.
    std::uint32_t derived_function(CUfunction made, CUkernel from);
    /// The module's file; the function is known as one from now on.
    std::uint32_t found_function(CUfunction made, CUmodule module);
    void unloaded(const void* handle);

    /// Whether the handle is of a function that the driver made for a module: a launch takes
    /// kernels, too, and what is asked about the wrong one of the two is a line in the driver's
    /// error log (cuLogsRegisterCallback). False: most likely a kernel.
    bool is_function(const void* handle) const;
    /// The module of a function, or the library of a kernel that the program passes as one, as it
    /// may to a launch; null: the driver does not tell.
    const void* code_of(const void* function) const;

  private:
    std::uint32_t keep(const void* handle, const std::string& file);
    void keep_function(const void* function, const void* module);

    profiler::Recorder* const recorder_;
    mutable threads::Mutex mutex_;
    std::unordered_map<const void*, std::uint32_t> files_ MEMLAB_GUARDED_BY(mutex_);
    std::unordered_map<const void*, const void*> module_of_
        MEMLAB_GUARDED_BY(mutex_);  ///< by function
    std::unordered_map<const void*, std::vector<const void*>> functions_ MEMLAB_GUARDED_BY(mutex_);
};

}  // namespace memlab::interpose
