#include "profiler/cupti/library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "profiler/cupti/functions.hpp"

namespace memlab::profiler::cupti {
namespace {

// Several subscribers: CUPTI 13.3 with a driver of release 610, the first one that is of CUDA 13.3.
// Only since its Update 1: before, it could crash when several asked for activities at the same
// time.
constexpr std::uint32_t several_since = 130301;
constexpr int several_since_driver = 13030;

// CUDA 12's minor version by the API version of its CUPTI, from oldest_api on (cupti_version.h);
// -1: none of a release.
constexpr std::uint32_t oldest_api = 19;
constexpr int minors[] = {0, 2, 3, 4, 5, 6, -1, 8, 9, 9};

std::string soname(std::uint32_t major) {
    return "libcupti.so." + std::to_string(major);
}

int collect(dl_phdr_info* info, std::size_t /*size*/, void* data) {
    if (info->dlpi_name != nullptr && info->dlpi_name[0] == '/') {
        static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name);
    }
    return 0;
}

const char* base_name(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return path.c_str() + (slash == std::string::npos ? 0 : slash + 1);
}

void add(std::vector<std::string>& paths, std::string path) {
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) {
        paths.push_back(std::move(path));
    }
}

void add_toolkit(std::vector<std::string>& paths, const std::string& root, std::uint32_t major) {
    for (const char* folder :
         {"/extras/CUPTI/lib64/", "/targets/x86_64-linux/lib/", "/lib64/", "/lib/"}) {
        add(paths, root + folder + soname(major));
    }
}

/// The versions to look for, best first.
std::vector<std::uint32_t> wanted_majors(const std::vector<std::string>& loaded_files,
                                         int driver_version) {
    std::vector<std::uint32_t> majors;
    for (std::uint32_t major = newest_major; major >= oldest_major; --major) {
        if (driver_version / 1000 >= static_cast<int>(major)) {
            majors.push_back(major);
        }
    }
    for (const std::string& file : loaded_files) {
        for (std::size_t i = 0; i < majors.size(); ++i) {
            const std::string runtime = "libcudart.so." + std::to_string(majors[i]);
            if (std::strncmp(base_name(file), runtime.c_str(), runtime.size()) == 0) {
                const auto at = majors.begin() + static_cast<std::ptrdiff_t>(i);
                std::rotate(majors.begin(), at, at + 1);
                return majors;
            }
        }
    }
    return majors;
}

template <class Function>
bool find_function(FindSymbol find, void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(find(library, name));
    return function != nullptr;
}

/// Fills in all functions; the name of a missing one, or null.
const char* fill(Functions& functions, FindSymbol find, void* library) {
    find_function(find, library, "cuptiActivityRegisterTimestampCallback",
                  functions.register_clock);
    SharedFunctions& shared = functions.shared;
    shared.complete =
        find_function(find, library, "cuptiSubscribe_v2", shared.subscribe) &&
        find_function(find, library, "cuptiActivityRegisterCallbacks_v2",
                      shared.register_buffers) &&
        find_function(find, library, "cuptiActivityEnable_v2", shared.enable) &&
        find_function(find, library, "cuptiActivityDisable_v2", shared.disable) &&
        find_function(find, library, "cuptiActivityGetNextRecord_v2", shared.next_record) &&
        find_function(find, library, "cuptiActivityGetNumDroppedRecords_v2",
                      shared.dropped_records) &&
        find_function(find, library, "cuptiGetTimestamp_v2", shared.timestamp);
#define MEMLAB_CUPTI_FUNCTION(member, symbol)                       \
    if (!find_function(find, library, #symbol, functions.member)) { \
        return #symbol;                                             \
    }
    MEMLAB_CUPTI_FUNCTION(get_version, cuptiGetVersion)
    MEMLAB_CUPTI_FUNCTION(result_string, cuptiGetResultString)
    MEMLAB_CUPTI_FUNCTION(subscribe, cuptiSubscribe)
    MEMLAB_CUPTI_FUNCTION(unsubscribe, cuptiUnsubscribe)
    MEMLAB_CUPTI_FUNCTION(enable_callback, cuptiEnableCallback)
    MEMLAB_CUPTI_FUNCTION(register_buffers, cuptiActivityRegisterCallbacks)
    MEMLAB_CUPTI_FUNCTION(enable, cuptiActivityEnable)
    MEMLAB_CUPTI_FUNCTION(disable, cuptiActivityDisable)
    MEMLAB_CUPTI_FUNCTION(flush_all, cuptiActivityFlushAll)
    MEMLAB_CUPTI_FUNCTION(next_record, cuptiActivityGetNextRecord)
    MEMLAB_CUPTI_FUNCTION(dropped_records, cuptiActivityGetNumDroppedRecords)
    MEMLAB_CUPTI_FUNCTION(timestamp, cuptiGetTimestamp)
#undef MEMLAB_CUPTI_FUNCTION
    return nullptr;
}

/// Fills in `library`: its functions, or the problem.
void check_library(Library& library, FindSymbol find, void* handle, const std::string& path,
                   int driver_version) {
    const auto functions = std::make_shared<Functions>();
    std::uint32_t version = 0;
    if (!find_function(find, handle, "cuptiGetVersion", functions->get_version) ||
        functions->get_version(&version) != CUPTI_SUCCESS) {
        library.problem = path + " does not give its version.";
        return;
    }
    library.name = "CUPTI " + version_text(version) + ", " + path;
    const std::uint32_t major = cuda_major(version);
    if (major < oldest_major || major > newest_major) {
        library.problem = path + " is CUPTI of CUDA " + version_text(version) +
                          "; memlab uses those of CUDA " + std::to_string(oldest_major) + " to " +
                          std::to_string(newest_major) + ".";
        return;
    }
    if (driver_version / 1000 < static_cast<int>(major)) {
        library.problem = path + " is CUPTI of CUDA " + version_text(version) +
                          ", newer than the driver (CUDA " + std::to_string(driver_version / 1000) +
                          ").";
        return;
    }
    if (const char* missing = fill(*functions, find, handle)) {
        library.problem = path + " lacks " + missing + ".";
        return;
    }
    library.functions = functions;
    library.usable = true;
    library.several_subscribers = version >= several_since &&
                                  driver_version >= several_since_driver &&
                                  functions->shared.complete;
}

std::string library_path(FindSymbol find, void* handle, const std::string& fallback) {
    Dl_info info{};
    void* const symbol = find(handle, "cuptiGetVersion");
    return symbol != nullptr && dladdr(symbol, &info) != 0 && info.dli_fname != nullptr
               ? std::string(info.dli_fname)
               : fallback;
}

}  // namespace

std::string version_text(std::uint32_t version) {
    if (version < 10000) {
        const std::uint32_t major = cuda_major(version);
        std::string text = major == 0 ? std::string("10 or older") : std::to_string(major);
        if (version >= oldest_api && version - oldest_api < std::size(minors) &&
            minors[version - oldest_api] >= 0) {
            text += "." + std::to_string(minors[version - oldest_api]);
        }
        return text + " (API version " + std::to_string(version) + ")";
    }
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

std::uint32_t cuda_major(std::uint32_t version) {
    if (version >= 10000) {
        return version / 10000;
    }
    return version >= oldest_api ? 12 : version >= 13 ? 11 : 0;
}

bool is_cupti_file(const char* file_name) {
    const std::string_view name(file_name);
    constexpr std::string_view stem = "libcupti";
    if (!name.starts_with(stem) || name.size() == stem.size()) {
        return false;
    }
    // Repaired wheels add a hash: libcupti-12ab34cd.so.13
    return (name[stem.size()] == '.' || name[stem.size()] == '-') &&
           name.find(".so") != std::string_view::npos;
}

std::vector<std::string> candidate_paths(const std::vector<std::string>& loaded_files,
                                         const char* cuda_home, const char* cuda_path,
                                         int driver_version) {
    const std::vector<std::uint32_t> majors = wanted_majors(loaded_files, driver_version);
    std::vector<std::string> paths;
    for (const std::string& file : loaded_files) {
        if (is_cupti_file(base_name(file))) {
            add(paths, file);
        }
    }
    // pip's packages are siblings, so any loaded one gives the others' directory.
    for (const std::string& file : loaded_files) {
        for (const char* packages : {"/site-packages/", "/dist-packages/"}) {
            if (const std::size_t at = file.find(packages); at != std::string::npos) {
                const std::string root = file.substr(0, at + std::strlen(packages)) + "nvidia/";
                for (const std::uint32_t major : majors) {
                    add(paths, root + "cu" + std::to_string(major) + "/lib/" + soname(major));
                    add(paths, root + "cuda_cupti/lib/" + soname(major));
                }
            }
        }
    }
    // Next to the CUDA runtime in use.
    for (const std::string& file : loaded_files) {
        if (std::strncmp(base_name(file), "libcudart.so", std::strlen("libcudart.so")) == 0) {
            for (const std::uint32_t major : majors) {
                add(paths, file.substr(0, file.rfind('/') + 1) + soname(major));
            }
        }
    }
    for (const char* root : {cuda_home, cuda_path}) {
        for (const std::uint32_t major : majors) {
            if (root != nullptr && root[0] == '/') {
                add_toolkit(paths, root, major);
            }
        }
    }
    for (const std::uint32_t major : majors) {
        add(paths, soname(major));
    }
    for (const std::uint32_t major : majors) {
        add_toolkit(paths, "/usr/local/cuda", major);
        for (int minor = 9; minor >= 0; --minor) {
            add_toolkit(paths,
                        "/usr/local/cuda-" + std::to_string(major) + "." + std::to_string(minor),
                        major);
        }
    }
    return paths;
}

Library open_library(FindSymbol find, int driver_version) {
    std::vector<std::string> loaded;
    dl_iterate_phdr(collect, &loaded);
    for (const std::string& path : candidate_paths(loaded, std::getenv("CUDA_HOME"),
                                                   std::getenv("CUDA_PATH"), driver_version)) {
        const bool is_loaded = std::find(loaded.begin(), loaded.end(), path) != loaded.end();
        void* const handle =
            dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | (is_loaded ? RTLD_NOLOAD : 0));
        if (handle == nullptr) {
            continue;
        }
        // No fallback to later candidates: they belong to other CUDA libraries.
        Library library;
        check_library(library, find, handle, library_path(find, handle, path), driver_version);
        if (!library.usable && !is_loaded) {
            dlclose(handle);
        }
        return library;
    }
    Library none;
    std::string names;
    for (const std::uint32_t major : wanted_majors(loaded, driver_version)) {
        names += (names.empty() ? "" : " or ") + soname(major);
    }
    none.problem = names.empty()
                       ? "CUPTI was not looked for: the driver is older than CUDA " +
                             std::to_string(oldest_major) + "."
                       : "No " + names +
                             " was found: not in the process, in CUDA_HOME, in pip's packages nor "
                             "on the loader's path.";
    return none;
}

}  // namespace memlab::profiler::cupti
