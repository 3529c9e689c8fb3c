#include "interpose/process/cupti_subscription.hpp"

#include <cstdlib>
#include <ctime>
#include <new>
#include <string_view>

#include "interpose/driver/diagnostics.hpp"
#include "interpose/driver/loaded_objects.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/driver/reentrancy.hpp"
#include "interpose/memory/memory.hpp"
#include "interpose/process/process_description.hpp"

namespace memlab::interpose {
namespace {

using profiler::cupti::Subscriber;

struct KnownProfiler {
    std::string_view prefix;
    const char* name;
};
constexpr KnownProfiler profilers[] = {
    {"libtorch_cpu.so", "PyTorch, whose profiler (kineto) uses CUPTI,"},
    {"libkineto", "kineto"},
    {"xla_cuda_plugin", "XLA (JAX), whose profiler uses CUPTI,"},
    {"libtensorflow", "TensorFlow, whose profiler uses CUPTI,"},
    {"libToolsInjection", "an NVIDIA tool"},
    {"libscorep_adapter_cuda", "Score-P"},
};

bool is_set(const char* variable) {
    const char* const value = std::getenv(variable);
    return value != nullptr && value[0] != '\0';
}

}  // namespace

const char* profiler_of_file(const char* file_name) {
    const std::string_view name(file_name);
    for (const KnownProfiler& known : profilers) {
        if (name.starts_with(known.prefix)) {
            return known.name;
        }
    }
    return nullptr;
}

std::string other_profiler() {
    const char* name = nullptr;
    unsigned long long loads = 0;
    find_loaded_object(&loads, [&name](const char* file) {
        name = profiler_of_file(file);
        return name != nullptr;
    });
    return name == nullptr ? std::string() : name;
}

std::string CuptiSubscription::reason_not_to_subscribe(const Memory& memory) const {
    const Settings& settings = memory.settings();
    if (settings.cupti == CuptiUse::off) {
        return "MEMLAB_CUPTI=off.";
    }
    if (activities_of_program.load(std::memory_order_relaxed)) {
        return "The program uses CUPTI's activities itself.";
    }
    if (settings.cupti == CuptiUse::on) {
        return {};
    }
    constexpr const char* override_hint = " (MEMLAB_CUPTI=on subscribes anyway).";
    for (const char* variable : {"CUDA_INJECTION64_PATH", "CUDA_INJECTION32_PATH"}) {
        if (is_set(variable)) {
            return std::string(variable) + " is set: that tool stays CUPTI's only subscriber" +
                   override_hint;
        }
    }
    if (const std::string tool = active_tool(); !tool.empty()) {
        return tool + " is active: it stays CUPTI's only subscriber" + override_hint;
    }
    if (const std::string other = other_profiler(); !other.empty()) {
        return other + " is in the process: it stays CUPTI's only subscriber" + override_hint;
    }
    return {};
}

bool CuptiSubscription::start(Memory& memory) noexcept {
    const Settings& settings = memory.settings();
    const bool forced = settings.cupti == CuptiUse::on;
    profiler::Recorder* const recorder = memory.recorder();
    if (recorder == nullptr || (!forced && !settings.audit && !settings.kernels)) {
        return false;
    }
    memory_ = &memory;
    automatic_ = !forced;
    try {
        if (const std::string reason = reason_not_to_subscribe(memory); !reason.empty()) {
            record_coverage(false, reason, 0, 0);
            return false;
        }
        int driver_version = 0;
        call_real(&Driver::cuDriverGetVersion, &driver_version);
        const profiler::cupti::Library library =
            profiler::cupti::open_library(libc_dlsym(), driver_version);
        library_ = library.name;
        if (!library.usable) {
            record_coverage(false, library.problem, 0, 0);
            return false;
        }
        profiler::cupti::SubscriberOptions options;
        options.audit = settings.audit || forced;
        options.work = settings.kernels;
        options.inside_memlab = &thread_is_inside_memlab;
        audit_ = options.audit;
        auto* const subscriber = new Subscriber(library, *recorder, options);  // never destroyed
        subscriber_.store(subscriber, std::memory_order_release);  // before its first callback
        memory.audit_with(&subscriber->audit());
        if (const std::string problem = subscriber->subscribe(); !problem.empty()) {
            memory.audit_with(nullptr);
            subscriber_.store(nullptr, std::memory_order_release);
            record_coverage(false, problem, 0, 0);
            return false;
        }
        debug("subscribed to CUPTI: " + library_);
        return true;
    } catch (const std::bad_alloc&) {
        recorder->report_limitation("the host was out of memory: CUPTI was not used", 0);
        return false;
    }
}

void CuptiSubscription::detect_other_profilers() noexcept {
    const Subscriber* const subscriber = subscriber_.load(std::memory_order_acquire);
    if (subscriber == nullptr || !automatic_ || !subscriber->subscribed()) {
        return;
    }
    unsigned long long loads = objects_seen_.load(std::memory_order_relaxed);
    const bool found = find_loaded_object(
        &loads, [](const char* file) { return profiler_of_file(file) != nullptr; });
    objects_seen_.store(loads, std::memory_order_relaxed);
    if (found) {
        yield_requested_.store(true, std::memory_order_relaxed);
        memory_->report_growth();
    }
}

bool CuptiSubscription::shares_with_others() const {
    const Subscriber* const subscriber = subscriber_.load(std::memory_order_acquire);
    return subscriber != nullptr && subscriber->shares_cupti();
}

void CuptiSubscription::before_context_ends() noexcept {
    if (Subscriber* const subscriber = subscriber_.load(std::memory_order_acquire)) {
        subscriber->flush();
    }
}

void CuptiSubscription::yield_subscription() noexcept {
    Subscriber* const subscriber = subscriber_.load(std::memory_order_acquire);
    if (subscriber == nullptr) {
        return;
    }
    const threads::LockGuard lock(yield_mutex_);
    yield_requested_.store(false, std::memory_order_relaxed);
    if (!subscriber->unsubscribe()) {
        return;
    }
    try {
        debug("unsubscribing from CUPTI for another profiler");
        yield_reason_ =
            "Another profiler wants to be CUPTI's only subscriber, so memlab unsubscribed: "
            "what came after that was not recorded.";
        conclude_audit();
    } catch (const std::bad_alloc&) {
        memory_->recorder()->report_limitation(
            "the host was out of memory: the audit was not finished", 0);
    }
}

void CuptiSubscription::finish() noexcept {
    Subscriber* const subscriber = subscriber_.load(std::memory_order_acquire);
    if (subscriber == nullptr) {
        return;
    }
    const threads::LockGuard lock(yield_mutex_);
    if (!subscriber->unsubscribe()) {
        return;
    }
    // Another thread may be between the driver's return and its hook's record: wait up to 20 ms.
    for (int attempt = 0; attempt < 20 && audit_ && subscriber->audit().has_pending(); ++attempt) {
        const timespec moment{0, 1'000'000};
        nanosleep(&moment, nullptr);
    }
    try {
        conclude_audit();
    } catch (const std::bad_alloc&) {
        memory_->recorder()->report_limitation(
            "the host was out of memory: the audit was not finished", 0);
    }
}

void CuptiSubscription::conclude_audit() {
    if (!audit_) {
        record_coverage(false, yield_reason_.empty() ? trace::Coverage::not_wanted : yield_reason_,
                        0, 0);
        return;
    }
    profiler::Recorder& recorder = *memory_->recorder();
    const profiler::cupti::Audit::Result found =
        subscriber_.load(std::memory_order_acquire)->audit().result();
    std::string because = yield_reason_;
    if (because.empty() && found.overflowed) {
        because = "The driver made more allocations at once than the audit can track.";
    } else if (because.empty() && found.records == 0 && found.known != 0) {
        because = "CUPTI delivered no record of an allocation, though there were " +
                  std::to_string(found.known) + ".";
    }
    if (!found.overflowed) {
        for (const profiler::cupti::Audit::Bypass& left : found.bypassed) {
            memory_->contexts().describe_device(static_cast<CUdevice>(left.record.device));
            trace::Bypass bypass;
            bypass.kind = left.record.kind;
            bypass.device = left.record.device;
            bypass.api = left.api;
            bypass.stack = left.stack;
            bypass.address = left.record.address;
            bypass.bytes = left.record.bytes;
            recorder.record(bypass);
        }
    }
    record_coverage(because.empty(), because, found.records, found.bytes);
}

void CuptiSubscription::record_coverage(bool audited, const std::string& because,
                                        std::uint64_t count, std::uint64_t bytes) {
    profiler::Recorder& recorder = *memory_->recorder();
    trace::Coverage coverage;
    coverage.audited = audited;
    coverage.because = because.empty() ? 0 : recorder.string_id(because);
    coverage.cupti = library_.empty() ? 0 : recorder.string_id(library_);
    coverage.count = count;
    coverage.bytes = bytes;
    if (const Subscriber* const subscriber = subscriber_.load(std::memory_order_acquire)) {
        coverage.lost = subscriber->lost_records();
    }
    recorder.record(coverage);
}

}  // namespace memlab::interpose
