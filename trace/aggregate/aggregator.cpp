#include "trace/aggregate/aggregator.hpp"

#include <charconv>

namespace memlab::trace {

const char* name_of(CurveName curve) {
    static constexpr const char* names[] = {"requested", "allocated", "active", "reserved",
                                            "device_used"};
    return name_in<CurveName::device_used>(names, curve);
}

std::size_t Aggregator::FrameHash::operator()(const Frame& frame) const {
    return HashIndex::mix(frame.address ^ (std::uint64_t{frame.module} << 48) ^
                          (std::uint64_t{frame.python} << 16));
}

Aggregator::Aggregator() : strings_(1), modules_(1), python_frames_(1), stacks_(1) {}

Aggregator::~Aggregator() = default;

void Aggregator::advance(std::uint64_t time_ns) {
    now_ = std::max(now_, time_ns);
}

void Aggregator::advance_to_event(std::uint64_t time_ns, std::uint64_t events) {
    integrity_.earlier_times += time_ns < latest_event_ns_ ? events : 0;
    event_count_ += events;
    latest_event_ns_ = std::max(latest_event_ns_, time_ns);
    advance(time_ns);
}

/// Every sum of bytes is at most that of all allocations and segments. What does not fit into 64
/// bits, which only a wrong file can have, is left out: false.
bool Aggregator::fits(const Event& event) {
    std::uint64_t sum = 0;
    if (__builtin_add_overflow(bytes_so_far_, std::max(event.size, event.requested), &sum)) {
        integrity_.overflowed = true;
        return false;
    }
    bytes_so_far_ = sum;
    return true;
}

// ---- definitions

void Aggregator::on(const ProcessInfo& record) {
    guarded([&] {
        if (!has_process_) {
            process_ = record;
            has_process_ = true;
        }
    });
}

/// Applies an option that the figures depend on. Options are recorded before any memory events.
void Aggregator::apply_option(const OptionValue& option) {
    if (option.name != "MEMLAB_MAX_SPLIT_SIZE_MB" || !devices_.empty()) {
        return;
    }
    std::uint64_t mebibytes = 0;
    const char* const end = option.value.data() + option.value.size();
    const auto [stopped, error] = std::from_chars(option.value.data(), end, mebibytes);
    if (error == std::errc() && stopped == end && mebibytes != 0 && mebibytes >> 44 == 0) {
        max_split_size_ = mebibytes << 20;
    }
}

void Aggregator::on(const OptionValue& record) {
    guarded([&] {
        apply_option(record);
        for (OptionValue& option : options_) {
            if (option.name == record.name) {
                option.value = record.value;
                return;
            }
        }
        options_.push_back(record);
    });
}

void Aggregator::on(const DeviceInfo& record) {
    guarded([&] {
        if (devices_.size() <= record.index) {
            devices_.resize(std::size_t{record.index} + 1);
        }
        auto& device = devices_[record.index];
        if (device == nullptr) {
            device = std::make_unique<DeviceTotals>();
            if (max_split_size_ && record.is_gpu()) {
                device->pool.set_max_split_size(*max_split_size_);
            }
        }
        device->info = record;
    });
}

void Aggregator::on(const ContextInfo& record) {
    guarded([&] { contexts_.push_back({.info = record}); });
}

void Aggregator::on(const ThreadInfo& record) {
    guarded([&] {
        const auto known = thread_names_.find(record.thread);
        if (record.name == 0) {
            thread_names_.erase(record.thread);
        } else if (known != thread_names_.end()) {
            known->second = record.name;
        } else if (thread_names_.size() < max_thread_names) {
            thread_names_.emplace(record.thread, record.name);
        }
    });
}

void Aggregator::on(const StringDef& record) {
    guarded([&] { strings_.push_back(record.text); });
}

void Aggregator::on(const ModuleDef& record) {
    guarded([&] { modules_.push_back(record); });
}

void Aggregator::on(const PythonFrameDef& record) {
    guarded([&] { python_frames_.push_back(record); });
}

void Aggregator::on(const NnModuleStackDef& record) {
    guarded([&] { nn_modules_.on(record); });
}

void Aggregator::on(const NnModuleName& record) {
    guarded([&] { nn_modules_.on(record, strings_[record.name]); });
}

void Aggregator::on(const StackDef& record) {
    guarded([&] {
        StackFrames stack{.frames = {}, .truncated = record.truncated};
        stack.frames.reserve(record.frames.size());
        for (const Frame& frame : record.frames) {
            const auto [at, is_new] =
                frame_index_.try_emplace(frame, static_cast<std::uint32_t>(frames_.size()));
            if (is_new) {
                frames_.push_back(frame);
            }
            stack.frames.push_back(at->second);
        }
        stacks_.push_back(std::move(stack));
    });
}

}  // namespace memlab::trace
