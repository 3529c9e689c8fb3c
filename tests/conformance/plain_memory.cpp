// What plain CUDA's memory takes and gives back, as a real driver shows it: measured, not asserted.
// tests/support/plain_cuda.hpp is the model of it, which test_plain_cuda.cpp there compares with
// the transcripts in plain_memory/:
//
//   plain_memory random SEED CALLS KINDS LEFT_MIB [places]
//       Fills the device until LEFT_MIB are free, then makes random calls near full. A line a call:
//       a BYTES RESULT CHANGE            cuMemAlloc; with `places`, of small memory also PAGE.STEP:
//                                        the 2 MiB page, in the order of appearance, and the place
//                                        in it, in steps of 512 B
//       c BYTES RESULT CHANGE            cuMemCreate
//       v BYTES RESULT CHANGE            cuMemCreate, then mapped with access
//       y ROWxHEIGHTxDEPTH RESULT CHANGE cuArray3DCreate with rows of so many bytes
//       f NUMBER CHANGE                  the free of what the NUMBERth of these made, 0 the first
//       g NUMBER CHANGE                  cuMemFreeAsync and its stream's synchronization
//       CHANGE: of cuMemGetInfo's free memory, in pages of 2 MiB, or in bytes with a B behind it.
//       KINDS: which of a, c, v, y, g are made.
//       mapped: random 2 100000 acvg 4096; arrays: 3 40000 acvyg 4096; tight: 4 30000 ac 200
//   plain_memory rules | zero | objects
//       Prints what sizes share pages, whether fresh memory is zero, what other objects take.
#include <cuda.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = 1024 * kib;
constexpr std::uint64_t gib = 1024 * mib;
constexpr std::uint64_t page = 2 * mib;
constexpr std::uint64_t step = 512;
constexpr std::uint64_t most_bytes = 1024 * gib;  // of a request

void must(CUresult result, const char* what) {
    if (result != CUDA_SUCCESS) {
        std::printf("%s: %d\n", what, static_cast<int>(result));
        std::exit(1);
    }
}
#define MUST(...) must((__VA_ARGS__), #__VA_ARGS__)

std::uint64_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    MUST(cuMemGetInfo(&free, &total));
    return free;
}

CUmemAllocationProp on_device() {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = 0;
    return properties;
}

CUmemAccessDesc read_write() {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = 0;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return access;
}

std::string change_text(std::int64_t bytes) {
    constexpr auto unit = static_cast<std::int64_t>(page);
    return bytes % unit == 0 ? std::to_string(bytes / unit) : std::to_string(bytes) + "B";
}

// ---- random

struct Random {
    std::uint64_t state;
    std::uint64_t next() {
        std::uint64_t z = (state += 0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    std::uint64_t below(std::uint64_t end) { return end == 0 ? 0 : next() % end; }
    bool percent(unsigned share) { return below(100) < share; }
    // Every power of two between as likely.
    std::uint64_t between(std::uint64_t low, std::uint64_t high) {
        std::uint64_t span = low;
        const auto doublings = static_cast<unsigned>(std::log2(static_cast<double>(high / low)));
        span <<= below(doublings + 1);
        return std::min(high, span + below(span));
    }
};

struct Live {
    char kind;
    unsigned id;
    std::uint64_t bytes;
    std::string text{};  // of a transcript
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    CUarray array = nullptr;
};

class Walk {
  public:
    Walk(std::uint64_t seed, std::string kinds, std::uint64_t left, bool places)
        : random_{seed}, kinds_(std::move(kinds)), left_(left), places_(places) {}

    void run(unsigned calls) {
        MUST(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
        // What the driver makes at the first call of a kind is no part of the memory measured.
        for (unsigned round = 0; round < 2; ++round) {
            CUdeviceptr first = 0;
            MUST(cuMemAlloc(&first, 16));
            MUST(cuMemFreeAsync(first, stream_));
            MUST(cuStreamSynchronize(stream_));
        }
        fill();
        free_ = free_bytes();
        std::printf("free %llu\n", static_cast<unsigned long long>(free_));
        for (unsigned call = 0; call < calls; ++call) {
            if (call % 1500 == 0) {
                regime_ = static_cast<unsigned>(random_.below(6));
            }
            if (regime_ == 5 && call % 1500 < 2) {
                // All but every k-th of them.
                const std::uint64_t k = 2 + random_.below(60);
                for (std::size_t at = live_.size(); at-- > 0 && call < calls;) {
                    if (random_.below(k) != 0) {
                        release(at);
                        ++call;
                    }
                }
            }
            const bool tight = free_ < left_ / 4;
            if (live_.empty() || random_.percent(tight ? 50 : 62)) {
                allocate();
            } else {
                release(random_.below(live_.size()));
            }
        }
    }

  private:
    void fill() {
        for (std::uint64_t piece : {gib, 64 * mib, page}) {
            while (free_bytes() >= left_ + piece) {
                CUdeviceptr kept = 0;
                if (cuMemAlloc(&kept, piece) != CUDA_SUCCESS) {
                    break;
                }
            }
        }
    }

    bool wants(char kind) const { return kinds_.find(kind) != std::string::npos; }

    std::uint64_t small_size() {
        switch (random_.below(5)) {
            case 0:
                return 1 + random_.below(4 * kib);
            case 1:
                return step * (1 + random_.below(8)) - random_.below(2);
            case 2:
                return mib - step * random_.below(3) + random_.below(2);
            case 3:
                return (64 * kib << random_.below(5)) + random_.below(3) - 1;
            default:
                return random_.between(step, mib);
        }
    }

    std::uint64_t large_size() {
        switch (random_.below(6)) {
            case 0:
                return mib + 1 + random_.below(mib);
            case 1:
                return page + random_.below(3) - 1;
            case 2:
                return 3 * mib + random_.below(3) * 512 - 512;
            case 3:
                return page * (1 + random_.below(32));
            default:
                return random_.between(page, std::max(2 * page, std::min(left_ / 4, 512 * mib)));
        }
    }

    // All that is free, and just more or less than that.
    std::uint64_t exact_size() {
        const std::uint64_t near[] = {free_, free_ + 1, free_ - page, free_ + page, free_ - 1};
        return std::max<std::uint64_t>(near[random_.below(5)], 1);
    }

    void allocate() {
        Live made{'a', ids_++, 0};
        const unsigned small_share[] = {85, 50, 10, 30, 60, 70};
        std::uint64_t bytes = random_.percent(small_share[regime_]) ? small_size() : large_size();
        if (random_.percent(4)) {
            bytes = std::min(exact_size(), most_bytes);
        }
        const unsigned share = regime_ == 3 ? 70 : 15;
        if (wants('c') && bytes > mib && random_.percent(share)) {
            made.kind = wants('v') && random_.percent(50) ? 'v' : 'c';
            bytes = (bytes + page - 1) / page * page;
        } else if (wants('y') && random_.percent(share)) {
            made.kind = 'y';
        }
        made.bytes = bytes;
        made.text = std::to_string(bytes);
        const CUresult result = make(made);
        const std::int64_t change = changed();
        std::printf("%c %s %d %s", made.kind, made.text.c_str(), static_cast<int>(result),
                    change_text(change).c_str());
        if (places_ && result == CUDA_SUCCESS && made.kind == 'a' && made.bytes < page) {
            const auto [place, fresh] = pages_.try_emplace(made.address / page, pages_.size());
            std::printf(" %zu.%llu", place->second,
                        static_cast<unsigned long long>(made.address % page / step));
        }
        std::printf("\n");
        if (result == CUDA_SUCCESS) {
            live_.push_back(made);
        }
    }

    CUresult make(Live& made) {
        switch (made.kind) {
            case 'a':
                return cuMemAlloc(&made.address, made.bytes);
            case 'y':
                return make_array(made);
            default:
                break;
        }
        const CUmemAllocationProp properties = on_device();
        CUresult result = cuMemCreate(&made.handle, made.bytes, &properties, 0);
        if (result != CUDA_SUCCESS || made.kind == 'c') {
            return result;
        }
        const CUmemAccessDesc access = read_write();
        MUST(cuMemAddressReserve(&made.address, made.bytes, 0, 0, 0));
        result = cuMemMap(made.address, made.bytes, 0, made.handle, 0);
        if (result == CUDA_SUCCESS) {
            result = cuMemSetAccess(made.address, made.bytes, &access, 1);
            if (result != CUDA_SUCCESS) {
                std::printf("# no access\n");
                MUST(cuMemUnmap(made.address, made.bytes));
            }
        }
        if (result != CUDA_SUCCESS) {
            MUST(cuMemAddressFree(made.address, made.bytes));
            MUST(cuMemRelease(made.handle));
        }
        return result;
    }

    CUresult make_array(Live& made) {
        const std::uint64_t elements = std::max<std::uint64_t>(made.bytes / 4, 1);
        CUDA_ARRAY3D_DESCRIPTOR shape{};
        shape.Format = CU_AD_FORMAT_FLOAT;
        shape.NumChannels = 1;
        shape.Width = std::min<std::uint64_t>(elements, 4096);
        shape.Height =
            std::max<std::uint64_t>(std::min<std::uint64_t>(elements / shape.Width, 16384), 1);
        shape.Depth = elements > 4096 * 16384 ? 1 + elements / (4096 * 16384) : 0;
        if (shape.Depth != 0) {
            shape.Height = 4096;
            shape.Depth *= 4;
        }
        made.text = std::to_string(shape.Width * 4) + "x" + std::to_string(shape.Height) + "x" +
                    std::to_string(shape.Depth);
        return cuArray3DCreate(&made.array, &shape);
    }

    static void take_back(const Live& gone) {
        MUST(cuMemUnmap(gone.address, gone.bytes));
        MUST(cuMemAddressFree(gone.address, gone.bytes));
        MUST(cuMemRelease(gone.handle));
    }

    void release(std::size_t at) {
        const Live gone = live_[at];
        live_[at] = live_.back();
        live_.pop_back();
        char how = 'f';
        switch (gone.kind) {
            case 'a':
                if (wants('g') && random_.percent(10)) {
                    how = 'g';
                    MUST(cuMemFreeAsync(gone.address, stream_));
                    MUST(cuStreamSynchronize(stream_));
                } else {
                    MUST(cuMemFree(gone.address));
                }
                break;
            case 'c':
                MUST(cuMemRelease(gone.handle));
                break;
            case 'v':
                take_back(gone);
                break;
            default:
                MUST(cuArrayDestroy(gone.array));
                break;
        }
        const std::int64_t change = changed();
        std::printf("%c %u %s\n", how, gone.id, change_text(change).c_str());
    }

    std::int64_t changed() {
        const std::uint64_t before = free_;
        free_ = free_bytes();
        return static_cast<std::int64_t>(free_ - before);
    }

    Random random_;
    std::string kinds_;
    std::uint64_t left_;
    bool places_;
    std::uint64_t free_ = 0;
    unsigned regime_ = 0;
    unsigned ids_ = 0;
    CUstream stream_ = nullptr;
    std::vector<Live> live_;
    std::map<std::uint64_t, std::size_t> pages_;
};

// ---- rules

// Runs of equal numbers: "-1 0*2047 -1".
class Runs {
  public:
    void add(const std::string& text) {
        if (count_ != 0 && text != last_) {
            flush();
        }
        last_ = text;
        ++count_;
    }
    std::string text() {
        flush();
        return std::exchange(text_, "");
    }

  private:
    void flush() {
        if (count_ == 0) {
            return;
        }
        if (runs_ == 24) {
            text_ += "...";
        } else if (runs_ < 24) {
            text_ += last_ + (count_ > 1 ? "*" + std::to_string(count_) : "") + " ";
        }
        ++runs_;
        count_ = 0;
    }
    std::string last_;
    std::string text_;
    unsigned count_ = 0;
    unsigned runs_ = 0;
};

struct Series {
    std::vector<CUdeviceptr> made;
    void allocate(std::uint64_t bytes, unsigned count) {
        Runs changes;
        Runs distances;
        for (unsigned i = 0; i < count; ++i) {
            const std::uint64_t before = free_bytes();
            CUdeviceptr address = 0;
            MUST(cuMemAlloc(&address, bytes));
            changes.add(change_text(static_cast<std::int64_t>(free_bytes() - before)));
            if (!made.empty()) {
                const auto distance = static_cast<std::int64_t>(address - made.back());
                distances.add(distance % 512 == 0 ? std::to_string(distance / 512)
                                                  : std::to_string(distance) + "B");
            }
            made.push_back(address);
        }
        std::printf("  change: %s\n  steps:  %s\n", changes.text().c_str(),
                    distances.text().c_str());
    }
    // Frees the first, first + every, first + 2 * every ... of the rest.
    void release(const char* order, std::size_t first, std::size_t every, bool backward) {
        Runs changes;
        std::vector<CUdeviceptr> kept;
        std::vector<CUdeviceptr> gone;
        for (std::size_t i = 0; i < made.size(); ++i) {
            (i >= first && (i - first) % every == 0 ? gone : kept).push_back(made[i]);
        }
        if (backward) {
            std::reverse(gone.begin(), gone.end());
        }
        for (CUdeviceptr address : gone) {
            const std::uint64_t before = free_bytes();
            MUST(cuMemFree(address));
            changes.add(change_text(static_cast<std::int64_t>(free_bytes() - before)));
        }
        made = kept;
        std::printf("  free %s: %s\n", order, changes.text().c_str());
    }
};

void sizes_alone() {
    const std::uint64_t sizes[] = {
        1,           256,           512,         513,           1 * kib,       1 * kib + 1,
        2 * kib,     3 * kib,       4 * kib,     8 * kib,       12 * kib,      16 * kib,
        24 * kib,    32 * kib,      48 * kib,    64 * kib,      64 * kib + 1,  96 * kib,
        128 * kib,   160 * kib,     200 * kib,   256 * kib,     300 * kib,     341 * kib,
        342 * kib,   384 * kib,     400 * kib,   512 * kib,     512 * kib + 1, 600 * kib,
        683 * kib,   700 * kib,     768 * kib,   900 * kib,     mib - 512,     mib - 1,
        mib,         mib + 1,       mib + 512,   1100 * kib,    1280 * kib,    1536 * kib,
        1792 * kib,  1984 * kib,    page - 512,  page - 1,      page,          page + 1,
        page + 512,  2304 * kib,    2560 * kib,  3 * mib,       3 * mib + 512, 3584 * kib,
        4 * mib - 1, 4 * mib,       4 * mib + 1, 5 * mib,       6 * mib,       7 * mib,
        10 * mib,    16 * mib + 1,  31 * mib,    32 * mib,      33 * mib,      64 * mib + 1,
        100 * mib,   128 * mib + 1, 512 * mib,   512 * mib + 1, gib,           gib + 1};
    for (const std::uint64_t bytes : sizes) {
        std::printf("size %llu\n", static_cast<unsigned long long>(bytes));
        const auto count = static_cast<unsigned>(
            bytes > mib ? 3 : std::min<std::uint64_t>(3 * page / std::max(bytes, step) + 2, 13000));
        Series series;
        series.allocate(bytes, count);
        series.release("forward", 0, 1, false);
        series.allocate(bytes, count);
        series.release("backward", 0, 1, true);
        series.allocate(bytes, count);
        series.release("every second", 0, 2, false);
        series.release("the rest", 0, 1, false);
    }
}

// Who lies with whom: one of each size, twice, the page numbered in the order of appearance.
void sizes_together() {
    std::map<std::uint64_t, std::size_t> pages;
    std::vector<CUdeviceptr> made;
    std::printf("one of each size, PAGE.STEP(change):\n");
    for (unsigned round = 0; round < 3; ++round) {
        for (std::uint64_t bytes = 1; bytes <= mib; bytes = bytes < step ? step : bytes * 2) {
            const std::uint64_t before = free_bytes();
            CUdeviceptr address = 0;
            MUST(cuMemAlloc(&address, bytes));
            made.push_back(address);
            const std::size_t number =
                pages.try_emplace(address / page, pages.size()).first->second;
            std::printf(" %llu:%zu.%llu(%s)", static_cast<unsigned long long>(bytes), number,
                        static_cast<unsigned long long>(address % page / step),
                        change_text(static_cast<std::int64_t>(free_bytes() - before)).c_str());
        }
        std::printf("\n");
    }
    for (CUdeviceptr address : made) {
        MUST(cuMemFree(address));
    }
}

// Which hole is taken: of one page, and of several.
void holes() {
    const auto show = [](const char* what, CUdeviceptr address, CUdeviceptr origin) {
        std::printf(" %s%+lld", what,
                    (static_cast<long long>(address) - static_cast<long long>(origin)) / 512);
    };
    std::vector<CUdeviceptr> made(32);
    for (auto& address : made) {
        MUST(cuMemAlloc(&address, 128 * kib));
    }
    const CUdeviceptr origin = made[0];
    std::printf("32 of 128 KiB, steps of 512 B from the first:");
    for (CUdeviceptr address : made) {
        show("", address, origin);
    }
    std::printf(
        "\nfree 20, 21, 22, then 5, then 9, 10, then 28; allocate 64 KiB, 128 KiB, 128 KiB, 200 "
        "KiB, 256 KiB, 64 KiB, 384 KiB:");
    for (const std::size_t at : {20, 21, 22, 5, 9, 10, 28}) {
        MUST(cuMemFree(std::exchange(made[at], 0)));
    }
    for (const std::uint64_t size : {64, 128, 128, 200, 256, 64, 384}) {
        CUdeviceptr address = 0;
        MUST(cuMemAlloc(&address, size * kib));
        show("", address, origin);
        made.push_back(address);
    }
    std::printf("\n");
    for (CUdeviceptr address : made) {
        MUST(cuMemFree(address));
    }
}

void rules() {
    sizes_together();
    holes();
    sizes_alone();
    sizes_together();
}

// ---- zero

// The share of a memory's bytes that are not zero.
double written_share(CUdeviceptr address, std::uint64_t bytes) {
    std::vector<unsigned char> there(std::min<std::uint64_t>(bytes, 64 * mib));
    std::uint64_t written = 0;
    for (std::uint64_t done = 0; done < bytes; done += there.size()) {
        const std::uint64_t length = std::min<std::uint64_t>(there.size(), bytes - done);
        MUST(cuMemcpyDtoH(there.data(), address + done, length));
        written +=
            length - static_cast<std::uint64_t>(std::count(
                         there.begin(), there.begin() + static_cast<std::ptrdiff_t>(length), 0));
    }
    return static_cast<double>(written) / static_cast<double>(bytes);
}

struct Mapped {
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    std::uint64_t bytes = 0;
    void make(std::uint64_t size) {
        const CUmemAllocationProp properties = on_device();
        const CUmemAccessDesc access = read_write();
        bytes = size;
        MUST(cuMemCreate(&handle, bytes, &properties, 0));
        MUST(cuMemAddressReserve(&address, bytes, 0, 0, 0));
        MUST(cuMemMap(address, bytes, 0, handle, 0));
        MUST(cuMemSetAccess(address, bytes, &access, 1));
    }
    void end() const {
        MUST(cuMemUnmap(address, bytes));
        MUST(cuMemAddressFree(address, bytes));
        MUST(cuMemRelease(handle));
    }
};

// Nearly all of the device is written and freed, so that what comes next was written before.
void write_device(bool mapped) {
    std::vector<CUdeviceptr> plain;
    std::vector<Mapped> pieces;
    while (free_bytes() > 2 * gib) {
        if (mapped) {
            pieces.emplace_back().make(gib);
            MUST(cuMemsetD8(pieces.back().address, 0xa5, gib));
        } else {
            MUST(cuMemAlloc(&plain.emplace_back(), gib));
            MUST(cuMemsetD8(plain.back(), 0xa5, gib));
        }
    }
    MUST(cuCtxSynchronize());
    for (const Mapped& piece : pieces) {
        piece.end();
    }
    for (CUdeviceptr address : plain) {
        MUST(cuMemFree(address));
    }
}

void zero() {
    for (const bool mapped : {false, true}) {
        for (const bool fresh_mapped : {false, true}) {
            std::printf("%s written and freed, then fresh %s, share not zero:",
                        mapped ? "cuMemCreate" : "cuMemAlloc",
                        fresh_mapped ? "cuMemCreate" : "cuMemAlloc");
            for (const std::uint64_t bytes : {page, 64 * mib, gib, 8 * gib}) {
                if (bytes * 2 > free_bytes()) {
                    continue;
                }
                write_device(mapped);
                if (fresh_mapped) {
                    Mapped fresh;
                    fresh.make(bytes);
                    std::printf(" %.4f", written_share(fresh.address, bytes));
                    fresh.end();
                } else {
                    CUdeviceptr fresh = 0;
                    MUST(cuMemAlloc(&fresh, bytes));
                    std::printf(" %.4f", written_share(fresh, bytes));
                    MUST(cuMemFree(fresh));
                }
            }
            std::printf("\n");
        }
    }
    // Small memory whose page stays, because a neighbour keeps it.
    for (const std::uint64_t bytes : {512 * std::uint64_t{1}, 4 * kib, 64 * kib, 300 * kib, mib}) {
        CUdeviceptr neighbour = 0;
        CUdeviceptr gone = 0;
        CUdeviceptr fresh = 0;
        MUST(cuMemAlloc(&neighbour, 512));
        MUST(cuMemAlloc(&gone, bytes));
        MUST(cuMemsetD8(gone, 0xa5, bytes));
        MUST(cuMemFree(gone));
        MUST(cuMemAlloc(&fresh, bytes));
        std::printf(
            "%llu B beside a neighbour written, freed, allocated: same address %d, share not zero "
            "%.4f\n",
            static_cast<unsigned long long>(bytes), fresh == gone, written_share(fresh, bytes));
        MUST(cuMemFree(fresh));
        MUST(cuMemFree(neighbour));
    }
    CUstream stream = nullptr;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (const std::uint64_t bytes : {4 * kib, 4 * mib, 256 * mib}) {
        CUdeviceptr gone = 0;
        CUdeviceptr fresh = 0;
        CUdeviceptr later = 0;
        MUST(cuMemAllocAsync(&gone, bytes, stream));
        MUST(cuMemsetD8Async(gone, 0xa5, bytes, stream));
        MUST(cuMemFreeAsync(gone, stream));
        MUST(cuMemAllocAsync(&fresh, bytes, stream));
        MUST(cuStreamSynchronize(stream));
        const double at_once = written_share(fresh, bytes);
        MUST(cuMemsetD8Async(fresh, 0xa5, bytes, stream));
        MUST(cuMemFreeAsync(fresh, stream));
        MUST(cuStreamSynchronize(stream));
        MUST(cuMemAllocAsync(&later, bytes, stream));
        MUST(cuStreamSynchronize(stream));
        std::printf("%llu B of cuMemAllocAsync again: at once %.4f, after a synchronization %.4f\n",
                    static_cast<unsigned long long>(bytes), at_once, written_share(later, bytes));
        MUST(cuMemFreeAsync(later, stream));
        MUST(cuStreamSynchronize(stream));
    }
}

// ---- objects

std::uint64_t noted = 0;
// The change since the last note, and the call's result.
void note(const char* what, CUresult result = CUDA_SUCCESS) {
    const std::uint64_t now = free_bytes();
    std::printf("%-64s %d %s\n", what, static_cast<int>(result),
                change_text(static_cast<std::int64_t>(now - noted)).c_str());
    std::fflush(stdout);
    noted = now;
}
#define NOTE(...) note(#__VA_ARGS__, (__VA_ARGS__))

std::string ptx(const char* variable) {
    return std::string(".version 7.0\n.target sm_70\n.address_size 64\n") + variable +
           "\n.visible .entry nothing() { ret; }\n";
}

void modules() {
    for (unsigned round = 0; round < 2; ++round) {
        for (const char* variable : {"", ".visible .global .align 4 .b8 v[4];",
                                     ".visible .global .align 4 .b8 v[1048576];",
                                     ".visible .global .align 4 .b8 v[3145728];",
                                     ".visible .global .align 4 .b8 v[67108864];"}) {
            CUmodule module = nullptr;
            CUfunction function = nullptr;
            std::printf("module with '%s'\n", variable);
            NOTE(cuModuleLoadData(&module, ptx(variable).c_str()));
            if (module == nullptr) {
                continue;
            }
            NOTE(cuModuleGetFunction(&function, module, "nothing"));
            NOTE(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
            NOTE(cuCtxSynchronize());
            NOTE(cuModuleUnload(module));
        }
    }
    std::vector<CUmodule> kept(20);
    for (CUmodule& module : kept) {
        MUST(cuModuleLoadData(&module, ptx("").c_str()));
        note("one of 20 modules");
    }
    for (CUmodule module : kept) {
        MUST(cuModuleUnload(module));
    }
    note("unload them");
}

void arrays() {
    const std::size_t shapes[][3] = {{1, 1, 0},       {64, 64, 0},     {256, 256, 0},
                                     {512, 512, 0},   {1000, 1000, 0}, {1024, 1024, 0},
                                     {4096, 4096, 0}, {10000, 100, 0}, {16384, 16384, 0},
                                     {64, 64, 64},    {512, 512, 512}};
    for (const auto& shape : shapes) {
        for (const unsigned channels : {1U, 4U}) {
            CUDA_ARRAY3D_DESCRIPTOR wanted{};
            wanted.Width = shape[0];
            wanted.Height = shape[1];
            wanted.Depth = shape[2];
            wanted.Format = CU_AD_FORMAT_FLOAT;
            wanted.NumChannels = channels;
            std::printf("array %zu x %zu x %zu, %u floats: %zu bytes\n", shape[0], shape[1],
                        shape[2], channels,
                        shape[0] * shape[1] * std::max<std::size_t>(shape[2], 1) * channels * 4);
            CUarray array[3] = {};
            for (CUarray& one : array) {
                NOTE(cuArray3DCreate(&one, &wanted));
            }
            for (CUarray& one : array) {
                NOTE(cuArrayDestroy(one));
            }
        }
    }
    CUDA_ARRAY3D_DESCRIPTOR tiny{16, 16, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
    std::vector<CUarray> kept(40);
    Runs changes;
    for (CUarray& one : kept) {
        const std::uint64_t before = free_bytes();
        MUST(cuArray3DCreate(&one, &tiny));
        changes.add(change_text(static_cast<std::int64_t>(free_bytes() - before)));
    }
    std::printf("40 arrays of 16 x 16: %s\n", changes.text().c_str());
    CUdeviceptr beside = 0;
    note("(since then)");
    NOTE(cuMemAlloc(&beside, 512));
    NOTE(cuMemFree(beside));
    for (CUarray one : kept) {
        const std::uint64_t before = free_bytes();
        MUST(cuArrayDestroy(one));
        changes.add(change_text(static_cast<std::int64_t>(free_bytes() - before)));
    }
    std::printf("destroyed: %s\n", changes.text().c_str());
    note("(since then)");
    CUDA_ARRAY3D_DESCRIPTOR whole{1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUmipmappedArray levels = nullptr;
    NOTE(cuMipmappedArrayCreate(&levels, &whole, 8));
    NOTE(cuMipmappedArrayDestroy(levels));
}

void stream_ordered() {
    CUstream stream = nullptr;
    NOTE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (const std::uint64_t bytes :
         {kib, mib, page, 31 * mib, 32 * mib, 33 * mib, 100 * mib, gib + 1}) {
        std::printf("%llu bytes\n", static_cast<unsigned long long>(bytes));
        CUdeviceptr a = 0;
        CUdeviceptr b = 0;
        NOTE(cuMemAllocAsync(&a, bytes, stream));
        NOTE(cuMemAllocAsync(&b, bytes, stream));
        NOTE(cuMemFreeAsync(a, stream));
        NOTE(cuStreamSynchronize(stream));
        NOTE(cuMemFreeAsync(b, stream));
        NOTE(cuStreamSynchronize(stream));
        NOTE(cuMemAllocAsync(&a, bytes, stream));
        NOTE(cuMemFree(a));
        NOTE(cuMemAlloc(&a, bytes));
        NOTE(cuMemFreeAsync(a, stream));
        NOTE(cuStreamSynchronize(stream));
    }
    CUmemoryPool pool = nullptr;
    cuuint64_t keep = UINT64_MAX;
    MUST(cuDeviceGetDefaultMemPool(&pool, 0));
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    CUdeviceptr a = 0;
    NOTE(cuMemAllocAsync(&a, 100 * mib, stream));
    NOTE(cuMemFreeAsync(a, stream));
    NOTE(cuStreamSynchronize(stream));
    NOTE(cuMemPoolTrimTo(pool, 0));
    keep = 0;
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    // A request that only the pool's own cache stands in the way of.
    keep = UINT64_MAX;
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    const std::uint64_t half = free_bytes() / 3 * 2;
    NOTE(cuMemAllocAsync(&a, half, stream));
    NOTE(cuMemFreeAsync(a, stream));
    NOTE(cuStreamSynchronize(stream));
    NOTE(cuMemAlloc(&a, half));
    NOTE(cuMemFree(a));
    NOTE(cuMemPoolTrimTo(pool, 0));
    keep = 0;
    MUST(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    // A free inside a relaxed capture.
    CUgraph graph = nullptr;
    NOTE(cuMemAlloc(&a, 64 * mib));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    NOTE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    NOTE(cuMemFree(a));
    NOTE(cuStreamEndCapture(stream, &graph));
    MUST(cuThreadExchangeStreamCaptureMode(&mode));
    MUST(cuGraphDestroy(graph));
    NOTE(cuStreamDestroy(stream));
}

void graphs() {
    CUstream stream = nullptr;
    CUdeviceptr target = 0;
    MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    MUST(cuMemAlloc(&target, mib));
    note("a stream and 1 MiB");
    for (const unsigned nodes : {1U, 100U, 1000U, 10000U}) {
        std::printf("graph of %u fills\n", nodes);
        CUgraph graph = nullptr;
        CUgraphExec exec = nullptr;
        MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        for (unsigned i = 0; i < nodes; ++i) {
            MUST(cuMemsetD8Async(target + i, 1, 1, stream));
        }
        MUST(cuStreamEndCapture(stream, &graph));
        note("captured");
        NOTE(cuGraphInstantiate(&exec, graph, 0));
        NOTE(cuGraphUpload(exec, stream));
        NOTE(cuStreamSynchronize(stream));
        NOTE(cuGraphLaunch(exec, stream));
        NOTE(cuStreamSynchronize(stream));
        NOTE(cuGraphExecDestroy(exec));
        NOTE(cuGraphDestroy(graph));
    }
    for (const std::uint64_t bytes : {kib, 3 * mib, 64 * mib}) {
        std::printf("graph that allocates and frees %llu bytes\n",
                    static_cast<unsigned long long>(bytes));
        CUgraph graph = nullptr;
        CUgraphExec exec = nullptr;
        CUgraphExec second = nullptr;
        CUdeviceptr inside = 0;
        MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        MUST(cuMemAllocAsync(&inside, bytes, stream));
        MUST(cuMemsetD8Async(inside, 1, bytes, stream));
        MUST(cuMemFreeAsync(inside, stream));
        MUST(cuStreamEndCapture(stream, &graph));
        note("captured");
        NOTE(cuGraphInstantiate(&exec, graph, 0));
        NOTE(cuGraphUpload(exec, stream));
        NOTE(cuGraphLaunch(exec, stream));
        NOTE(cuStreamSynchronize(stream));
        NOTE(cuDeviceGraphMemTrim(0));
        NOTE(cuGraphLaunch(exec, stream));
        NOTE(cuStreamSynchronize(stream));
        NOTE(cuGraphExecDestroy(exec));
        NOTE(cuDeviceGraphMemTrim(0));
        NOTE(cuGraphInstantiate(&second, graph, 0));
        NOTE(cuGraphLaunch(second, stream));
        NOTE(cuStreamSynchronize(stream));
        CUdeviceptr all = 0;
        NOTE(cuMemAlloc(&all, free_bytes() + 2 * page));
        if (all != 0) {
            NOTE(cuMemFree(all));
        }
        NOTE(cuGraphExecDestroy(second));
        NOTE(cuGraphDestroy(graph));
        NOTE(cuDeviceGraphMemTrim(0));
    }
    MUST(cuMemFree(target));
    MUST(cuStreamDestroy(stream));
    note("end of graphs");
}

void page_tables() {
    // A page in each GiB of a large range, and the same number side by side.
    for (const std::uint64_t distance : {gib, page}) {
        constexpr unsigned count = 64;
        CUdeviceptr range = 0;
        std::printf("%u pages, %llu MiB apart\n", count,
                    static_cast<unsigned long long>(distance / mib));
        NOTE(cuMemAddressReserve(&range, count * distance, 0, 0, 0));
        const CUmemAllocationProp properties = on_device();
        const CUmemAccessDesc access = read_write();
        std::vector<CUmemGenericAllocationHandle> handles(count);
        for (auto& handle : handles) {
            MUST(cuMemCreate(&handle, page, &properties, 0));
        }
        note("created");
        for (unsigned i = 0; i < count; ++i) {
            MUST(cuMemMap(range + i * distance, page, 0, handles[i], 0));
        }
        note("mapped");
        for (unsigned i = 0; i < count; ++i) {
            MUST(cuMemSetAccess(range + i * distance, page, &access, 1));
        }
        note("access");
        for (unsigned i = 0; i < count; ++i) {
            MUST(cuMemUnmap(range + i * distance, page));
        }
        note("unmapped");
        for (const auto handle : handles) {
            MUST(cuMemRelease(handle));
        }
        note("released");
        NOTE(cuMemAddressFree(range, count * distance));
    }
}

void others() {
    CUdeviceptr p = 0;
    std::size_t pitch = 0;
    void* host = nullptr;
    NOTE(cuMemAllocPitch(&p, &pitch, 1000, 1000, 4));
    NOTE(cuMemFree(p));
    NOTE(cuMemAllocManaged(&p, 64 * mib, CU_MEM_ATTACH_GLOBAL));
    NOTE(cuMemsetD8(p, 1, 64 * mib));
    NOTE(cuCtxSynchronize());
    NOTE(cuMemFree(p));
    NOTE(cuMemAllocHost(&host, 64 * mib));
    NOTE(cuMemFreeHost(host));
    Runs changes;
    std::vector<CUstream> streams(40);
    for (CUstream& one : streams) {
        const std::uint64_t before = free_bytes();
        MUST(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
        changes.add(change_text(static_cast<std::int64_t>(free_bytes() - before)));
    }
    std::printf("40 streams: %s\n", changes.text().c_str());
    for (CUstream one : streams) {
        MUST(cuStreamSynchronize(one));
        MUST(cuStreamDestroy(one));
    }
    note("streams and their end");
    std::vector<CUevent> events(5000);
    for (CUevent& one : events) {
        MUST(cuEventCreate(&one, CU_EVENT_DISABLE_TIMING));
        MUST(cuEventRecord(one, nullptr));
    }
    note("5000 events");
    for (CUevent one : events) {
        MUST(cuEventDestroy(one));
    }
    note("destroyed");
    CUcontext current = nullptr;
    CUcontext second = nullptr;
    CUdeviceptr a = 0;
    CUdeviceptr b = 0;
    MUST(cuCtxGetCurrent(&current));
    NOTE(cuMemAlloc(&a, 512));
#if CUDA_VERSION >= 13000
    NOTE(cuCtxCreate(&second, nullptr, 0, 0));
#else
    NOTE(cuCtxCreate(&second, 0, 0));
#endif
    NOTE(cuMemAlloc(&b, 512));
    NOTE(cuMemFree(b));
    NOTE(cuCtxDestroy(second));
    NOTE(cuCtxSetCurrent(current));
    NOTE(cuMemFree(a));
    std::size_t limit = 0;
    MUST(cuCtxGetLimit(&limit, CU_LIMIT_MALLOC_HEAP_SIZE));
    NOTE(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 * mib));
    NOTE(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, limit));
    NOTE(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 16 * mib));
    NOTE(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, mib));
    // Four thousand buffers: what the page tables and the driver's lists take.
    std::vector<CUdeviceptr> many(4000);
    for (auto& address : many) {
        MUST(cuMemAlloc(&address, page));
    }
    note("4000 of 2 MiB");
    for (const auto address : many) {
        MUST(cuMemFree(address));
    }
    note("freed");
}

void objects() {
    noted = free_bytes();
    arrays();
    stream_ordered();
    graphs();
    page_tables();
    others();
    modules();
}

}  // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "";
    if (mode != "rules" && mode != "zero" && mode != "objects" && (mode != "random" || argc < 6)) {
        std::fprintf(
            stderr,
            "plain_memory random SEED CALLS KINDS LEFT_MIB [places] | rules | zero | objects\n");
        return 2;
    }
    static char buffer[1 << 20];
    std::setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    int version = 0;
    char name[128] = {};
    CUcontext context = nullptr;
    std::size_t total = 0;
    MUST(cuInit(0));
    MUST(cuDriverGetVersion(&version));
    MUST(cuDeviceGetName(name, sizeof name, 0));
    MUST(cuDeviceTotalMem(&total, 0));
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    std::printf("# %s, CUDA %d, %zu bytes;", name, version, total);
    for (int i = 1; i < argc; ++i) {
        std::printf(" %s", argv[i]);
    }
    std::printf("\n");
    if (mode == "rules") {
        rules();
    } else if (mode == "zero") {
        zero();
    } else if (mode == "objects") {
        objects();
    } else {
        Walk walk(std::strtoull(argv[2], nullptr, 10), argv[4],
                  std::strtoull(argv[5], nullptr, 10) * mib, argc > 6);
        walk.run(static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10)));
    }
    std::printf("end\n");
    return 0;
}
