#include "interpose/moving/copying.hpp"

#include <algorithm>
#include <cstddef>

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/relaxed_capture.hpp"
#include "interpose/moving/own_threads.hpp"

namespace memlab::interpose {
namespace {

constexpr std::size_t stage_bytes = std::size_t{4} << 20;

/// What the threads of one call share.
struct Copying {
    CUcontext context = nullptr;
    const std::vector<CopyTask>& pieces;
    Direction direction;
    const std::atomic<bool>& stop;
    std::byte* stages = nullptr;
    std::atomic<std::size_t> next{0};
    std::atomic<unsigned> copiers{0};
    std::atomic<int> error{CUDA_SUCCESS};
    std::atomic<bool> file_failed{false};

    bool goes_on() const {
        return error.load() == CUDA_SUCCESS && !file_failed.load() && !stop.load();
    }
};

CUresult copy_piece(const CopyTask& piece, Direction direction, std::byte* stage, CUstream stream,
                    bool* file_failed) {
    CUresult result = CUDA_SUCCESS;
    std::byte* const pinned = piece.contents->pinned(piece.at);
    std::byte* const host = pinned != nullptr ? pinned : stage;
    if (direction == Direction::out) {
        result = call_real(&Driver::cuMemcpyDtoHAsync_v2, static_cast<void*>(host),
                           CUdeviceptr{piece.address}, std::size_t{piece.bytes}, stream);
    } else if (pinned != nullptr || piece.contents->give(piece.at, stage, piece.bytes)) {
        result = call_real(&Driver::cuMemcpyHtoDAsync_v2, CUdeviceptr{piece.address},
                           static_cast<const void*>(host), std::size_t{piece.bytes}, stream);
    } else {
        *file_failed = true;
    }
    const CUresult waited = call_real(&Driver::cuStreamSynchronize, stream);
    result = result == CUDA_SUCCESS ? waited : result;
    if (result == CUDA_SUCCESS && direction == Direction::out && pinned == nullptr) {
        *file_failed = !piece.contents->keep(piece.at, stage, piece.bytes);
    }
    return result;
}

void copy_pieces(Copying& copying) {
    const RelaxedCapture relaxed(true);
    const CurrentContext current(copying.context);
    CUstream stream = nullptr;
    if (const CUresult made =
            call_real(&Driver::cuStreamCreate, &stream, unsigned{CU_STREAM_NON_BLOCKING});
        made != CUDA_SUCCESS) {
        copying.error.store(made);
        return;
    }
    // Contents that are pinned themselves need none.
    std::byte* const stage = copying.stages != nullptr
                                 ? copying.stages + copying.copiers.fetch_add(1) * stage_bytes
                                 : nullptr;
    while (copying.goes_on()) {
        const std::size_t which = copying.next.fetch_add(1);
        if (which >= copying.pieces.size()) {
            break;
        }
        bool file_failed = false;
        const CUresult result =
            copy_piece(copying.pieces[which], copying.direction, stage, stream, &file_failed);
        if (result != CUDA_SUCCESS) {
            copying.error.store(result);
        }
        if (file_failed) {
            copying.file_failed.store(true);
        }
    }
    call_real(&Driver::cuStreamDestroy_v2, stream);
}

}  // namespace

void add_pieces(std::uint64_t address, std::uint64_t bytes, HeldContents& contents,
                std::vector<CopyTask>& pieces) {
    for (std::uint64_t at = 0; at < bytes; at += stage_bytes) {
        pieces.push_back(
            {address + at, std::min<std::uint64_t>(stage_bytes, bytes - at), &contents, at});
    }
}

std::string copy_contents(CUcontext context, const std::vector<CopyTask>& pieces,
                          Direction direction, const std::atomic<bool>& stop) {
    if (pieces.empty()) {
        return {};
    }
    const auto wanted =
        static_cast<unsigned>(std::min<std::size_t>(own_thread_count(), pieces.size()));
    Copying copying{context, pieces, direction, stop};
    {
        const RelaxedCapture relaxed(true);
        const CurrentContext current(context);
        void* stages = nullptr;
        if (pieces.front().contents->pinned(0) == nullptr) {
            if (const CUresult result =
                    call_real(&Driver::cuMemHostAlloc, &stages, wanted * stage_bytes,
                              unsigned{CU_MEMHOSTALLOC_PORTABLE});
                result != CUDA_SUCCESS) {
                return "no pinned memory for copies (error " + std::to_string(result) + ")";
            }
        }
        copying.stages = static_cast<std::byte*>(stages);
        in_own_threads([&copying] { copy_pieces(copying); }, wanted);
        if (stages != nullptr) {
            call_real(&Driver::cuMemFreeHost, stages);
        }
    }
    if (stop.load()) {
        return "the process ends";
    }
    if (copying.file_failed.load()) {
        return direction == Direction::out ? "the file could not be written"
                                           : "the file could not be read";
    }
    const int error = copying.error.load();
    return error == CUDA_SUCCESS ? std::string()
                                 : "copying failed with error " + std::to_string(error);
}

}  // namespace memlab::interpose
