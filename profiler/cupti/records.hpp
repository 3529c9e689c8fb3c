// CUPTI's activity records as memlab reads them. CUPTI gives a record a new structure with each
// field that it appends, and a record carries neither size nor version: the oldest structure that
// CUDA 12.0 already had names what all later ones begin with. What the headers in use have of later
// ones is compared below, field by field; the distance of records in a buffer is CUPTI's own
// business.
#pragma once

#include <cupti.h>

#include <cstddef>

namespace memlab::profiler::cupti {

using MemoryRecord = CUpti_ActivityMemory3;
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
using PeerCopyRecord = CUpti_ActivityMemcpyPtoP4;
using FillRecord = CUpti_ActivityMemset4;

#define MEMLAB_FIELD_AT(record, field, position) \
    static_assert(offsetof(record, field) == (position), "CUPTI moved " #field " of " #record)
#define MEMLAB_MEMORY_FIELDS(record)                 \
    MEMLAB_FIELD_AT(record, memoryOperationType, 4); \
    MEMLAB_FIELD_AT(record, memoryKind, 8);          \
    MEMLAB_FIELD_AT(record, correlationId, 12);      \
    MEMLAB_FIELD_AT(record, address, 16);            \
    MEMLAB_FIELD_AT(record, bytes, 24);              \
    MEMLAB_FIELD_AT(record, timestamp, 32);          \
    MEMLAB_FIELD_AT(record, deviceId, 52);           \
    MEMLAB_FIELD_AT(record, isAsync, 72)
#define MEMLAB_KERNEL_FIELDS(record)            \
    MEMLAB_FIELD_AT(record, start, 16);         \
    MEMLAB_FIELD_AT(record, end, 24);           \
    MEMLAB_FIELD_AT(record, deviceId, 40);      \
    MEMLAB_FIELD_AT(record, streamId, 48);      \
    MEMLAB_FIELD_AT(record, correlationId, 92); \
    MEMLAB_FIELD_AT(record, name, 104)
#define MEMLAB_COPY_FIELDS(record, correlation) \
    MEMLAB_FIELD_AT(record, bytes, 8);          \
    MEMLAB_FIELD_AT(record, start, 16);         \
    MEMLAB_FIELD_AT(record, end, 24);           \
    MEMLAB_FIELD_AT(record, deviceId, 32);      \
    MEMLAB_FIELD_AT(record, streamId, 40);      \
    MEMLAB_FIELD_AT(record, correlationId, correlation)
MEMLAB_MEMORY_FIELDS(MemoryRecord);
MEMLAB_KERNEL_FIELDS(KernelRecord);
MEMLAB_COPY_FIELDS(CopyRecord, 44);
MEMLAB_COPY_FIELDS(PeerCopyRecord, 60);
MEMLAB_COPY_FIELDS(FillRecord, 44);
#if CUPTI_API_VERSION >= 130000
MEMLAB_MEMORY_FIELDS(CUpti_ActivityMemory4);
MEMLAB_KERNEL_FIELDS(CUpti_ActivityKernel10);
MEMLAB_COPY_FIELDS(CUpti_ActivityMemcpy6, 44);
#endif
#undef MEMLAB_MEMORY_FIELDS
#undef MEMLAB_KERNEL_FIELDS
#undef MEMLAB_COPY_FIELDS
#undef MEMLAB_FIELD_AT

}  // namespace memlab::profiler::cupti
