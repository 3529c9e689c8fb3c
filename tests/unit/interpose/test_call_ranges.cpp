// The bytes that a copy of rows or planes names, from the first to the last.
#include "interpose/memory/call_ranges.hpp"

#include <utility>

#include "tests/catch.hpp"

namespace {

using Range = std::pair<CUdeviceptr, std::size_t>;

template <class... Arguments>
Range of_device(Arguments... arguments) {
    Range found{};
    const auto visit = [&](CUdeviceptr begin, std::size_t bytes) { found = {begin, bytes}; };
    memlab::interpose::ranges::for_each(visit, arguments...);
    return found;
}

}  // namespace

TEST_CASE("rows without a pitch follow each other") {
    CUDA_MEMCPY2D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = 0x10000;
    copy.WidthInBytes = 37;
    copy.Height = 13;
    copy.dstY = 4;
    CHECK(of_device(static_cast<const CUDA_MEMCPY2D*>(&copy)) == Range{0x10000 + 148, 481});
    copy.dstPitch = 64;
    copy.dstXInBytes = 3;
    CHECK(of_device(static_cast<const CUDA_MEMCPY2D*>(&copy)) == Range{0x10000 + 259, 805});
}

TEST_CASE("planes without a pitch and a height do too") {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcDevice = 0x10000;
    copy.WidthInBytes = 10;
    copy.Height = 3;
    copy.Depth = 2;
    copy.srcZ = 1;
    CHECK(of_device(static_cast<const CUDA_MEMCPY3D*>(&copy)) == Range{0x10000 + 30, 60});
}

TEST_CASE("a copy of a volume with attributes names what a batch of one names") {
    CUDA_MEMCPY3D_BATCH_OP copy{};
    copy.src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    copy.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    copy.dst.op.ptr.ptr = 0x10000;
    copy.dst.op.ptr.rowLength = 16;
    copy.extent = {10, 3, 2};
    CHECK(of_device(&copy, 0ULL, CUstream{}) == Range{0x10000, 5 * 16 + 10});
    CHECK(of_device(std::size_t{1}, &copy, 0ULL, CUstream{}) == Range{0x10000, 5 * 16 + 10});
    CHECK(of_device(static_cast<CUDA_MEMCPY3D_BATCH_OP*>(nullptr), 0ULL, CUstream{}) == Range{});
}

TEST_CASE("a batch that the driver refuses for its length is not read") {
    CUstreamBatchMemOpParams operation{};
    operation.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = 0x10000;
    const auto of_batch = [&](unsigned count) {
        return of_device(CUstream{}, count, &operation, 0U);
    };
    CHECK(of_batch(1) == Range{0x10000, 1});
    CHECK(of_batch(257) == Range{});
    CHECK(of_batch(~0U) == Range{});
}
