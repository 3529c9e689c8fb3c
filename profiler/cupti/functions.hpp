// Pointers to CUPTI's functions.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

namespace memlab::profiler::cupti {

/// The argument of cuptiSubscribe_v2 since CUDA 13.3; in 13.0 it ended before the last field.
struct SubscriberParameters {
    std::size_t structSize;
    const char* subscriberName;
    char* oldSubscriberName;
    std::size_t oldSubscriberSize;
    std::uint8_t allowMultipleSubscribers;
    std::uint8_t padding[7];
};
static_assert(sizeof(SubscriberParameters) == 40);
#if CUPTI_API_VERSION >= 130000
static_assert(offsetof(CUpti_SubscriberParams, subscriberName) ==
                  offsetof(SubscriberParameters, subscriberName) &&
              offsetof(CUpti_SubscriberParams, oldSubscriberSize) ==
                  offsetof(SubscriberParameters, oldSubscriberSize));
#endif

/// The functions of a CUPTI with several subscribers, since CUDA 13.3. They cannot be mixed with
/// the ones below that have the same name without _v2. Only used if all of them are there.
struct SharedFunctions {
    bool complete = false;
    CUptiResult (*subscribe)(CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*,
                             SubscriberParameters*) = nullptr;
    CUptiResult (*register_buffers)(
        CUpti_SubscriberHandle, void (*request)(std::uint8_t**, std::size_t*, std::size_t*, void*),
        void (*complete)(std::uint8_t*, std::size_t, std::size_t, void*)) = nullptr;
    CUptiResult (*enable)(CUpti_SubscriberHandle, CUpti_ActivityKind, void* config) = nullptr;
    CUptiResult (*disable)(CUpti_SubscriberHandle, CUpti_ActivityKind, void* config) = nullptr;
    CUptiResult (*next_record)(CUpti_SubscriberHandle, std::uint8_t*, std::size_t,
                               CUpti_Activity**) = nullptr;
    CUptiResult (*dropped_records)(CUpti_SubscriberHandle, CUcontext, std::uint32_t,
                                   std::size_t*) = nullptr;
    CUptiResult (*timestamp)(CUpti_SubscriberHandle, std::uint64_t*) = nullptr;
};

/// The functions of libcupti that memlab calls. In a usable Library none is null unless noted.
struct Functions {
    decltype(&cuptiGetVersion) get_version = nullptr;
    decltype(&cuptiGetResultString) result_string = nullptr;
    decltype(&cuptiSubscribe) subscribe = nullptr;
    decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
    decltype(&cuptiEnableCallback) enable_callback = nullptr;
    decltype(&cuptiActivityRegisterCallbacks) register_buffers = nullptr;
    decltype(&cuptiActivityEnable) enable = nullptr;
    decltype(&cuptiActivityDisable) disable = nullptr;
    decltype(&cuptiActivityFlushAll) flush_all = nullptr;
    decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
    decltype(&cuptiActivityGetNumDroppedRecords) dropped_records = nullptr;
    decltype(&cuptiGetTimestamp) timestamp = nullptr;
    decltype(&cuptiActivityRegisterTimestampCallback) register_clock = nullptr;  ///< may be null
    SharedFunctions shared;
};

}  // namespace memlab::profiler::cupti
