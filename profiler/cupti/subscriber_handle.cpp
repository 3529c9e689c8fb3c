#include "profiler/cupti/subscriber_handle.hpp"

#include <atomic>

namespace memlab::profiler::cupti {
namespace {

// The callbacks of a shared subscription have other arguments, and no user data either.
constinit std::atomic<decltype(BufferCallbacks::provide)> provide_buffer{nullptr};
constinit std::atomic<decltype(BufferCallbacks::consume)> consume_buffer{nullptr};

void provide_shared(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records,
                    void* /*info*/) {
    provide_buffer.load(std::memory_order_acquire)(buffer, size, max_records);
}

void consume_shared(std::uint8_t* buffer, std::size_t size, std::size_t valid, void* /*info*/) {
    consume_buffer.load(std::memory_order_acquire)(nullptr, 0, buffer, size, valid);
}

}  // namespace

CUptiResult SubscriberHandle::subscribe(CUpti_CallbackFunc callback, void* user) noexcept {
    if (shared_) {
        SubscriberParameters parameters{};
        parameters.structSize = sizeof(parameters);
        parameters.subscriberName = "memlab";
        parameters.allowMultipleSubscribers = 1;
        if (cupti_.shared.subscribe(&handle_, callback, user, &parameters) == CUPTI_SUCCESS) {
            return CUPTI_SUCCESS;
        }
        shared_ = false;
    }
    const CUptiResult result = cupti_.subscribe(&handle_, callback, user);
    if (result != CUPTI_SUCCESS) {
        handle_ = nullptr;
    }
    return result;
}

// A shared CUPTI keeps its clock: other subscribers rely on it.
std::uint64_t SubscriberHandle::use_clock(std::uint64_t(CUPTIAPI* now)()) noexcept {
    if (!shared_ && cupti_.register_clock != nullptr &&
        cupti_.register_clock(now) == CUPTI_SUCCESS) {
        return 0;
    }
    std::uint64_t cupti_ns = 0;
    const CUptiResult known =
        shared_ ? cupti_.shared.timestamp(handle_, &cupti_ns) : cupti_.timestamp(&cupti_ns);
    return known == CUPTI_SUCCESS ? now() - cupti_ns : 0;
}

CUptiResult SubscriberHandle::register_buffers(const BufferCallbacks& callbacks) noexcept {
    if (!shared_) {
        return cupti_.register_buffers(callbacks.provide, callbacks.consume);
    }
    provide_buffer.store(callbacks.provide, std::memory_order_release);
    consume_buffer.store(callbacks.consume, std::memory_order_release);
    return cupti_.shared.register_buffers(handle_, provide_shared, consume_shared);
}

CUptiResult SubscriberHandle::enable(CUpti_ActivityKind kind) noexcept {
    return shared_ ? cupti_.shared.enable(handle_, kind, nullptr) : cupti_.enable(kind);
}

void SubscriberHandle::disable(CUpti_ActivityKind kind) noexcept {
    (void)(shared_ ? cupti_.shared.disable(handle_, kind, nullptr) : cupti_.disable(kind));
}

CUpti_Activity* SubscriberHandle::next_record(std::uint8_t* buffer, std::size_t valid,
                                              CUpti_Activity* record) noexcept {
    const CUptiResult found = shared_ ? cupti_.shared.next_record(handle_, buffer, valid, &record)
                                      : cupti_.next_record(buffer, valid, &record);
    return found == CUPTI_SUCCESS ? record : nullptr;
}

std::size_t SubscriberHandle::dropped_records(CUcontext context, std::uint32_t stream) noexcept {
    std::size_t dropped = 0;
    const CUptiResult known =
        shared_ ? cupti_.shared.dropped_records(handle_, context, stream, &dropped)
                : cupti_.dropped_records(context, stream, &dropped);
    return known == CUPTI_SUCCESS ? dropped : 0;
}

const char* SubscriberHandle::text(CUptiResult result) const noexcept {
    const char* text = nullptr;
    return cupti_.result_string(result, &text) == CUPTI_SUCCESS && text != nullptr
               ? text
               : "an unknown error";
}

}  // namespace memlab::profiler::cupti
