// The files that loaded code came from, by the driver's handles of modules and libraries.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

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
    void unloaded(const void* handle);

  private:
    std::uint32_t keep(const void* handle, const std::string& file);

    profiler::Recorder* const recorder_;
    mutable threads::Mutex mutex_;
    std::unordered_map<const void*, std::uint32_t> files_ MEMLAB_GUARDED_BY(mutex_);
};

/// The module of a function, or the library of a kernel that the program passes as one, as it may
/// to a launch; null: the driver does not tell.
const void* code_of(const void* function);

}  // namespace memlab::interpose
