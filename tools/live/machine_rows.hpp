// A sample's GPUs, processes and call sites as the rows of JSON documents
// (report/summary/machine_documents.hpp).
#pragma once

#include <optional>

#include "report/summary/machine_documents.hpp"
#include "tools/live/live_sites.hpp"
#include "tools/live/machine_sample.hpp"

namespace memlab::tools {

inline report::MachineGpu gpu_row(const GpuSample& gpu) {
    return {.index = gpu.gpu.index,
            .uuid = gpu.gpu.uuid,
            .name = gpu.gpu.name,
            .total_bytes = gpu.gpu.total,
            .used_bytes = gpu.gpu.used,
            .free_bytes = gpu.gpu.free,
            .unaccounted_bytes = gpu.unaccounted};
}

inline std::optional<report::MemlabUse> memlab_row(const GpuUse& use) {
    if (!use.memlab) {
        return std::nullopt;
    }
    return report::MemlabUse{.allocated_bytes = use.memlab->allocated_bytes,
                             .max_allocated_bytes = use.memlab->max_allocated_bytes,
                             .reserved_bytes = use.memlab->reserved_bytes,
                             .max_reserved_bytes = use.memlab->max_reserved_bytes,
                             .cached_bytes = use.memlab->cached_bytes,
                             .tensor_bytes = use.memlab->tensor_bytes,
                             .live_count = use.memlab->live_count,
                             .limit_bytes = use.memlab->limit_bytes};
}

inline report::HeldSite site_row(const LiveSite& site) {
    return {.bytes = site.bytes,
            .count = site.count,
            .gpu = site.gpu,
            .kind = site.kind,
            .api = site.api,
            .place = site.place.recorded ? std::optional(site.place) : std::nullopt};
}

}  // namespace memlab::tools
