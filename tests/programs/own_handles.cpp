// A program that creates and maps physical memory itself, beside a model of what it must find. It
// says "ready" and does what it reads from standard input, a word on each line, after each of which
// it says "right", or what was not as in the model:
//
//   random S N    N random calls: create, map again, access, write, and those below
//   answered S N  N random calls that give up memory or ask for it: unmap, release, retain, ...
//   check         the contents wherever they are mapped, by each device that may, and properties
//   exports       exports the handle of the first allocation that has one
//   range         exports the addresses of the first one that is mapped
//   fail F N      the N-th next call of this function of the driver's fails; with 0 none does
//   forks         a child does the next, and says nothing
//   churn S       three threads do the like with memory of their own, until "still"
//   leaves        gives up its contexts; "returns" gets them again
//   clear         unmaps and releases everything
//   used          says how many MiB of the devices are used (simulated driver)
//
// Recorded: an allocation of kind vmm for each that random creates.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <iostream>
#include <list>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/simulated.hpp"

using namespace program;

namespace {

constexpr std::size_t page = std::size_t{2} << 20;
using Handle = CUmemGenericAllocationHandle;

struct Place {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    bool accessible = false;
    bool by_other = false;  // the second device, too
};

struct Allocation {
    Handle handle = 0;
    unsigned references = 1;
    std::vector<unsigned char> contents;
    bool rdma = false;
    std::list<Place> places;
};

std::mutex problem_mutex;
std::string problem;

void expect(bool as_expected, const char* what, int result = 0) {
    const std::lock_guard lock(problem_mutex);
    if (!as_expected && problem.empty()) {
        problem = std::string(what) + " (" + std::to_string(result) + ")";
    }
}
void expect(CUresult result, const char* what) {
    expect(result == CUDA_SUCCESS, what, result);
}

class Program {
  public:
    Program(std::vector<CUcontext> contexts, std::vector<CUdevice> devices)
        : contexts_(std::move(contexts)), devices_(std::move(devices)) {}

    void random(unsigned seed, int count, bool everything) {
        chance_.seed(seed);
        for (int i = 0; i < count; ++i) {
            const unsigned what = one_of(everything ? 10 : 4);
            switch (what) {
                case 0:
                    unmap();
                    break;
                case 1:
                    release();
                    break;
                case 2:
                    retain();
                    break;
                case 3:
                    ask();
                    break;
                case 4:
                case 5:
                    create();
                    break;
                case 6:
                case 7:
                    map();
                    break;
                case 8:
                    allow();
                    break;
                default:
                    write();
            }
        }
    }

    void check() {
        for (const Allocation& each : all_) {
            if (each.references != 0) {
                check_properties(each);
            }
            for (const Place& place : each.places) {
                for (std::size_t device = 0; device < devices_.size(); ++device) {
                    if (place.accessible && (device == 0 || place.by_other)) {
                        std::vector<unsigned char> seen(place.bytes);
                        CHECK(cuCtxSetCurrent(contexts_[device]));
                        expect(cuMemcpyDtoH(seen.data(), place.address, place.bytes), "copy");
                        expect(std::equal(seen.begin(), seen.end(), each.contents.begin()),
                               "contents");
                    }
                }
            }
        }
        CHECK(cuCtxSetCurrent(contexts_[0]));
    }

    void export_one() {
        for (const Allocation& each : all_) {
            if (each.references != 0) {
                int file = -1;
                expect(cuMemExportToShareableHandle(&file, each.handle,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                       "export");
                ::close(file);
                return;
            }
        }
        expect(false, "nothing to export");
    }

    void export_range() {
        for (const Allocation& each : all_) {
            if (!each.places.empty()) {
                int file = -1;
                expect(cuMemGetHandleForAddressRange(&file, each.places.front().address, page,
                                                     CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
                       "export of addresses");
                ::close(file);
                return;
            }
        }
        expect(false, "nothing is mapped");
    }

    void clear() {
        for (auto each = all_.begin(); each != all_.end(); each = all_.begin()) {
            while (!each->places.empty()) {
                remove(each->places, each->places.begin());
            }
            for (; each->references != 0; --each->references) {
                expect(cuMemRelease(each->handle), "release");
            }
            all_.erase(each);
        }
    }

  private:
    unsigned one_of(std::size_t count) { return static_cast<unsigned>(chance_() % count); }
    std::list<Allocation>::iterator any() {
        return all_.empty() ? all_.end() : std::next(all_.begin(), one_of(all_.size()));
    }
    static std::list<Place>::iterator any_of(std::list<Place>& places, unsigned which) {
        return std::next(places.begin(), which % places.size());
    }
    void forget_if_gone(std::list<Allocation>::iterator each) {
        if (each->references == 0 && each->places.empty()) {
            all_.erase(each);
        }
    }
    static void remove(std::list<Place>& places, std::list<Place>::iterator place) {
        expect(cuMemUnmap(place->address, place->bytes), "unmap");
        expect(cuMemAddressFree(place->address, place->bytes), "free of addresses");
        places.erase(place);
    }

    void create() {
        if (all_.size() >= 12) {
            return;
        }
        CUmemAllocationProp wanted{};
        wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, {devices_[0]}};
        wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        Allocation one;
        one.rdma = one_of(2) == 0;
        wanted.allocFlags.gpuDirectRDMACapable = one.rdma ? 1 : 0;
        one.contents.resize(page * (1 + one_of(3)));
        expect(cuMemCreate(&one.handle, one.contents.size(), &wanted, 0), "create");
        for (const Allocation& each : all_) {
            expect(each.references == 0 || each.handle != one.handle, "two have one handle");
        }
        all_.push_back(std::move(one));
        map_at(std::prev(all_.end()));
        fill(all_.back(), all_.back().places.back());
    }

    void map_at(std::list<Allocation>::iterator each) {
        Place place;
        place.bytes = each->contents.size();
        expect(cuMemAddressReserve(&place.address, place.bytes, 0, 0, 0), "reserve");
        if (place.bytes > page) {
            expect(cuMemMap(place.address, page, 0, each->handle, 0) == CUDA_ERROR_NOT_SUPPORTED,
                   "a part of an allocation cannot be mapped");
        }
        expect(cuMemMap(place.address, place.bytes, 0, each->handle, 0), "map");
        each->places.push_back(place);
        allow_at(each->places.back());
    }

    void map() {
        const auto each = any();
        if (each != all_.end() && each->references != 0 && each->places.size() < 3) {
            map_at(each);
        }
    }

    void allow_at(Place& place) {
        std::vector<CUmemAccessDesc> access(1);
        access[0] = {{CU_MEM_LOCATION_TYPE_DEVICE, {devices_[0]}},
                     CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        place.by_other = devices_.size() > 1 && one_of(2) == 0;
        if (devices_.size() > 1) {
            access.push_back({{CU_MEM_LOCATION_TYPE_DEVICE, {devices_[1]}},
                              place.by_other ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                             : CU_MEM_ACCESS_FLAGS_PROT_NONE});
        }
        expect(cuMemSetAccess(place.address, place.bytes, access.data(), access.size()), "access");
        place.accessible = true;
    }

    void allow() {
        const auto each = any();
        if (each != all_.end() && !each->places.empty()) {
            allow_at(*any_of(each->places, one_of(3)));
        }
    }

    void fill(Allocation& each, const Place& place) {
        const unsigned seed = one_of(1U << 20);
        for (std::size_t i = 0; i < place.bytes; ++i) {
            each.contents[i] = static_cast<unsigned char>((i + seed) * 2654435761U >> 13);
        }
        expect(cuMemcpyHtoD(place.address, each.contents.data(), place.bytes), "copy to it");
    }

    void write() {
        const auto each = any();
        if (each != all_.end() && !each->places.empty()) {
            fill(*each, *any_of(each->places, one_of(3)));
        }
    }

    void unmap() {
        const auto each = any();
        if (each != all_.end() && !each->places.empty()) {
            const auto place = any_of(each->places, one_of(3));
            if (place->bytes > page) {
                expect(cuMemUnmap(place->address, page) == CUDA_ERROR_INVALID_VALUE,
                       "a part of a mapping cannot be unmapped");
            }
            expect(cuMemAddressFree(place->address, place->bytes) != CUDA_SUCCESS,
                   "addresses with a mapping cannot be freed");
            remove(each->places, place);
            forget_if_gone(each);
        }
    }

    void release() {
        const auto each = any();
        if (each != all_.end() && each->references != 0) {
            expect(cuMemRelease(each->handle), "release");
            --each->references;
            forget_if_gone(each);
        } else if (each != all_.end() && simulated<decltype(simcuda_used)>("simcuda_used")) {
            // A real driver may take any number for the address of something.
            expect(cuMemRelease(Handle{0x1234}) != CUDA_SUCCESS, "no such handle");
        }
    }

    void retain() {
        const auto each = any();
        if (each != all_.end() && !each->places.empty()) {
            const Place& place = *any_of(each->places, one_of(3));
            Handle handle = 0;
            expect(cuMemRetainAllocationHandle(
                       &handle, reinterpret_cast<void*>(place.address + place.bytes / 2)),
                   "retain");
            expect(each->references == 0 || handle == each->handle, "another handle");
            each->handle = handle;
            ++each->references;
        }
    }

    void check_properties(const Allocation& each) {
        CUmemAllocationProp found{};
        expect(cuMemGetAllocationPropertiesFromHandle(&found, each.handle), "properties");
        expect(found.location.id == devices_[0] &&
                   found.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                   (found.allocFlags.gpuDirectRDMACapable != 0) == each.rdma,
               "its properties");
    }

    void ask() {
        const auto each = any();
        if (each != all_.end() && each->references != 0) {
            check_properties(*each);
        }
    }

    const std::vector<CUcontext> contexts_;
    const std::vector<CUdevice> devices_;
    std::minstd_rand chance_;
    std::list<Allocation> all_;
};

}  // namespace

int main() {
    int count = 0;
    CHECK(cuInit(0));
    CHECK(cuDeviceGetCount(&count));
    std::vector<CUcontext> contexts;
    std::vector<CUdevice> devices;
    for (int device = count > 1 ? 1 : 0; device >= 0; --device) {
        contexts.insert(contexts.begin(), use_device(device));
        devices.insert(devices.begin(), device);
    }
    std::vector<std::thread> threads;
    std::atomic<bool> churning{false};
    Program program(contexts, devices);
    SAY("ready\n");
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string word;
        unsigned seed = 0;
        int calls = 0;
        words >> word;
        if (word != "still") {
            problem.clear();
        }
        if (word == "fail") {
            std::string function;
            std::uint64_t nth = 0;
            words >> function >> nth;
            expect(control<decltype(simcuda_fail)>("simcuda_fail")(function.c_str(), nth,
                                                                   CUDA_ERROR_UNKNOWN) == 0,
                   "no such function");
        } else {
            words >> seed >> calls;
        }
        if (word == "random" || word == "answered") {
            program.random(seed, calls, word == "random");
        } else if (word == "check") {
            program.check();
        } else if (word == "exports") {
            program.export_one();
        } else if (word == "range") {
            program.export_range();
        } else if (word == "forks") {
            const pid_t child = ::fork();
            if (child == 0) {
                ::alarm(20);
                program.clear();
                ::_exit(0);
            }
            int status = 0;
            ::waitpid(child, &status, 0);
            expect(status == 0, "the child", status);
        } else if (word == "churn") {
            churning.store(true);
            for (unsigned which = 1; which <= 3; ++which) {
                threads.emplace_back([&, first = seed * 1000 + which * 100] {
                    CHECK(cuCtxSetCurrent(contexts[0]));
                    Program own(contexts, devices);
                    for (unsigned round = 0; churning.load(); ++round) {
                        own.random(first + round, 12, round % 4 != 3);
                        own.check();
                    }
                    own.clear();
                });
            }
        } else if (word == "still") {
            churning.store(false);
            for (std::thread& thread : threads) {
                thread.join();
            }
            threads.clear();
        } else if (word == "leaves") {
            CHECK(cuCtxSetCurrent(nullptr));
            for (const CUdevice device : devices) {
                CHECK(cuDevicePrimaryCtxRelease(device));
            }
        } else if (word == "returns") {
            for (std::size_t i = devices.size(); i != 0; --i) {
                expect(use_device(devices[i - 1]) == contexts[i - 1], "another context");
            }
        } else if (word == "clear") {
            program.clear();
        } else if (word == "used") {
            SAY("%llu\n", static_cast<unsigned long long>(
                              control<decltype(simcuda_used)>("simcuda_used")() >> 20));
            continue;
        }
        SAY("%s\n", problem.empty() ? "right" : problem.c_str());
    }
    return 0;
}
