// The simulated CUPTI: the functions that memlab and the tests' profilers call, over what the
// simulated driver and runtime tell (tests/simcuda/tool.h), in CUPTI's own ABI.
//
// Like the real one it takes one subscriber, numbers calls across runtime and driver, gives a
// record the number of the outermost call, fills buffers that the subscriber lends, and delivers
// them late: from a thread of its own once many records wait, and when it is flushed.
//
// It is CUPTI 13.0 or, built with SIMCUPTI_MAJOR=12, CUPTI 12.4: each with its own records and
// functions.
//
// SIMCUPTI_SHARED=130301, a version: it is that CUPTI, with several subscribers, if all of them
// allow for it by cuptiSubscribe_v2 and use the functions that name a subscriber. One that set up
// activities by the functions that name none counts as one that does not allow for others.
//
// SIMCUPTI_FAULT, one of:
//   subscriber_already   there is a subscriber already
//   old_version  it is CUPTI of CUDA 11.8
//   no_activity  activities cannot be switched on
//   silent       no buffer is ever delivered
//   late         buffers are delivered by a flush only
// Another word is one line on stderr and exit code 2.
#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "profiler/cupti/functions.hpp"
#include "tests/simcuda/simcuda.h"
#include "tests/simcuda/tool.h"

namespace {

#if SIMCUPTI_MAJOR == 12
constexpr std::uint32_t api_version = 22;
using MemoryRecord = CUpti_ActivityMemory3;
using KernelRecord = CUpti_ActivityKernel9;
using CopyRecord = CUpti_ActivityMemcpy5;
#else
constexpr std::uint32_t api_version = 130001;
using MemoryRecord = CUpti_ActivityMemory4;
using KernelRecord = CUpti_ActivityKernel10;
using CopyRecord = CUpti_ActivityMemcpy6;
#endif

enum class Fault { none, subscriber_already, old_version, no_activity, silent, late };

Fault fault() {
    static const Fault chosen = [] {
        const char* const text = std::getenv("SIMCUPTI_FAULT");
        const std::string word = text != nullptr ? text : "";
        const std::pair<const char*, Fault> words[] = {
            {"", Fault::none},
            {"subscriber_already", Fault::subscriber_already},
            {"old_version", Fault::old_version},
            {"no_activity", Fault::no_activity},
            {"silent", Fault::silent},
            {"late", Fault::late}};
        for (const auto& [name, value] : words) {
            if (word == name) {
                return value;
            }
        }
        std::fprintf(stderr, "simcupti: SIMCUPTI_FAULT=%s is none of its words\n", word.c_str());
        std::_Exit(2);
    }();
    return chosen;
}

struct CallName {
    const char* name;
    CUpti_CallbackId id;
};
const CallName runtime_names[] = {
#define MEMLAB_RUNTIME_CALL(version, name) {#name, CUPTI_RUNTIME_TRACE_CBID_##version},
#include "profiler/cupti/calls.inc"
#undef MEMLAB_RUNTIME_CALL
};
const CallName driver_names[] = {
#define MEMLAB_DRIVER_CALL(name) {#name, CUPTI_DRIVER_TRACE_CBID_##name},
#include "profiler/cupti/calls.inc"
#undef MEMLAB_DRIVER_CALL
};

using memlab::profiler::cupti::SubscriberParameters;
using Record = std::vector<std::uint64_t>;  // words, for the alignment

/// Of a CUPTI with several subscribers; 0: it has not.
std::uint32_t shared_version() {
    static const std::uint32_t version = [] {
        const char* const text = std::getenv("SIMCUPTI_SHARED");
        return text == nullptr || SIMCUPTI_MAJOR < 13
                   ? 0U
                   : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
    }();
    return version;
}

bool is_shared() {
    return shared_version() != 0;
}

struct Subscriber {
    CUpti_CallbackFunc callback = nullptr;
    void* user = nullptr;
    std::set<std::pair<int, CUpti_CallbackId>> enabled;
    std::function<void(std::uint8_t**, std::size_t*, std::size_t*)> request;
    std::function<void(std::uint8_t*, std::size_t, std::size_t)> complete;
    std::set<int> kinds;
    std::vector<Record> waiting;
};

struct State {
    std::mutex mutex;
    std::condition_variable many;
    Subscriber only;                  // of the functions that name no subscriber
    std::vector<Subscriber*> shared;  // never destroyed
    CUpti_TimestampCallbackFunc clock = nullptr;
    bool thread_started = false;
    std::set<std::string> names;  // of kernels: their text must stay

    std::vector<Subscriber*> all() {
        std::vector<Subscriber*> subscribers = shared;
        subscribers.push_back(&only);
        return subscribers;
    }
};

// Never destroyed: threads may call until the very end.
State& state() {
    static State& once = *new State;
    return once;
}

constexpr std::size_t many_records = 48;
std::atomic<std::uint32_t> next_correlation{1};

thread_local std::vector<std::uint32_t> numbers;  // of the calls that this thread is in

std::uint64_t time_now() {
    CUpti_TimestampCallbackFunc clock = nullptr;
    {
        const std::lock_guard lock(state().mutex);
        clock = state().clock;
    }
    if (clock != nullptr) {
        return clock();
    }
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(now.tv_nsec);
}

template <std::size_t size>
CUpti_CallbackId id_of(const CallName (&names)[size], const char* name) {
    for (const CallName& known : names) {
        if (std::strcmp(known.name, name) == 0) {
            return known.id;
        }
    }
    return 0;
}

void call(CUpti_CallbackDomain domain, CUpti_CallbackId id, const char* name, int entering) {
    if (entering != 0) {
        numbers.push_back(next_correlation++);
    } else if (numbers.empty()) {
        return;  // it was under way when the tool was attached
    }
    const std::uint32_t number = numbers.back();
    std::vector<std::pair<CUpti_CallbackFunc, void*>> callbacks;
    {
        const std::lock_guard lock(state().mutex);
        for (const Subscriber* each : state().all()) {
            if (id != 0 && each->callback != nullptr && each->enabled.count({domain, id}) != 0) {
                callbacks.emplace_back(each->callback, each->user);
            }
        }
    }
    for (const auto& [callback, user] : callbacks) {
        CUpti_CallbackData data{};
        data.callbackSite = entering != 0 ? CUPTI_API_ENTER : CUPTI_API_EXIT;
        data.functionName = name;
        data.correlationId = number;
        callback(user, domain, id, &data);
    }
    if (entering == 0) {
        numbers.pop_back();
    }
}

void driver_call(const char* symbol, int entering) {
    call(CUPTI_CB_DOMAIN_DRIVER_API, id_of(driver_names, symbol), symbol, entering);
}

void runtime_call(const char* name, int entering) {
    call(CUPTI_CB_DOMAIN_RUNTIME_API, id_of(runtime_names, name), name, entering);
}

template <class Activity>
void keep(const Activity& activity) {
    Record record((sizeof activity + 7) / 8);
    std::memcpy(record.data(), &activity, sizeof activity);
    const std::lock_guard lock(state().mutex);
    for (Subscriber* each : state().all()) {
        if (each->kinds.count(static_cast<int>(activity.kind)) != 0) {
            each->waiting.push_back(record);
            if (each->waiting.size() >= many_records) {
                state().many.notify_one();
            }
        }
    }
}

std::uint32_t outermost() {
    return numbers.empty() ? 0 : numbers.front();
}

void memory(simcuda_memory_kind kind, std::uint64_t address, std::uint64_t bytes, int device) {
    MemoryRecord record{};
    record.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
    record.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
    record.memoryKind = kind == simcuda_managed  ? CUPTI_ACTIVITY_MEMORY_KIND_MANAGED
                        : kind == simcuda_pinned ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED
                                                 : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    record.isAsync = kind == simcuda_async ? 1 : 0;
    record.correlationId = outermost();
    record.address = address;
    record.bytes = bytes;
    record.timestamp = time_now();
    record.deviceId = static_cast<std::uint32_t>(device);
    keep(record);
}

void work(simcuda_work_kind kind, const char* name, std::uint64_t nanoseconds, int device) {
    const std::uint64_t start = time_now();
    const auto fill_in = [&](auto& record) {
        record.correlationId = outermost();
        record.start = start;
        record.end = start + nanoseconds;
        record.deviceId = static_cast<std::uint32_t>(device);
    };
    if (kind == simcuda_kernel_work) {
        KernelRecord record{};
        record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
        fill_in(record);
        {
            const std::lock_guard lock(state().mutex);
            record.name = state().names.insert(name).first->c_str();
        }
        keep(record);
    } else if (kind == simcuda_copy_work) {
        CopyRecord record{};
        record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
        fill_in(record);
        keep(record);
    } else {
        CUpti_ActivityMemset4 record{};
        record.kind = CUPTI_ACTIVITY_KIND_MEMSET;
        fill_in(record);
        keep(record);
    }
}

constexpr simcuda_tool tool = {driver_call, runtime_call, memory, work};

void deliver_to(Subscriber& subscriber) {
    std::vector<Record> records;
    decltype(subscriber.request) request;
    decltype(subscriber.complete) complete;
    {
        const std::lock_guard lock(state().mutex);
        records.swap(subscriber.waiting);
        request = subscriber.request;
        complete = subscriber.complete;
    }
    std::size_t next = 0;
    while (next < records.size() && request != nullptr) {
        std::uint8_t* buffer = nullptr;
        std::size_t size = 0;
        std::size_t most = 0;
        request(&buffer, &size, &most);
        if (buffer == nullptr) {
            return;
        }
        std::size_t valid = 0;
        for (; next < records.size() && valid + records[next].size() * 8 <= size; ++next) {
            std::memcpy(buffer + valid, records[next].data(), records[next].size() * 8);
            valid += records[next].size() * 8;
        }
        complete(buffer, size, valid);
    }
}

// Called with nothing locked: the subscriber's functions may take as long as they like.
void deliver() {
    if (fault() == Fault::silent) {
        return;
    }
    // A flush returns when all records are delivered, those that another thread is about to as
    // well.
    static std::mutex& delivering = *new std::mutex;
    const std::lock_guard one_at_a_time(delivering);
    std::vector<Subscriber*> subscribers;
    {
        const std::lock_guard lock(state().mutex);
        subscribers = state().all();
    }
    for (Subscriber* each : subscribers) {
        deliver_to(*each);
    }
}

void run() {
    for (;;) {
        {
            std::unique_lock lock(state().mutex);
            state().many.wait(lock, [] {
                const auto all = state().all();
                return std::any_of(all.begin(), all.end(), [](const Subscriber* each) {
                    return each->waiting.size() >= many_records;
                });
            });
        }
        deliver();
    }
}

std::size_t size_of(const CUpti_Activity& record) {
    switch (record.kind) {
        case CUPTI_ACTIVITY_KIND_MEMORY2:
            return sizeof(MemoryRecord);
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
            return sizeof(KernelRecord);
        case CUPTI_ACTIVITY_KIND_MEMCPY:
            return sizeof(CopyRecord);
        default:
            return sizeof(CUpti_ActivityMemset4);
    }
}

CUptiResult next_record(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
    std::uint8_t* next = buffer;
    if (*record != nullptr) {
        next = reinterpret_cast<std::uint8_t*>(*record) + (size_of(**record) + 7) / 8 * 8;
    }
    if (next >= buffer + valid) {
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    }
    *record = reinterpret_cast<CUpti_Activity*>(next);
    return CUPTI_SUCCESS;
}

// As CUPTI does before it records anything; and it then crashes in some frees.
void take_private_table() {
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == nullptr) {
        return;
    }
    const auto take =
        reinterpret_cast<decltype(&cuGetExportTable)>(dlsym(driver, "cuGetExportTable"));
    CUuuid name;
    std::memcpy(name.bytes, SIMCUDA_PRIVATE_TABLE, sizeof(name.bytes));
    const void* table = nullptr;
    take(&table, &name);
    reinterpret_cast<decltype(&simcuda_break_free_async)>(
        dlsym(driver, "simcuda_break_free_async"))();
}

bool attach() {
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == nullptr) {
        return false;
    }
    const auto set =
        reinterpret_cast<decltype(&simcuda_set_tool)>(dlsym(driver, "simcuda_set_tool"));
    if (set == nullptr) {
        return false;
    }
    set(&tool);
    return true;
}

// With the state locked.
void start_thread() {
    if (!state().thread_started && fault() != Fault::late) {
        state().thread_started = true;
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        std::thread(run).detach();
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
}

CUptiResult enable_kind(Subscriber& subscriber, CUpti_ActivityKind kind) {
    if (fault() == Fault::no_activity) {
        return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
    }
    if (kind == CUPTI_ACTIVITY_KIND_MEMORY2) {
        take_private_table();
    }
    attach();
    const std::lock_guard lock(state().mutex);
    subscriber.kinds.insert(kind);
    return CUPTI_SUCCESS;
}

// What the functions that name no subscriber answer while there are shared ones.
bool is_mixed() {
    const std::lock_guard lock(state().mutex);
    return !state().shared.empty();
}

Subscriber& subscriber_of(CUpti_SubscriberHandle handle) {
    return *reinterpret_cast<Subscriber*>(handle);
}

}  // namespace

extern "C" {

CUptiResult cuptiGetVersion(std::uint32_t* version) {
    *version = fault() == Fault::old_version ? 18 : is_shared() ? shared_version() : api_version;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
    *text = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
                : "CUPTI_ERROR_SIMULATED";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                           void* user) {
    const std::lock_guard lock(state().mutex);
    if (state().only.callback != nullptr || !state().shared.empty() ||
        fault() == Fault::subscriber_already) {
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    if (!attach()) {
        return CUPTI_ERROR_NOT_INITIALIZED;
    }
    state().only.callback = callback;
    state().only.user = user;
    *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&state().only);
    return CUPTI_SUCCESS;
}

#if SIMCUPTI_MAJOR >= 13
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                              void* user, CUpti_SubscriberParams* parameters) {
    const auto* const given = reinterpret_cast<const SubscriberParameters*>(parameters);
    if (!is_shared() || given == nullptr || given->structSize < sizeof(*given) ||
        given->allowMultipleSubscribers == 0) {
        return cuptiSubscribe(subscriber, callback, user);
    }
    const std::lock_guard lock(state().mutex);
    if (state().only.callback != nullptr || state().only.request != nullptr ||
        !state().only.kinds.empty() || fault() == Fault::subscriber_already) {
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    if (!attach()) {
        return CUPTI_ERROR_NOT_INITIALIZED;
    }
    auto* const one = new Subscriber;
    one->callback = callback;
    one->user = user;
    state().shared.push_back(one);
    *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(one);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks_v2(CUpti_SubscriberHandle handle,
                                              void (*request)(std::uint8_t**, std::size_t*,
                                                              std::size_t*, void*),
                                              void (*complete)(std::uint8_t*, std::size_t,
                                                               std::size_t, void*)) {
    const std::lock_guard lock(state().mutex);
    subscriber_of(handle).request = [=](auto... arguments) { request(arguments..., nullptr); };
    subscriber_of(handle).complete = [=](auto... arguments) { complete(arguments..., nullptr); };
    start_thread();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable_v2(CUpti_SubscriberHandle handle, CUpti_ActivityKind kind, void*) {
    return enable_kind(subscriber_of(handle), kind);
}

CUptiResult cuptiActivityDisable_v2(CUpti_SubscriberHandle handle, CUpti_ActivityKind kind, void*) {
    const std::lock_guard lock(state().mutex);
    subscriber_of(handle).kinds.erase(kind);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord_v2(CUpti_SubscriberHandle, std::uint8_t* buffer,
                                          std::size_t valid, CUpti_Activity** record) {
    return next_record(buffer, valid, record);
}

CUptiResult cuptiActivityGetNumDroppedRecords_v2(CUpti_SubscriberHandle, CUcontext, std::uint32_t,
                                                 std::size_t* dropped) {
    *dropped = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp_v2(CUpti_SubscriberHandle, std::uint64_t* timestamp) {
    *timestamp = time_now();
    return CUPTI_SUCCESS;
}
#endif

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle handle) {
    const std::lock_guard lock(state().mutex);
    subscriber_of(handle).callback = nullptr;
    subscriber_of(handle).enabled.clear();
    if (subscriber_of(handle).kinds.empty()) {
        subscriber_of(handle).request = nullptr;  // nothing is left that others could not be beside
    }
    state().shared.erase(
        std::remove(state().shared.begin(), state().shared.end(), &subscriber_of(handle)),
        state().shared.end());
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(std::uint32_t enable, CUpti_SubscriberHandle handle,
                                CUpti_CallbackDomain domain, CUpti_CallbackId id) {
    const std::lock_guard lock(state().mutex);
    if (enable != 0) {
        subscriber_of(handle).enabled.insert({domain, id});
    } else {
        subscriber_of(handle).enabled.erase({domain, id});
    }
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
    if (is_mixed()) {
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    const std::lock_guard lock(state().mutex);
    state().only.request = request;
    state().only.complete = [=](auto... arguments) { complete(nullptr, 0, arguments...); };
    start_thread();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    return is_mixed() ? CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                      : enable_kind(state().only, kind);
}

// Attributes change nothing here, but have their rules.
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, std::size_t*, void*) {
    return is_mixed() ? CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED : CUPTI_SUCCESS;
}

#if SIMCUPTI_MAJOR >= 13
CUptiResult cuptiActivitySetAttribute_v2(CUpti_SubscriberHandle handle, CUpti_ActivityAttribute,
                                         std::size_t*, void*) {
    // Without a subscriber: what only the first one can set.
    return handle == nullptr && is_mixed() ? CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                                           : CUPTI_SUCCESS;
}
#endif

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
    const std::lock_guard lock(state().mutex);
    state().only.kinds.erase(kind);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(std::uint32_t) {
    deliver();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid,
                                       CUpti_Activity** record) {
    return is_mixed() ? CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                      : next_record(buffer, valid, record);
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
    *dropped = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(std::uint64_t* timestamp) {
    *timestamp = time_now();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
    if (is_mixed()) {
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    }
    const std::lock_guard lock(state().mutex);
    state().clock = clock;
    return CUPTI_SUCCESS;
}

}  // extern "C"
