#include "profiler/cupti/subscriber.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <string_view>
#include <unordered_map>

#include "profiler/clock.hpp"
#include "profiler/cupti/buffers.hpp"
#include "profiler/cupti/current_call.hpp"
#include "profiler/cupti/records.hpp"
#include "profiler/cupti/subscriber_handle.hpp"
#include "threads/mutex.hpp"

namespace memlab::profiler::cupti {

namespace {

/// Batches work, so that the recorder's lock is taken once per batch.
class Batch {
  public:
    explicit Batch(Recorder& recorder) : recorder_(recorder) {}

    void add(const trace::Work& work) {
        if (count_ == work_.size()) {
            flush();
        }
        work_[count_++] = work;
    }
    void flush() {
        recorder_.record_work(work_.data(), count_);
        count_ = 0;
    }

  private:
    Recorder& recorder_;
    std::array<trace::Work, 64> work_;
    std::size_t count_ = 0;
};

}  // namespace

class Subscriber::Impl {
  public:
    Impl(const Library& library, Recorder& recorder, const SubscriberOptions& options)
        : handle_(*library.functions, library.several_subscribers),
          recorder_(recorder),
          options_(options),
          batch_(recorder) {}

    std::string subscribe() noexcept;
    bool shares_cupti() const { return subscribed() && handle_.shared(); }
    bool subscribed() const { return subscribed_.load(std::memory_order_acquire); }
    void flush() noexcept;
    bool unsubscribe() noexcept;
    Audit& audit() { return audit_; }
    std::uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }
    void forget() { subscribed_.store(false, std::memory_order_relaxed); }

  private:
    static void CUPTIAPI on_call(void* subscriber, CUpti_CallbackDomain domain,
                                 CUpti_CallbackId function, const void* data);
    static void CUPTIAPI provide_buffer(std::uint8_t** buffer, std::size_t* size,
                                        std::size_t* max_records);
    static void CUPTIAPI consume_buffer(CUcontext context, std::uint32_t stream,
                                        std::uint8_t* buffer, std::size_t size, std::size_t valid);
    static std::uint64_t CUPTIAPI now();

    CUptiResult enable_all() noexcept;
    void disable_all() noexcept;
    void on_runtime_call(CUpti_CallbackId function, const CUpti_CallbackData& data) noexcept;
    void on_driver_call(const CUpti_CallbackData& data) noexcept;
    void read(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
              std::size_t valid) noexcept;
    void add_to_audit(const MemoryRecord& record) noexcept;
    std::uint32_t name_id(const char* name) noexcept MEMLAB_REQUIRES(read_mutex_);
    std::uint64_t to_recording_clock(std::uint64_t time) const { return time + clock_offset_; }

    SubscriberHandle handle_;
    Recorder& recorder_;
    const SubscriberOptions options_;
    Audit audit_;
    BufferPool buffers_;
    std::atomic<bool> subscribed_{false};
    std::atomic<std::uint64_t> lost_{0};
    std::uint64_t clock_offset_ = 0;  ///< recording clock - CUPTI's, if CUPTI cannot use ours

    static constexpr std::size_t runtime_functions = 1024;
    std::atomic<std::uint32_t> api_ids_[runtime_functions] = {};

    struct TextHash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>()(text);
        }
    };
    threads::Mutex read_mutex_;  ///< taken before the recorder's
    /// Not on the stack: CUPTI delivers buffers on the program's threads, too.
    Batch batch_ MEMLAB_GUARDED_BY(read_mutex_);
    std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>> names_
        MEMLAB_GUARDED_BY(read_mutex_);

    // CUPTI's buffer callbacks have no user data argument.
    static std::atomic<Impl*> current;
    friend class Subscriber;
};

constinit std::atomic<Subscriber::Impl*> Subscriber::Impl::current{nullptr};

namespace {

__attribute__((tls_model("initial-exec"))) constinit thread_local CurrentCall thread_call;

struct RuntimeCall {
    CUpti_CallbackId id;
    const char* name;
};
constexpr RuntimeCall runtime_calls[] = {
#define MEMLAB_RUNTIME_CALL(version, name) {CUPTI_RUNTIME_TRACE_CBID_##version, #name},
#include "profiler/cupti/calls.inc"
#undef MEMLAB_RUNTIME_CALL
};
constexpr CUpti_CallbackId driver_calls[] = {
#define MEMLAB_DRIVER_CALL(name) CUPTI_DRIVER_TRACE_CBID_##name,
#include "profiler/cupti/calls.inc"
#undef MEMLAB_DRIVER_CALL
};
constexpr CUpti_ActivityKind work_kinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET};

trace::MemoryKind memory_kind(const MemoryRecord& record) {
    switch (record.memoryKind) {
        case CUPTI_ACTIVITY_MEMORY_KIND_PINNED:
        case CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE:
            return trace::MemoryKind::pinned;
        case CUPTI_ACTIVITY_MEMORY_KIND_ARRAY:
            return trace::MemoryKind::array;
        case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED:
            return trace::MemoryKind::managed;
        default:
            return record.isAsync != 0 ? trace::MemoryKind::async_pool : trace::MemoryKind::device;
    }
}

/// The fields that all record structures share.
template <class Record>
trace::Work make_work(const Record& record, trace::WorkKind kind) {
    trace::Work work;
    work.kind = kind;
    work.device = record.deviceId;
    work.stream = record.streamId;
    work.correlation = record.correlationId;
    work.start_ns = record.start;
    work.end_ns = std::max(record.start, record.end);
    if constexpr (requires { record.bytes; }) {
        work.bytes = record.bytes;
    }
    return work;
}

}  // namespace

[[gnu::hot]] CurrentCall current_call() {
    return thread_call;
}

Subscriber::Subscriber(const Library& library, Recorder& recorder, const SubscriberOptions& options)
    : impl_(new Impl(library, recorder, options)) {}

std::string Subscriber::subscribe() noexcept {
    return impl_->subscribe();
}

bool Subscriber::subscribed() const {
    return impl_->subscribed();
}

bool Subscriber::shares_cupti() const {
    return impl_->shares_cupti();
}

void Subscriber::flush() noexcept {
    impl_->flush();
}

bool Subscriber::unsubscribe() noexcept {
    return impl_->unsubscribe();
}

Audit& Subscriber::audit() {
    return impl_->audit();
}

std::uint64_t Subscriber::lost_records() const {
    return impl_->lost();
}

void Subscriber::forget_after_fork() noexcept {
    thread_call = {};
    if (Impl* const inherited = Impl::current.exchange(nullptr)) {
        inherited->forget();
    }
}

std::string Subscriber::Impl::subscribe() noexcept {
    current.store(this, std::memory_order_release);
    const CUptiResult result = enable_all();
    if (result == CUPTI_SUCCESS) {
        subscribed_.store(true, std::memory_order_release);
        return {};
    }
    disable_all();
    const char* const text = handle_.text(result);
    try {
        if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
            return "Another tool is CUPTI's subscriber, and there can be one (" +
                   std::string(text) + ").";
        }
        return "CUPTI could not be used (" + std::string(text) + ").";
    } catch (const std::bad_alloc&) {
        return "no memory";  // fits the small string buffer
    }
}

CUptiResult Subscriber::Impl::enable_all() noexcept {
    // First of all: fails here if there is another subscriber, before anything of it is changed.
    if (const CUptiResult refused =
            handle_.subscribe(reinterpret_cast<CUpti_CallbackFunc>(on_call), this)) {
        return refused;
    }
    clock_offset_ = handle_.use_clock(now);
    for (const RuntimeCall& call : runtime_calls) {
        if (const CUptiResult failed =
                handle_.enable_callback(CUPTI_CB_DOMAIN_RUNTIME_API, call.id)) {
            return failed;
        }
    }
    if (!options_.audit && !options_.work) {
        return CUPTI_SUCCESS;
    }
    if (const CUptiResult failed = handle_.register_buffers({provide_buffer, consume_buffer})) {
        return failed;
    }
    if (options_.audit) {
        for (const CUpti_CallbackId call : driver_calls) {
            if (const CUptiResult failed =
                    handle_.enable_callback(CUPTI_CB_DOMAIN_DRIVER_API, call)) {
                return failed;
            }
        }
        if (const CUptiResult failed = handle_.enable(CUPTI_ACTIVITY_KIND_MEMORY2)) {
            return failed;
        }
    }
    if (options_.work) {
        for (const CUpti_ActivityKind kind : work_kinds) {
            if (const CUptiResult failed = handle_.enable(kind)) {
                return failed;
            }
        }
    }
    return CUPTI_SUCCESS;
}

void Subscriber::Impl::disable_all() noexcept {
    if (!handle_.subscribed()) {
        return;  // nothing was enabled
    }
    if (options_.audit) {
        handle_.disable(CUPTI_ACTIVITY_KIND_MEMORY2);
    }
    if (options_.work) {
        for (const CUpti_ActivityKind kind : work_kinds) {
            handle_.disable(kind);
        }
    }
    if (options_.audit || options_.work) {
        handle_.flush(true);
    }
    handle_.unsubscribe();
}

void Subscriber::Impl::flush() noexcept {
    if (subscribed() && (options_.audit || options_.work)) {
        handle_.flush(false);
    }
}

bool Subscriber::Impl::unsubscribe() noexcept {
    if (!subscribed_.exchange(false, std::memory_order_acq_rel)) {
        return false;
    }
    disable_all();
    return true;
}

std::uint64_t Subscriber::Impl::now() {
    return monotonic_ns();
}

// ---- callbacks around calls

void Subscriber::Impl::on_call(void* subscriber, CUpti_CallbackDomain domain,
                               CUpti_CallbackId function, const void* data) {
    auto& self = *static_cast<Impl*>(subscriber);
    const auto& call = *static_cast<const CUpti_CallbackData*>(data);
    if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) {
        self.on_runtime_call(function, call);
    } else if (domain == CUPTI_CB_DOMAIN_DRIVER_API && call.callbackSite == CUPTI_API_ENTER) {
        self.on_driver_call(call);
    }
}

void Subscriber::Impl::on_runtime_call(CUpti_CallbackId function,
                                       const CUpti_CallbackData& data) noexcept {
    if (data.callbackSite != CUPTI_API_ENTER || function >= runtime_functions || !subscribed()) {
        thread_call = {};
        return;
    }
    std::atomic<std::uint32_t>& known = api_ids_[function];
    std::uint32_t id = known.load(std::memory_order_relaxed);
    if (id == 0) {
        for (const RuntimeCall& call : runtime_calls) {
            if (call.id == function) {
                id = recorder_.string_id(call.name);
                known.store(id, std::memory_order_relaxed);
            }
        }
    }
    thread_call = {id, data.correlationId};
}

void Subscriber::Impl::on_driver_call(const CUpti_CallbackData& data) noexcept {
    if (!subscribed() || options_.inside_memlab()) {
        return;
    }
    const CurrentCall outer = thread_call;
    const std::uint32_t api = outer.api != 0 ? outer.api : recorder_.string_id(data.functionName);
    const std::uint32_t stack = recorder_.capture_call_site();
    // A record has the correlation id of the outermost call.
    audit_.add_bypass_call(data.correlationId, api, stack);
    if (outer.correlation != 0) {
        audit_.add_bypass_call(outer.correlation, api, stack);
    }
}

// ---- records

void Subscriber::Impl::provide_buffer(std::uint8_t** buffer, std::size_t* size,
                                      std::size_t* max_records) {
    Impl* const self = current.load(std::memory_order_acquire);
    *buffer = self != nullptr ? self->buffers_.acquire() : nullptr;
    *size = *buffer != nullptr ? BufferPool::buffer_bytes : 0;
    *max_records = 0;  // as many as fit
}

void Subscriber::Impl::consume_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                                      std::size_t /*size*/, std::size_t valid) {
    Impl* const self = current.load(std::memory_order_acquire);
    if (self == nullptr || buffer == nullptr) {
        return;
    }
    self->read(context, stream, buffer, valid);
    self->buffers_.release(buffer);
}

void Subscriber::Impl::read(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                            std::size_t valid) noexcept {
    const threads::LockGuard lock(read_mutex_);
    CUpti_Activity* record = nullptr;
    while (valid != 0 && (record = handle_.next_record(buffer, valid, record)) != nullptr) {
        trace::Work work;
        switch (record->kind) {
            case CUPTI_ACTIVITY_KIND_MEMORY2:
                add_to_audit(*reinterpret_cast<const MemoryRecord*>(record));
                continue;
            case CUPTI_ACTIVITY_KIND_KERNEL:
            case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
                const auto& kernel = *reinterpret_cast<const KernelRecord*>(record);
                work = make_work(kernel, trace::WorkKind::kernel);
                work.name = name_id(kernel.name);
                break;
            }
            case CUPTI_ACTIVITY_KIND_MEMCPY:
                work =
                    make_work(*reinterpret_cast<const CopyRecord*>(record), trace::WorkKind::copy);
                break;
            case CUPTI_ACTIVITY_KIND_MEMCPY2:
                work = make_work(*reinterpret_cast<const PeerCopyRecord*>(record),
                                 trace::WorkKind::copy);
                break;
            case CUPTI_ACTIVITY_KIND_MEMSET:
                work =
                    make_work(*reinterpret_cast<const FillRecord*>(record), trace::WorkKind::fill);
                break;
            default:
                continue;
        }
        if (work.start_ns == 0) {
            continue;  // CUPTI has no timestamps for it
        }
        work.start_ns = to_recording_clock(work.start_ns);
        work.end_ns = to_recording_clock(work.end_ns);
        batch_.add(work);
    }
    batch_.flush();
    lost_.fetch_add(handle_.dropped_records(context, stream), std::memory_order_relaxed);
}

void Subscriber::Impl::add_to_audit(const MemoryRecord& record) noexcept {
    // Static variables of modules are not allocations; there are thousands.
    if (record.memoryOperationType != CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION ||
        record.memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC ||
        record.memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC) {
        return;
    }
    audit_.add_record({.address = record.address,
                       .bytes = record.bytes,
                       .monotonic_ns = to_recording_clock(record.timestamp),
                       .correlation = record.correlationId,
                       .device = record.deviceId,
                       .kind = memory_kind(record)});
}

/// The string id of a kernel's name. Looked up by text, not by pointer: after a module unload
/// CUPTI's pointer may be reused for another name.
std::uint32_t Subscriber::Impl::name_id(const char* name) noexcept {
    if (name == nullptr) {
        return 0;
    }
    try {
        const std::string_view text(name);
        if (const auto known = names_.find(text); known != names_.end()) {
            return known->second;
        }
        const std::uint32_t id = recorder_.string_id(text);
        names_.emplace(text, id);
        return id;
    } catch (const std::bad_alloc&) {
        return 0;
    }
}

}  // namespace memlab::profiler::cupti
