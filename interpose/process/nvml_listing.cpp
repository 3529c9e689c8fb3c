#include "interpose/process/nvml_listing.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "interpose/driver/loader.hpp"
#include "interpose/ledger/nvml_abi.hpp"
#include "interpose/ledger/nvml_limits.hpp"

namespace memlab::interpose {
namespace {

constexpr unsigned max_processes = 4096;

template <class Function>
Function* nvml_function(void* library, const char* name) {
    return reinterpret_cast<Function*>(libc_dlsym()(library, name));
}

/// Of NVML; null: this one has no such function. Nothing here needs a constructor.
struct ListedBy {
    int (*count)(unsigned*) = nullptr;
    int (*by_index)(unsigned, nvml::Device*) = nullptr;
    int (*uuid)(nvml::Device, char*, unsigned) = nullptr;
    int (*name)(nvml::Device, char*, unsigned) = nullptr;
    int (*minor)(nvml::Device, unsigned*) = nullptr;
    int (*pci)(nvml::Device, nvml::PciInfo*) = nullptr;
    int (*memory)(nvml::Device, nvml::Memory*) = nullptr;
    int (*driver)(char*, unsigned) = nullptr;

    explicit ListedBy(void* library)
        : count(nvml_function<int(unsigned*)>(library, "nvmlDeviceGetCount_v2")),
          by_index(nvml_function<int(unsigned, nvml::Device*)>(library,
                                                               "nvmlDeviceGetHandleByIndex_v2")),
          uuid(nvml_function<int(nvml::Device, char*, unsigned)>(library, "nvmlDeviceGetUUID")),
          name(nvml_function<int(nvml::Device, char*, unsigned)>(library, "nvmlDeviceGetName")),
          minor(nvml_function<int(nvml::Device, unsigned*)>(library, "nvmlDeviceGetMinorNumber")),
          pci(nvml_function<int(nvml::Device, nvml::PciInfo*)>(library, "nvmlDeviceGetPciInfo_v3")),
          memory(
              nvml_function<int(nvml::Device, nvml::Memory*)>(library, "nvmlDeviceGetMemoryInfo")),
          driver(nvml_function<int(char*, unsigned)>(library, "nvmlSystemGetDriverVersion")) {}
};

/// On one line, without what a terminal obeys.
void make_plain(char* text) {
    for (; *text != '\0'; ++text) {
        if (static_cast<unsigned char>(*text) < ' ' || *text == '\x7f') {
            *text = '?';
        }
    }
}

/// The processes by one of NVML's functions, in one of its versions. Those of version 2 and 3 have
/// the same entries; older drivers have version 2 alone, or none.
template <class Entry>
bool list_processes(void* library, const char* function, nvml::Device device, unsigned index,
                    const char* kind) {
    auto* const list = nvml_function<int(nvml::Device, unsigned*, Entry*)>(library, function);
    if (list == nullptr) {
        return false;
    }
    unsigned room = 128;
    for (int attempt = 0; attempt < 4; ++attempt) {
        auto* const entries = static_cast<Entry*>(std::calloc(room, sizeof(Entry)));
        if (entries == nullptr) {
            return true;
        }
        unsigned count = room;
        const int result = list(device, &count, entries);
        if (result == nvml::success) {
            for (unsigned i = 0; i < std::min(count, room); ++i) {
                if (entries[i].used_bytes == nvml::not_available) {
                    dprintf(STDOUT_FILENO, "process %u %u - %s\n", index, entries[i].pid, kind);
                } else {
                    dprintf(STDOUT_FILENO, "process %u %u %llu %s\n", index, entries[i].pid,
                            entries[i].used_bytes, kind);
                }
            }
        }
        std::free(entries);
        if (result != nvml::insufficient_size || room == max_processes) {
            if (result != nvml::success) {
                dprintf(STDOUT_FILENO, "no_processes %u %s %d\n", index, kind, result);
            }
            return true;
        }
        room = std::min(std::max(count, room) + 64, max_processes);
    }
    return true;
}

void list_all_processes(void* library, nvml::Device device, unsigned index) {
    (void)(list_processes<nvml::Process>(library, "nvmlDeviceGetComputeRunningProcesses_v3", device,
                                         index, "compute") ||
           list_processes<nvml::Process>(library, "nvmlDeviceGetComputeRunningProcesses_v2", device,
                                         index, "compute") ||
           list_processes<nvml::ProcessV1>(library, "nvmlDeviceGetComputeRunningProcesses", device,
                                           index, "compute"));
    (void)(list_processes<nvml::Process>(library, "nvmlDeviceGetGraphicsRunningProcesses_v3",
                                         device, index, "graphics") ||
           list_processes<nvml::Process>(library, "nvmlDeviceGetGraphicsRunningProcesses_v2",
                                         device, index, "graphics") ||
           list_processes<nvml::ProcessV1>(library, "nvmlDeviceGetGraphicsRunningProcesses", device,
                                           index, "graphics"));
}

void list_gpu(const ListedBy& nvml, void* library, unsigned index) {
    nvml::Device device = nullptr;
    std::array<char, 96> uuid{};
    if (nvml.by_index(index, &device) != nvml::success ||
        nvml.uuid(device, uuid.data(), uuid.size()) != nvml::success) {
        return;
    }
    std::array<char, 96> name{};
    unsigned minor = index;
    nvml::PciInfo pci{};
    nvml::Memory memory{};
    if (nvml.name == nullptr || nvml.name(device, name.data(), name.size()) != nvml::success) {
        name[0] = '\0';
    }
    if (nvml.minor == nullptr || nvml.minor(device, &minor) != nvml::success) {
        minor = index;
    }
    if (nvml.pci == nullptr || nvml.pci(device, &pci) != nvml::success || pci.bus_id[0] == '\0') {
        pci.bus_id[0] = '-';
        pci.bus_id[1] = '\0';
    }
    if (nvml.memory == nullptr || nvml.memory(device, &memory) != nvml::success) {
        memory = {};
    }
    for (char* text : {uuid.data(), name.data(), pci.bus_id}) {
        make_plain(text);
    }
    dprintf(STDOUT_FILENO, "gpu %u %u %llu %llu %llu %s %s %s\n", index, minor, memory.total,
            memory.used, memory.free, uuid.data(), pci.bus_id, name.data());
    list_all_processes(library, device, index);
}

void list_gpus(void* library) {
    const ListedBy nvml(library);
    unsigned count = 0;
    if (nvml.count == nullptr || nvml.by_index == nullptr || nvml.uuid == nullptr ||
        nvml.count(&count) != nvml::success) {
        dprintf(STDOUT_FILENO, "no_nvml it cannot list the GPUs\n");
        return;
    }
    std::array<char, 96> version{};
    if (nvml.driver != nullptr && nvml.driver(version.data(), version.size()) == nvml::success) {
        make_plain(version.data());
        dprintf(STDOUT_FILENO, "driver %s\n", version.data());
    }
    for (unsigned i = 0; i < count; ++i) {
        list_gpu(nvml, library, i);
    }
}

/// Takes the input up to the end of a line. False: it has ended.
bool wait_for_line() {
    char byte = 0;
    do {
        if (read(STDIN_FILENO, &byte, 1) != 1) {
            return false;
        }
    } while (byte != '\n');
    return true;
}

}  // namespace

void list_by_nvml() {
    void* library = nullptr;
    while (wait_for_line()) {
        if (library == nullptr) {
            library = open_nvml(libc_dlsym());
        }
        if (library == nullptr) {
            dprintf(STDOUT_FILENO, "no_nvml libnvidia-ml.so.1 is not there or does not start\n");
        } else {
            list_gpus(library);
        }
        dprintf(STDOUT_FILENO, "end\n");
    }
}

}  // namespace memlab::interpose
