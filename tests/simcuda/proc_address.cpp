// cuGetProcAddress: a base name, a CUDA version and flags give the address of the symbol of that
// ABI: the newest not newer than the version asked for, its per-thread-default-stream twin if the
// flags ask for it and there is one. The address is that of the exported symbol itself.
#include <cstring>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/options.hpp"
#include "tests/simcuda/simcuda.h"

namespace memlab::simcuda {
namespace {

struct Found {
    void* address = nullptr;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
};

Found find(const char* base, int version, Flavor flavor) {
    Found found;
    int newest = 0;
    for (int id = 0; id < static_cast<int>(FunctionId::count); ++id) {
        const FunctionInfo& info = function_info(static_cast<FunctionId>(id));
        if (info.flavor != flavor || std::strcmp(info.base, base) != 0 ||
            info.since > options().driver_version) {
            continue;
        }
        if (info.since > version) {
            if (found.address == nullptr) {
                found.status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            }
        } else if (info.since > newest) {
            newest = info.since;
            found = {info.address, CU_GET_PROC_ADDRESS_SUCCESS};
        }
    }
    return found;
}

CUresult get_proc_address(const char* symbol, void** pfn, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
    constexpr cuuint64_t known =
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    if (symbol == nullptr || pfn == nullptr || (flags & ~known) != 0 ||
        version > options().driver_version) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Found found;
    if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0) {
        found = find(symbol, version, Flavor::per_thread);
    }
    if (found.address == nullptr) {
        found = find(symbol, version, Flavor::legacy);
    }
    *pfn = found.address;
    if (status != nullptr) {
        *status = found.status;
    }
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace memlab::simcuda

CUresult sim_cuGetProcAddress(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags) {
    // The first ABI, which has no status to give, makes it an error.
    const CUresult result =
        memlab::simcuda::get_proc_address(symbol, pfn, cudaVersion, flags, nullptr);
    return result == CUDA_SUCCESS && *pfn == nullptr ? CUDA_ERROR_NOT_FOUND : result;
}

CUresult sim_cuGetProcAddress_v2(const char* symbol, void** pfn, int cudaVersion, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult* symbolStatus) {
    return memlab::simcuda::get_proc_address(symbol, pfn, cudaVersion, flags, symbolStatus);
}

// The private tables are cudart's and the profilers' business; simcuda has one of its own.
CUresult sim_cuGetExportTable(const void** ppExportTable, const CUuuid* pExportTableId) {
    if (ppExportTable == nullptr || pExportTableId == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    static const std::size_t table[] = {sizeof(std::size_t)};
    const bool own = std::memcmp(pExportTableId->bytes, SIMCUDA_PRIVATE_TABLE,
                                 sizeof(pExportTableId->bytes)) == 0;
    *ppExportTable = own ? table : nullptr;
    return own ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
