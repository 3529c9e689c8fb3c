// What NVTX's payload extension hands to a tool, which NCCL ends its ranges by: declarations of
// memlab's own, compared with those of <nvtx3/nvToolsExtPayload.h> where that is there.
#pragma once

#ifndef NVTX_NO_IMPL
#define NVTX_NO_IMPL
#endif
#include <nvtx3/nvToolsExt.h>

#include <cstddef>
#include <cstdint>

#if __has_include(<nvtx3/nvToolsExtPayload.h>)
#include <nvtx3/nvToolsExtPayload.h>
#endif

namespace memlab::interpose::nvtx_payload {

inline constexpr std::uint16_t module_id = 2;
/// Versions with the same functions in the slots.
inline constexpr std::uint16_t first_compat_id = 0x0103;
inline constexpr std::uint16_t last_compat_id = 0x0104;

/// The slots of the functions that mark, begin and end.
enum Slot : std::size_t { mark = 2, range_push, range_pop, range_start, range_end };

#ifdef NVTX_EXT_PAYLOAD_MODULEID
static_assert(module_id == NVTX_EXT_PAYLOAD_MODULEID && mark == NVTX3EXT_CBID_nvtxMarkPayload &&
              range_push == NVTX3EXT_CBID_nvtxRangePushPayload &&
              range_pop == NVTX3EXT_CBID_nvtxRangePopPayload &&
              range_start == NVTX3EXT_CBID_nvtxRangeStartPayload &&
              range_end == NVTX3EXT_CBID_nvtxRangeEndPayload);
#endif

}  // namespace memlab::interpose::nvtx_payload
