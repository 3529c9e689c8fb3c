// How the program's own physical memory leaves the GPU and comes back (program_handles.hpp). Until
// the first mapping is removed each step has a way back.
#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/relaxed_capture.hpp"
#include "interpose/driver/vmm_pages.hpp"
#include "interpose/moving/copying.hpp"
#include "interpose/moving/program_handles.hpp"

namespace memlab::interpose {
namespace {

/// What gives something back that nobody would give back later.
template <class Function, class... Arguments>
void twice(Function Driver::*function, Arguments... arguments) {
    if (call_real(function, arguments...) != CUDA_SUCCESS) {
        call_real(function, arguments...);
    }
}

}  // namespace

bool ProgramHandles::may_leave(const Allocation& allocation, CUdevice device) {
    return !allocation.stays && !allocation.away && (device < 0 || allocation.device() == device);
}

std::uint64_t ProgramHandles::movable_bytes(CUdevice device) {
    const threads::LockGuard lock(mutex_);
    std::uint64_t bytes = 0;
    for (const auto& [id, allocation] : all_) {
        bytes += may_leave(allocation, device) ? allocation.bytes : 0;
    }
    return bytes;
}

std::set<std::uint64_t> ProgramHandles::movable_numbers(CUdevice device) {
    const threads::LockGuard lock(mutex_);
    std::set<std::uint64_t> numbers;
    for (const auto& [id, allocation] : all_) {
        if (allocation.away || may_leave(allocation, device)) {
            numbers.insert(allocation.number);
        }
    }
    return numbers;
}

void ProgramHandles::begin_move() {
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    moving_ = true;
}

void ProgramHandles::end_move() {
    const threads::LockGuard lock(mutex_);
    for (auto& [id, allocation] : all_) {
        allocation.leaving = false;
    }
    moving_ = false;
    moved_.notify_all();
}

std::uint64_t ProgramHandles::choose(const Contexts& contexts, std::vector<std::uint64_t> kept,
                                     std::uint64_t kept_bytes) {
    kept.resize(std::max<std::size_t>(kept.size(), trace::DeviceInfo::max_gpus));
    const threads::LockGuard lock(mutex_);
    const auto may = [&](const Allocation& allocation) {
        return may_leave(allocation, -1) && contexts.contains(allocation.device());
    };
    for (const auto& [id, allocation] : all_) {
        if (!may(allocation) && !allocation.away) {
            kept[static_cast<std::size_t>(allocation.device())] += allocation.bytes;
        }
    }
    std::uint64_t bytes = 0;
    for (auto& [id, allocation] : all_) {
        std::uint64_t& there = kept[static_cast<std::size_t>(allocation.device())];
        allocation.leaving = may(allocation) && there + allocation.bytes > kept_bytes;
        if (allocation.leaving) {
            bytes += allocation.bytes;
        } else if (may(allocation)) {
            there += allocation.bytes;
        }
    }
    return bytes;
}

CUresult ProgramHandles::open_windows() {
    std::size_t bytes = 0;
    for (auto& [id, allocation] : all_) {
        bytes += allocation.leaving || allocation.away ? allocation.bytes : 0;
    }
    if (bytes == 0) {
        return CUDA_SUCCESS;
    }
    CUdeviceptr base = 0;
    if (const CUresult reserved =
            call_real(&Driver::cuMemAddressReserve, &base, bytes, std::size_t{0}, CUdeviceptr{0},
                      static_cast<unsigned long long>(0));
        reserved != CUDA_SUCCESS) {
        return reserved;
    }
    window_ = base;
    window_bytes_ = bytes;
    CUdeviceptr at = base;
    CUdeviceptr run = base;
    CUdevice run_device = -1;
    // Neighbours of one device at once.
    const auto allow = [&](CUdevice next) {
        CUresult result = CUDA_SUCCESS;
        if (run_device >= 0 && next != run_device && run < at) {
            const CUmemAccessDesc access =
                access_of(run_device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
            result = call_real(&Driver::cuMemSetAccess, run, std::size_t{at - run}, &access,
                               std::size_t{1});
        }
        if (next != run_device) {
            run = at;
            run_device = next;
        }
        return result;
    };
    for (auto& [id, allocation] : all_) {
        if (!allocation.leaving && !allocation.away) {
            continue;
        }
        if (const CUresult result = allow(allocation.device()); result != CUDA_SUCCESS) {
            return result;
        }
        if (allocation.handle() == 0) {  // the program has mappings alone
            Handle own = 0;
            if (const CUresult result =
                    call_real(&Driver::cuMemRetainAllocationHandle, &own,
                              reinterpret_cast<void*>(allocation.places.front()));
                result != CUDA_SUCCESS) {
                return result;
            }
            allocation.own = own;
        }
        if (const CUresult result =
                call_real(&Driver::cuMemMap, at, allocation.bytes, std::size_t{0},
                          allocation.handle(), static_cast<unsigned long long>(0));
            result != CUDA_SUCCESS) {
            return result;
        }
        allocation.window = at;
        at += allocation.bytes;
    }
    return allow(-1);
}

void ProgramHandles::close_windows() noexcept {
    for (auto& [id, allocation] : all_) {
        if (allocation.window != 0) {
            twice(&Driver::cuMemUnmap, std::exchange(allocation.window, 0), allocation.bytes);
        }
    }
    if (window_ != 0) {
        twice(&Driver::cuMemAddressFree, std::exchange(window_, 0), window_bytes_);
    }
}

std::string ProgramHandles::copy(const Contexts& contexts, bool out, const std::atomic<bool>& stop,
                                 FunctionRef<bool(CUcontext)> is_broken) {
    std::map<CUdevice, std::vector<CopyTask>> pieces;
    {
        const threads::LockGuard lock(mutex_);
        for (auto& [id, allocation] : all_) {
            if (allocation.window != 0) {
                add_pieces(allocation.window, allocation.bytes, *allocation.contents,
                           pieces[allocation.device()]);
            }
        }
    }
    for (const auto& [device, tasks] : pieces) {
        const CUcontext context = contexts.at(device);
        std::string problem =
            copy_contents(context, tasks, out ? Direction::out : Direction::in, stop);
        if (!problem.empty() && !is_broken(context)) {
            return problem;
        }
    }
    return {};
}

/// What was to leave does not; its mappings are there.
void ProgramHandles::let_stay(Allocation& allocation) noexcept {
    allocation.leaving = false;
    allocation.contents.reset();
    if (allocation.own != 0 && is_complete(allocation)) {
        twice(&Driver::cuMemRelease, std::exchange(allocation.own, 0));
    }
}

std::string ProgramHandles::copy_out(const Contexts& contexts, KeptRoom& room,
                                     const std::atomic<bool>& stop) {
    std::string problem;
    bool no_memory = false;
    try {
        {
            const threads::LockGuard lock(mutex_);
            for (auto& [id, allocation] : all_) {
                if (allocation.leaving) {
                    allocation.contents = room.take(allocation.bytes);
                }
            }
            if (const CUresult result = open_windows(); result != CUDA_SUCCESS) {
                problem =
                    "the driver mapped nothing to copy from (error " + std::to_string(result) + ")";
            }
        }
        if (problem.empty()) {
            problem = copy(contexts, true, stop, [](CUcontext) { return false; });
        }
    } catch (const std::bad_alloc&) {
        no_memory = true;
    }
    const threads::LockGuard lock(mutex_);
    close_windows();
    if (no_memory || !problem.empty()) {
        for (auto& [id, allocation] : all_) {
            if (allocation.leaving) {
                let_stay(allocation);
            }
        }
    }
    if (no_memory) {
        throw std::bad_alloc();
    }
    return problem;
}

bool ProgramHandles::is_complete(const Allocation& allocation) const {
    return !allocation.away && std::all_of(allocation.places.begin(), allocation.places.end(),
                                           [this](CUdeviceptr place) {
                                               mutex_.assert_held();
                                               return mappings_.at(place).present;
                                           });
}

bool ProgramHandles::is_unmapped(const Allocation& allocation) const {
    return std::none_of(allocation.places.begin(), allocation.places.end(),
                        [this](CUdeviceptr place) {
                            mutex_.assert_held();
                            return mappings_.at(place).present;
                        });
}

/// Maps it where the program has it and it is not; what fails is to be undone.
bool ProgramHandles::map_places(const Allocation& allocation) {
    for (const CUdeviceptr place : allocation.places) {
        Mapping& mapping = mappings_.at(place);
        if (mapping.present) {
            continue;
        }
        if (call_real(&Driver::cuMemMap, CUdeviceptr{place}, mapping.bytes, mapping.offset,
                      allocation.handle(), static_cast<unsigned long long>(0)) != CUDA_SUCCESS) {
            return false;
        }
        mapping.present = true;
        absent_.fetch_sub(1);
        if (!mapping.access.empty() &&
            call_real(&Driver::cuMemSetAccess, CUdeviceptr{place}, mapping.bytes,
                      static_cast<const CUmemAccessDesc*>(mapping.access.data()),
                      mapping.access.size()) != CUDA_SUCCESS) {
            return false;
        }
    }
    return true;
}

void ProgramHandles::unmap_places(const Allocation& allocation) noexcept {
    for (const CUdeviceptr place : allocation.places) {
        Mapping& mapping = mappings_.at(place);
        if (!mapping.present) {
            continue;
        }
        absent_.fetch_add(1);  // before: is_away() looks at it without the lock
        if (call_real(&Driver::cuMemUnmap, CUdeviceptr{place}, mapping.bytes) == CUDA_SUCCESS) {
            mapping.present = false;
        } else {
            absent_.fetch_sub(1);
        }
    }
}

/// False: it stays, and all of it is there.
bool ProgramHandles::take_out_one(Allocation& allocation) {
    if (call_real(&Driver::cuMemGetAllocationPropertiesFromHandle, &allocation.answered,
                  allocation.handle()) != CUDA_SUCCESS) {
        allocation.answered = allocation.wanted;
    }
    unmap_places(allocation);
    if (!is_unmapped(allocation)) {
        if (map_places(allocation)) {
            let_stay(allocation);
            return false;
        }
        // A part of its mappings is missing, its memory is there: fill() maps them again.
        allocation.leaving = false;
        allocation.contents.reset();
        return true;
    }
    const Handle handle = std::exchange(allocation.driver, 0);
    allocation.own = handle != 0 ? handle : allocation.own;
    if (call_real(&Driver::cuMemRelease, allocation.own) == CUDA_SUCCESS) {
        allocation.own = 0;
    }
    allocation.leaving = false;
    allocation.away = true;
    add_away(allocation.device(), static_cast<std::int64_t>(allocation.bytes));
    return true;
}

std::uint64_t ProgramHandles::take_out(const std::atomic<bool>& stop) {
    const threads::LockGuard lock(mutex_);
    std::uint64_t bytes = 0;
    for (auto& [id, allocation] : all_) {
        if (!allocation.leaving) {
            continue;
        }
        if (stop.load()) {
            let_stay(allocation);
        } else if (take_out_one(allocation)) {
            bytes += allocation.bytes;
        }
    }
    return bytes;
}

std::vector<CUdevice> ProgramHandles::devices_away() {
    const threads::LockGuard lock(mutex_);
    std::set<CUdevice> devices;
    for (const auto& [id, allocation] : all_) {
        if (!is_complete(allocation)) {
            devices.insert(allocation.device());
        }
    }
    return {devices.begin(), devices.end()};
}

CUresult ProgramHandles::get_memory(CUdevice* device) {
    CUresult result = CUDA_SUCCESS;
    {
        const threads::LockGuard lock(mutex_);
        for (auto& [id, allocation] : all_) {
            if (!allocation.away || allocation.own != 0) {
                continue;
            }
            Handle made = 0;
            result = call_real(&Driver::cuMemCreate, &made, allocation.bytes,
                               static_cast<const CUmemAllocationProp*>(&allocation.wanted),
                               allocation.flags);
            if (result != CUDA_SUCCESS) {
                *device = allocation.device();
                break;
            }
            allocation.own = made;
            allocation.made = true;
        }
    }
    if (result != CUDA_SUCCESS) {
        return_memory();
    }
    return result;
}

void ProgramHandles::return_memory() {
    const threads::LockGuard lock(mutex_);
    for (auto& [id, allocation] : all_) {
        if (std::exchange(allocation.made, false)) {
            twice(&Driver::cuMemRelease, std::exchange(allocation.own, 0));
        }
    }
}

bool ProgramHandles::fill(const Contexts& contexts, const std::atomic<bool>& stop,
                          FunctionRef<bool(CUcontext)> is_broken) {
    bool all = true;
    bool no_memory = false;
    {
        const threads::LockGuard lock(mutex_);
        for (auto& [id, allocation] : all_) {
            all = all && (is_complete(allocation) || map_places(allocation));
        }
        all = all && open_windows() == CUDA_SUCCESS;
    }
    try {
        all = all && copy(contexts, false, stop, is_broken).empty();
    } catch (const std::bad_alloc&) {
        no_memory = true;
    }
    const threads::LockGuard lock(mutex_);
    close_windows();
    for (auto& [id, allocation] : all_) {
        if (allocation.away && (no_memory || !all)) {
            unmap_places(allocation);
            // What is still mapped keeps its memory for the next try.
            allocation.made = allocation.made && is_unmapped(allocation);
        }
    }
    if (no_memory) {
        throw std::bad_alloc();
    }
    return all;
}

std::vector<std::unique_ptr<HeldContents>> ProgramHandles::came_back(
    std::uint64_t* bytes) noexcept {
    std::vector<std::unique_ptr<HeldContents>> contents;
    const threads::LockGuard lock(mutex_);
    for (auto& [id, allocation] : all_) {
        if (allocation.away) {
            *bytes += allocation.bytes;
            allocation.away = allocation.made = false;
            add_away(allocation.device(), -static_cast<std::int64_t>(allocation.bytes));
            try {
                contents.push_back(std::move(allocation.contents));
            } catch (const std::bad_alloc&) {  // destroyed here, which takes its time
                allocation.contents.reset();
            }
        }
        if (allocation.own == 0) {
            continue;
        }
        if (allocation.references != 0 && allocation.driver == 0) {
            allocation.driver = std::exchange(allocation.own, 0);
        } else {  // the mappings keep it
            twice(&Driver::cuMemRelease, std::exchange(allocation.own, 0));
        }
    }
    return contents;
}

}  // namespace memlab::interpose
