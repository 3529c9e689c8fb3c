// Ranges of virtual addresses and the physical pages in them, for the pool's expandable segments:
// the driver's virtual memory management behind four calls.
//
// Every page is a physical allocation of its own, so that each can be taken out alone (cuMemUnmap
// takes whole mappings only). Its handle is released as soon as it is mapped: the mapping keeps the
// memory. Access is that of the context's device and of every device whose context was given peer
// access; the memory is made fit for GPUDirect RDMA where the device can do that for such memory.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread. Lock order: pool -> this.
class VmmPages {
  public:
    explicit VmmPages(CUdevice device);

    static constexpr std::uint64_t page = 2ULL << 20;

    /// Reserves addresses, no memory. CUDA_ERROR_NOT_SUPPORTED where the device or the driver has
    /// no virtual memory management, or not in pages of 2 MiB.
    CUresult reserve(std::uint64_t bytes, std::uint64_t* base);
    CUresult release(std::uint64_t base, std::uint64_t bytes);

    /// Puts memory behind [address, address + bytes), multiples of `page`; all of it or nothing.
    CUresult map(std::uint64_t address, std::uint64_t bytes);
    /// Gives the memory there back. No work may be using it.
    CUresult unmap(std::uint64_t address, std::uint64_t bytes);

    /// Whether the address lies in a range reserved here.
    bool owns(std::uint64_t address);

    /// The context is gone: gives everything back. Physical pages do not go with a context.
    void drop_all();

    /// A context on `accessor` may use (or no longer use) the memory, what is mapped and what will
    /// be.
    CUresult set_peer(CUdevice accessor, bool enabled);

  private:
    bool supported();
    CUresult map_page(std::uint64_t address);
    CUresult give_access(std::uint64_t address, std::uint64_t bytes);
    void note_mapped(std::uint64_t address, std::uint64_t bytes);
    void note_unmapped(std::uint64_t address, std::uint64_t bytes);

    const CUdevice device_;
    std::mutex mutex_;
    CUmemAllocationProp properties_{};
    enum class Support : std::uint8_t { unknown, no, yes };
    Support support_ = Support::unknown;
    std::vector<CUdevice> accessors_;
    std::map<std::uint64_t, std::uint64_t> reserved_;  ///< start to size
    std::map<std::uint64_t, std::uint64_t> mapped_;    ///< start to end; neighbours are joined
};

}  // namespace memlab::interpose
