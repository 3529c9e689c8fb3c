// Simulated memory: physical memory, the address space, and the table of allocations.
//
// Physical memory of a device is a range of its memfd, counted against its size; freed ranges are
// punched out. Device addresses are real addresses that the process reserves and never maps: a host
// access crashes as it does on a GPU machine, while copies go through the page table to the memfd,
// so that contents and VMM aliasing are real. Managed memory is mapped for the host too; pinned
// memory is host memory. Allocations of less than 2 MiB share pages with others of their context
// and kind, larger ones take whole pages of 2 MiB, as the real driver does
// (tests/support/plain_cuda.hpp); pages lie at the lowest free address, so that addresses are
// reused soon. Fresh pages are zero; what a freed neighbour wrote in a shared one stays.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "tests/simcuda/driver_abi.hpp"
#include "tests/simcuda/timeline.hpp"
#include "tests/support/shared_pages.hpp"

namespace memlab::simcuda {

constexpr uint64_t page_bytes = 2ULL << 20;

constexpr uint64_t address_space = uint64_t{1} << 47;  // of a process

constexpr uint64_t round_up(uint64_t bytes, uint64_t step) {
    return (bytes + step - 1) / step * step;
}

struct Pool;

// A range of a device's memory; its destructor gives it back.
class Physical {
  public:
    // NULL when the device has not that much left.
    static std::shared_ptr<Physical> create(int device, uint64_t bytes);
    // Memory that migrates: none of it is on the device until it is touched there, which no kernel
    // of the simulation does.
    static std::shared_ptr<Physical> create_managed(int device, uint64_t bytes);
    // Memory of another process: the descriptor is closed with the object.
    static std::shared_ptr<Physical> import(int device, int file, uint64_t offset, uint64_t bytes);
    ~Physical();
    Physical(const Physical&) = delete;
    Physical& operator=(const Physical&) = delete;

    int device() const { return device_; }
    int file() const { return file_; }
    uint64_t offset() const { return offset_; }
    uint64_t bytes() const { return bytes_; }

  private:
    enum class Place : uint8_t { device, elsewhere, other_process };
    Physical(int device, int file, uint64_t offset, uint64_t bytes, Place place)
        : device_(device), file_(file), offset_(offset), bytes_(bytes), place_(place) {}
    static std::shared_ptr<Physical> make(int device, uint64_t bytes, Place place);

    int device_;
    int file_;
    uint64_t offset_;
    uint64_t bytes_;
    Place place_;
};

struct Chunk;

// The small memory of a context, of one kind.
struct Shelf {
    support::SharedPages pages;
    std::map<uint64_t, std::shared_ptr<Chunk>> chunks;  // by the page's number
};

// A page that small memory shares.
struct Chunk {
    uint64_t address = 0;
    std::shared_ptr<Physical> physical;
    Shelf* shelf = nullptr;
    uint64_t page = 0;
};

enum class Kind { device, managed, pinned, registered, async, vmm, ipc, external, graph, module };

struct Allocation {
    uint64_t base = 0;
    uint64_t bytes = 0;     // as requested
    uint64_t reserved = 0;  // of address space
    Kind kind = Kind::device;
    Context* context = nullptr;
    int device = 0;
    uint64_t buffer_id = 0;
    unsigned flags = 0;
    bool sync_memops = false;
    std::shared_ptr<Physical> physical;  // NULL for pinned memory and what lies in a chunk
    std::shared_ptr<Chunk> chunk;
    Pool* pool = nullptr;  // of async memory
    unsigned opens = 0;    // of an IPC mapping
    bool free_pending = false;
    uint64_t accessors = 0;  // of virtual memory: a bit for each device
    // Of managed memory: devices, CU_DEVICE_CPU, or CU_DEVICE_INVALID.
    int prefetched = CU_DEVICE_INVALID;
    int preferred = CU_DEVICE_INVALID;
};

// The address space. Throws nothing; 0 when it is exhausted.
uint64_t reserve_addresses(uint64_t bytes, uint64_t alignment = page_bytes);
void return_addresses(uint64_t address, uint64_t bytes);

// The reserved range of virtual memory that the address lies in: base and size, or nothing (0, 0).
std::pair<uint64_t, uint64_t> reservation_of(uint64_t address);

// Was the virtual memory that is mapped there created for GPUDirect RDMA?
bool mapped_for_rdma(uint64_t base);
// And for hardware decompression?
bool mapped_for_decompression(uint64_t base);

// The page table.
void map_pages(uint64_t address, uint64_t bytes, const Physical& physical, uint64_t offset,
               bool accessible);
void unmap_pages(uint64_t address, uint64_t bytes);
bool set_pages_accessible(uint64_t address, uint64_t bytes, bool accessible);
// 0 not mapped, 1 mapped and not accessible, 2 accessible
int pages_state(uint64_t address, uint64_t bytes);

// Inside the address space that simcuda reserved, mapped or not?
bool is_reserved_address(uint64_t address);

// Is any of it a device address? Host memory, pinned and managed too, is not.
bool is_device_address(uint64_t address);

// Copies between any two addresses; ranges must be accessible (see usable()).
void copy_bytes(uint64_t to, uint64_t from, uint64_t bytes);
void fill_bytes(uint64_t to, uint64_t bytes, const void* pattern, uint64_t pattern_bytes);
// May a copy touch this range? Host memory always; device memory if mapped and accessible.
// Host memory, mapped pages, or within the requested bytes of one allocation.
bool usable(uint64_t address, uint64_t bytes);
// Ordinary host memory, which the driver stages at submission.
bool is_pageable(uint64_t address);

std::map<uint64_t, Allocation>& allocations();
uint64_t next_buffer_id();
Allocation* find_allocation(uint64_t address);  // the one that the address lies in, or NULL

// Allocation of device memory with the faults of the environment applied.
CUresult check_allocation_faults(uint64_t bytes);
CUresult allocate_device(Context& context, uint64_t bytes, Kind kind, uint64_t& address);
void release_allocation(uint64_t base);

}  // namespace memlab::simcuda
