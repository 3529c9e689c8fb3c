#include "interpose/moving/managed_memory.hpp"

#include <algorithm>
#include <cstddef>
#include <new>
#include <optional>
#include <utility>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/relaxed_capture.hpp"

namespace memlab::interpose {
namespace {

/// Pages can be on the host while the GPU may access them: without it they are there whenever
/// nothing runs.
bool moves_pages(CUdevice device) {
    int value = 0;
    return call_real(&Driver::cuDeviceGetAttribute, &value,
                     CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device) == CUDA_SUCCESS &&
           value != 0;
}

/// Below 0: on the host, on several, or not known.
CUdevice home_of(CUdeviceptr address, std::uint64_t bytes) {
    for (const CUmem_range_attribute attribute : {CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                                                  CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION}) {
        int device = -1;
        if (call_real(&Driver::cuMemRangeGetAttribute, static_cast<void*>(&device), sizeof device,
                      attribute, address, std::size_t{bytes}) == CUDA_SUCCESS &&
            device >= 0) {
            return device;
        }
    }
    return -1;
}

/// A stream in a context of the device, while this exists.
class PrefetchStream {
  public:
    PrefetchStream(Memory& memory, CUdevice device) {
        for (Context* const context : memory.contexts().all(device)) {
            use_.emplace(context->end_gate(), EndGate::max_wait_ns, EndGate::Kind::lasting);
            if (use_->held()) {
                current_.emplace(context->handle());
                made_ = call_real(&Driver::cuStreamCreate, &stream_,
                                  unsigned{CU_STREAM_NON_BLOCKING}) == CUDA_SUCCESS;
                break;
            }
        }
    }
    ~PrefetchStream() {
        if (made_) {
            call_real(&Driver::cuStreamSynchronize, stream_);
            call_real(&Driver::cuStreamDestroy_v2, stream_);
        }
    }
    PrefetchStream(const PrefetchStream&) = delete;
    PrefetchStream& operator=(const PrefetchStream&) = delete;

    bool prefetch(CUdeviceptr address, std::uint64_t bytes, CUmemLocation to) const {
        return made_ && call_real(&Driver::cuMemPrefetchAsync_v2, address, std::size_t{bytes}, to,
                                  0U, stream_) == CUDA_SUCCESS;
    }

  private:
    const RelaxedCapture relaxed_{true};
    std::optional<EndGate::Use> use_;
    std::optional<CurrentContext> current_;
    CUstream stream_ = nullptr;
    bool made_ = false;
};

CUmemLocation on_host() {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_HOST;
    return location;
}

CUmemLocation on_device(CUdevice device) {
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = device;
    return location;
}

}  // namespace

std::uint64_t ManagedMemory::send_to_host(Memory& memory, CUdevice device,
                                          std::uint64_t room) noexcept {
    sent_.clear();
    if (!memory.live().had_managed()) {
        return 0;
    }
    std::vector<Block> blocks;
    try {
        memory.live().for_each([&](HandleClass, std::uint64_t address, const LiveAllocation& each) {
            const auto of = static_cast<CUdevice>(each.device);
            if (each.kind == trace::MemoryKind::managed && (device < 0 || of == device)) {
                blocks.push_back({address, each.requested, of, -1});
            }
        });
        sent_.reserve(blocks.size());
    } catch (const std::bad_alloc&) {
        return 0;
    }
    std::sort(blocks.begin(), blocks.end(),
              [](const Block& a, const Block& b) { return a.bytes > b.bytes; });
    std::uint64_t bytes = 0;
    for (CUdevice of = 0; of < static_cast<CUdevice>(trace::DeviceInfo::max_gpus); ++of) {
        const auto is_there = [of](const Block& block) { return block.device == of; };
        if (std::none_of(blocks.begin(), blocks.end(), is_there) || !moves_pages(of)) {
            continue;
        }
        const PrefetchStream stream(memory, of);
        for (Block& block : blocks) {
            if (!is_there(block) || block.bytes > room - bytes) {
                continue;
            }
            block.home = home_of(block.address, block.bytes);
            if (stream.prefetch(block.address, block.bytes, on_host())) {
                bytes += block.bytes;
                sent_.push_back(block);
            }
        }
    }
    return bytes;
}

std::uint64_t ManagedMemory::bring_back(Memory& memory) noexcept {
    std::uint64_t bytes = 0;
    const std::vector<Block> sent = std::exchange(sent_, {});
    for (CUdevice home = 0; home < static_cast<CUdevice>(trace::DeviceInfo::max_gpus); ++home) {
        const auto goes_there = [home](const Block& block) { return block.home == home; };
        if (std::none_of(sent.begin(), sent.end(), goes_there)) {
            continue;
        }
        const PrefetchStream stream(memory, home);
        for (const Block& block : sent) {
            if (!goes_there(block)) {
                continue;
            }
            const auto live = memory.live().find(HandleClass::memory, block.address);
            if (live && live->kind == trace::MemoryKind::managed &&
                live->requested == block.bytes &&
                stream.prefetch(block.address, block.bytes, on_device(home))) {
                bytes += block.bytes;
            }
        }
    }
    return bytes;
}

}  // namespace memlab::interpose
