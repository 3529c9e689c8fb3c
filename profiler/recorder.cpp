#include "profiler/recorder.hpp"

#include <unistd.h>

#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiler/clock.hpp"
#include "profiler/loaded_modules.hpp"
#include "profiler/stack_capture.hpp"
#include "profiler/thread_id.hpp"

namespace memlab::profiler {
namespace {

// FNV-1a over words: stacks differ in few words, and the full comparison follows anyway.
std::uint64_t hash_of(const CapturedStack& stack) {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (std::size_t i = 0; i < stack.depth; ++i) {
        hash = (hash ^ stack.addresses[i]) * 0x100000001b3ULL;
    }
    return hash;
}

}  // namespace

class Recorder::Impl {
  public:
    Impl(std::unique_ptr<trace::LogWriter> log, std::uint32_t stack_depth,
         const trace::ProcessInfo& process)
        : log_(std::move(log)),
          stack_depth_(stack_depth),
          start_ns_(process.start_monotonic_ns),
          aggregator_(std::make_unique<trace::Aggregator>()) {
        emit(process);
    }

    std::uint32_t capture_call_site() {
        if (stack_depth_ == 0) {
            return 0;
        }
        CapturedStack captured;
        capture_stack(captured, stack_depth_);
        if (captured.depth == 0) {
            return 0;
        }
        const std::uint64_t hash = hash_of(captured);
        {
            const std::lock_guard lock(stacks_mutex_);
            if (const std::uint32_t id = find_stack(hash, captured)) {
                return id;
            }
        }
        // Seen for the first time: find the modules with no lock held.
        std::vector<LoadedModule> modules;
        std::vector<std::size_t> module_of(captured.depth, SIZE_MAX);
        for (std::size_t i = 0; i < captured.depth; ++i) {
            // A return address may be one past the end of its function, so of its module.
            const std::uintptr_t address = captured.addresses[i] - 1;
            for (std::size_t m = 0; m < modules.size(); ++m) {
                if (address >= modules[m].start && address < modules[m].end) {
                    module_of[i] = m;
                }
            }
            LoadedModule found;
            if (module_of[i] == SIZE_MAX && find_loaded_module(address, &found)) {
                module_of[i] = modules.size();
                modules.push_back(std::move(found));
            }
        }
        const std::lock_guard lock(stacks_mutex_);
        if (const std::uint32_t id = find_stack(hash, captured)) {
            return id;
        }
        return define_stack(hash, captured, modules, module_of);
    }

    std::uint32_t string_id(std::string_view text) {
        const std::string key(text.substr(0, 65536));
        const std::lock_guard lock(mutex_);
        return string_id_locked(key);
    }

    template <class Timed>
    void record_timed(Timed& record) {
        const std::lock_guard lock(mutex_);
        record.time_ns = now();
        emit(record);
    }

    template <class Plain>
    void record_plain(const Plain& record) {
        const std::lock_guard lock(mutex_);
        emit(record);
    }

    void missed(std::string_view reason, std::uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        trace::Missed missed;
        missed.reason = string_id_locked(std::string(reason));
        missed.bytes = bytes;
        missed.time_ns = now();
        emit(missed);
    }

    // No exception may reach the program whose call is being recorded.
    template <class Value, class Body>
    Value quietly(Value otherwise, const Body& body) noexcept {
        try {
            return body();
        } catch (const std::bad_alloc&) {
            give_up();
            return otherwise;
        }
    }

    template <class Body>
    void quietly(const Body& body) noexcept {
        quietly(0, [&] {
            body();
            return 0;
        });
    }

    // The host is out of memory: what was recorded so far stays, and nothing is added. The log
    // then lacks its End and reads as cut off, which is true.
    void give_up() noexcept {
        const std::lock_guard lock(mutex_);
        finished_ = true;
    }

    void finish(trace::EndKind kind) {
        const std::lock_guard lock(mutex_);
        if (finished_) {
            return;
        }
        trace::End end;
        end.kind = kind;
        end.time_ns = now();
        if (log_) {
            end.events_dropped = log_->events_dropped();
            end.log_stopped_because = log_->stopped_because();
        }
        emit(end);
        finished_ = true;
        if (log_) {
            log_->close();
        }
    }

    const trace::Aggregator& aggregate() const { return *aggregator_; }

    void look_at(void (*look)(void*, const trace::Aggregator&), void* object) {
        const std::lock_guard lock(mutex_);
        look(object, *aggregator_);
    }

    std::string log_problem() const { return log_ ? log_->stopped_because() : std::string(); }

    void abandon_after_fork() {
        if (log_) {
            log_->abandon_after_fork();
        }
    }

  private:
    struct StoredStack {
        std::uint32_t id;
        std::vector<std::uintptr_t> addresses;
    };

    std::uint32_t find_stack(std::uint64_t hash, const CapturedStack& captured) const {
        const auto [begin, end] = stacks_.equal_range(hash);
        for (auto it = begin; it != end; ++it) {
            const std::vector<std::uintptr_t>& known = it->second.addresses;
            if (known.size() == captured.depth &&
                std::memcmp(known.data(), captured.addresses,
                            captured.depth * sizeof(std::uintptr_t)) == 0) {
                return it->second.id;
            }
        }
        return 0;
    }

    std::uint32_t define_stack(std::uint64_t hash, const CapturedStack& captured,
                               const std::vector<LoadedModule>& modules,
                               const std::vector<std::size_t>& module_of) {
        trace::StackDef definition;
        definition.id = next_stack_++;
        definition.truncated = captured.truncated;
        const std::lock_guard lock(mutex_);
        std::vector<std::uint32_t> ids;
        ids.reserve(modules.size());
        for (const LoadedModule& module : modules) {
            ids.push_back(module_id_locked(module));
        }
        for (std::size_t i = 0; i < captured.depth; ++i) {
            trace::Frame frame;
            frame.address = captured.addresses[i];
            if (module_of[i] != SIZE_MAX) {
                frame.module = ids[module_of[i]];
                frame.address -= modules[module_of[i]].bias;
            }
            definition.frames.push_back(frame);
        }
        emit(definition);
        stacks_.emplace(
            hash,
            StoredStack{definition.id, {captured.addresses, captured.addresses + captured.depth}});
        return definition.id;
    }

    std::uint32_t module_id_locked(const LoadedModule& module) {
        for (const trace::ModuleDef& known : modules_) {
            if (known.start == module.start && known.end == module.end &&
                known.path == module.path && known.build_id == module.build_id) {
                return known.id;
            }
        }
        trace::ModuleDef definition;
        definition.id = static_cast<std::uint32_t>(modules_.size() + 1);
        definition.path = module.path;
        definition.build_id = module.build_id;
        definition.bias = module.bias;
        definition.start = module.start;
        definition.end = module.end;
        modules_.push_back(definition);
        emit(definition);
        return definition.id;
    }

    std::uint32_t string_id_locked(const std::string& text) {
        const auto [it, added] =
            strings_.try_emplace(text, static_cast<std::uint32_t>(strings_.size() + 1));
        if (added) {
            trace::StringDef definition;
            definition.id = it->second;
            definition.text = text;
            emit(definition);
        }
        return it->second;
    }

    // Under mutex_, so that times never decrease in the log.
    std::uint64_t now() const { return monotonic_ns() - start_ns_; }

    template <class Record>
    void emit(const Record& record) {
        if (finished_) {
            return;
        }
        if (log_) {
            log_->on(record);
        }
        aggregator_->on(record);
    }

    const std::unique_ptr<trace::LogWriter> log_;
    const std::uint32_t stack_depth_;
    const std::uint64_t start_ns_;

    std::mutex stacks_mutex_;  // before mutex_
    std::unordered_multimap<std::uint64_t, StoredStack> stacks_;
    std::uint32_t next_stack_ = 1;

    std::mutex mutex_;
    std::unique_ptr<trace::Aggregator> aggregator_;
    std::unordered_map<std::string, std::uint32_t> strings_;
    std::vector<trace::ModuleDef> modules_;
    bool finished_ = false;
};

Recorder::Recorder(std::unique_ptr<trace::LogWriter> log, std::uint32_t stack_depth,
                   const trace::ProcessInfo& process)
    : impl_(std::make_unique<Impl>(std::move(log), stack_depth, process)) {}

Recorder::~Recorder() = default;

std::uint32_t Recorder::capture_call_site() noexcept {
    return impl_->quietly(std::uint32_t{0}, [&] { return impl_->capture_call_site(); });
}

std::uint32_t Recorder::string_id(std::string_view text) noexcept {
    return impl_->quietly(std::uint32_t{0}, [&] { return impl_->string_id(text); });
}

void Recorder::record(trace::Event event) noexcept {
    event.thread = thread_id();
    impl_->quietly([&] { impl_->record_timed(event); });
}

void Recorder::record(trace::OomEvent event) noexcept {
    event.thread = thread_id();
    impl_->quietly([&] { impl_->record_timed(event); });
}

void Recorder::record(trace::DeviceSample sample) noexcept {
    impl_->quietly([&] { impl_->record_timed(sample); });
}

void Recorder::record(const trace::OptionValue& option) noexcept {
    impl_->quietly([&] { impl_->record_plain(option); });
}

void Recorder::record(const trace::DeviceInfo& device) noexcept {
    impl_->quietly([&] { impl_->record_plain(device); });
}

void Recorder::record(const trace::ContextInfo& context) noexcept {
    impl_->quietly([&] { impl_->record_plain(context); });
}

void Recorder::context_lost(std::uint32_t context) noexcept {
    trace::ContextLost lost;
    lost.context = context;
    impl_->quietly([&] { impl_->record_timed(lost); });
}

void Recorder::missed(std::string_view reason, std::uint64_t bytes) noexcept {
    impl_->quietly([&] { impl_->missed(reason, bytes); });
}

void Recorder::finish(trace::EndKind kind) noexcept {
    impl_->quietly([&] { impl_->finish(kind); });
}

const trace::Aggregator& Recorder::aggregate() const {
    return impl_->aggregate();
}

void Recorder::look_at(void (*look)(void*, const trace::Aggregator&), void* object) const {
    impl_->look_at(look, object);
}

std::string Recorder::log_problem() const {
    return impl_->log_problem();
}

void Recorder::abandon_after_fork() {
    impl_->abandon_after_fork();
}

}  // namespace memlab::profiler
