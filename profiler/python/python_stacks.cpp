#include "profiler/python/python_stacks.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <string>

#include "profiler/loaded_modules.hpp"
#include "profiler/object_symbols.hpp"
#include "profiler/python/public_api_check.hpp"
#include "profiler/stack_table.hpp"
#include "profiler/unwind/executable_memory.hpp"
#include "profiler/unwind/stack_memory.hpp"
#include "threads/no_cancellation.hpp"

namespace memlab::profiler::python {
PythonStacks::PythonStacks(Mode mode, std::size_t depth, StackDefinitions& definitions)
    : mode_(mode),
      depth_(depth),
      definitions_(definitions),
      state_(mode == Mode::off || depth == 0 ? State::off : State::searching),
      nn_modules_(definitions) {}

void PythonStacks::attach(std::uintptr_t address) {
    if (!searching() || address == 0) {
        return;
    }
    if (search_started_.exchange(true, std::memory_order_acquire)) {
        await_search();
        return;
    }
    Interpreter found;
    std::string why;
    if (find_interpreter(address, &found, &why) == Search::unusable) {
        turn_off(why);
        return;
    }
    interpreter_ = found;
    frame_interner_ = std::make_unique<FrameInterner>(definitions_);
    merged_stacks_ = std::make_unique<MergedStackCache>();
    find_collector(interpreter_);
    state_.store(State::on, std::memory_order_release);
}

/// Only the main interpreter's. From 3.11 on its state is part of the library's or program's own
/// data; before it is on the heap, where no more of it may be read than the layout says.
void PythonStacks::find_collector(const Interpreter& interpreter) {
    if (interpreter.is_initialized() == 0) {
        return;  // it ends: there is no collection any more that would be told
    }
    const Layout& layout = *interpreter.layout;
    const auto state = reinterpret_cast<std::uintptr_t>(interpreter.main_interpreter);
    LoadedModule module;
    std::uintptr_t end = 0;
    if (layout.interpreter_state_bytes != 0) {
        end = state + layout.interpreter_state_bytes;
    } else if (find_loaded_module(state, &module)) {
        end = module.end;
    }
    if (end == 0 || !collector_.find(layout.minor, reinterpret_cast<const void*>(state),
                                     reinterpret_cast<const void*>(end), interpreter.list_type)) {
        definitions_.report_limitation(
            "Python's garbage collector is not where memlab expects it in this build: what it "
            "frees is not told from what the program frees itself");
    }
}

[[gnu::noinline]] bool PythonStacks::collects_here() const {
    return found() && interpreter_.is_initialized() != 0 &&
           Collector::is_on_stack(reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)));
}

std::uintptr_t PythonStacks::interpreter_above(std::uintptr_t sp) {
    constexpr int max_scans = 16;
    constexpr std::size_t max_words = 16384;
    if (scans_.fetch_add(1, std::memory_order_relaxed) >= max_scans) {
        return 0;
    }
    unwind::StackMemory memory(sp);
    std::uintptr_t start = 0;
    std::uintptr_t end = 0;
    std::uintptr_t at = (sp + 7) & ~std::uintptr_t{7};
    for (std::size_t i = 0; i < max_words && at + sizeof at <= memory.high(); ++i) {
        std::uintptr_t word = 0;
        memory.read(at, &word);
        at += sizeof at;
        if (word >= start && word < end) {
            continue;  // in the same object as the last one
        }
        dl_find_object object{};
        if (_dl_find_object(reinterpret_cast<void*>(word), &object) != 0) {
            continue;
        }
        start = reinterpret_cast<std::uintptr_t>(object.dlfo_map_start);
        end = reinterpret_cast<std::uintptr_t>(object.dlfo_map_end);
        if (unwind::follows_call(word) && is_interpreter(ObjectSymbols::at(word))) {
            return word;
        }
    }
    return 0;
}

void PythonStacks::before_unload() {
    if (!found() || pinned_.exchange(true, std::memory_order_relaxed)) {
        return;
    }
    if (!pin(interpreter_)) {
        turn_off(
            "the Python interpreter cannot be kept loaded: call sites are native only from "
            "here on");
    }
}

void PythonStacks::await_search() {
    const threads::NoCancellation no_cancellation;
    constexpr timespec pause{0, 100'000};
    constexpr int max_pauses = 1000;
    const auto is_waiting = [this] {
        return search_started_.load(std::memory_order_acquire) && searching() &&
               !wait_timed_out_.load(std::memory_order_relaxed);
    };
    for (int i = 0; i < max_pauses && is_waiting(); ++i) {
        nanosleep(&pause, nullptr);
    }
    if (is_waiting()) {
        wait_timed_out_.store(true, std::memory_order_relaxed);
    }
}

[[gnu::hot]] bool PythonStacks::read(Frames& frames) {
    constexpr std::string_view implausible =
        "the Python frames' layout is not that of the interpreter's version: call sites are native "
        "only from here on";
    read_frames(interpreter_, depth_.load(std::memory_order_relaxed), frame_interner_->cache(),
                frames);
    if (frames.implausible) {
        turn_off(implausible);
        return false;
    }
    if (frames.activation_count == 0) {
        return false;
    }
    if (!frames.all_known && !frame_interner_->assign_ids(interpreter_, frames.in_main_interpreter,
                                                          frames.frames(), frames.frame_count)) {
        turn_off(implausible);
        return false;
    }
    if (!compared_.load(std::memory_order_relaxed)) {
        switch (compare_with_public_api(interpreter_, frames)) {
            case Comparison::not_now:
                break;
            case Comparison::equal:
                compared_.store(mode_ != Mode::verify, std::memory_order_relaxed);
                break;
            case Comparison::different:
                turn_off(
                    "the Python frames that memlab reads differ from those of the interpreter's "
                    "API: call sites are native only from here on");
                return false;
        }
    }
    return true;
}

[[gnu::noinline]] std::uint32_t PythonStacks::read_nn_modules_of(const FramesHash& frames) {
    // Of more, the innermost.
    std::array<std::uintptr_t, 64> all;
    const std::size_t count = read_nn_modules(interpreter_, frame_interner_->nn_call(), all);
    if (count == 0) {
        return 0;
    }
    const std::span<const std::uintptr_t> calls(all.data(), count);
    std::uint64_t hash = frames.nn_modules;
    if (hash == 0) {
        for (const std::uintptr_t call : calls) {
            hash = hash_nn_module(hash, call);
        }
        if (const std::uint32_t id = nn_modules_.find(hash)) {
            return id;
        }
    }
    if (const auto id = nn_modules_.intern(calls, hash)) {
        return *id;
    }
    if (frame_interner_->reject_nn_call()) {
        definitions_.report_limitation(
            "what PyTorch calls its nn.Modules by is not as memlab knows it: no memory is told to "
            "be an nn.Module's from here on");
    }
    return 0;
}

[[gnu::hot]] std::uintptr_t PythonStacks::innermost_activation() const {
    FrameBuffer<1> frames;
    read_frames(interpreter_, 1, frame_interner_->cache(), frames);
    if (frames.implausible) {
        return 0;  // read() will say so
    }
    return frames.activation_count == 0 ? UINTPTR_MAX
                                        : std::uintptr_t{frames.activations[0].stack_address};
}

/// 3.9: whether the native stack has an activation for each frame, as far as both are known.
bool PythonStacks::fit(const unwind::StackView& native, const Frames& frames) const {
    const auto activations = static_cast<std::size_t>(std::count_if(
        native.addresses, native.addresses + native.depth,
        [this](std::uintptr_t address) { return interpreter_.loop.returns_to(address); }));
    return (activations <= frames.activation_count || frames.truncated) &&
           (activations >= frames.activation_count || native.truncated || native.ends_early);
}

bool PythonStacks::merge(const unwind::StackView& native, const Frames& frames,
                         MergedStack& merged) const {
    const std::size_t limit = std::min(depth_.load(std::memory_order_relaxed), merged.words.size());
    std::size_t depth = 0;
    std::size_t frame = 0;
    std::size_t activation = 0;
    bool truncated = native.truncated || frames.truncated;
    const auto add = [&](std::uint64_t word) {
        if (depth < limit) {
            merged.words[depth++] = word;
        } else {
            truncated = true;
        }
    };
    const auto add_activation = [&] {
        for (const std::size_t end = frames.activations[activation].end; frame < end; ++frame) {
            if (depth < limit) {
                merged.python[depth / 64] |= std::uint64_t{1} << depth % 64;
            }
            add(frames.frames()[frame].id);
        }
        ++activation;
    };
    const auto next_activation = [&] {
        return activation < frames.activation_count
                   ? std::uintptr_t{frames.activations[activation].stack_address}
                   : UINTPTR_MAX;
    };
    std::uintptr_t next = next_activation();
    const bool without_records = interpreter_.layout->without_records();
    if (without_records && !fit(native, frames)) {
        return false;
    }
    for (std::size_t i = 0; i < native.depth; ++i) {
        const std::uintptr_t end = native.ends[i];
        // A frame with unknown end matches no activation: a coroutine's outermost frame may be
        // anywhere below the activations of the stack that resumed it.
        if (without_records ? activation < frames.activation_count &&
                                  interpreter_.loop.returns_to(native.addresses[i])
                            : end > next && end != UINTPTR_MAX) {
            add_activation();
            next = next_activation();
            continue;
        }
        const std::uintptr_t into_code = native.addresses[i] - interpreter_.code_start - 1;
        if (into_code >= interpreter_.code_end - interpreter_.code_start) {
            add(native.addresses[i]);
        }
    }
    if (native.ends_early && activation < frames.activation_count) {
        truncated = true;  // the native frames in between are unknown
    } else if (activation == 0) {
        return false;
    }
    // The native stack ends at the limit or early: append the remaining Python frames.
    while ((native.truncated || native.ends_early) && activation < frames.activation_count) {
        add_activation();
    }
    merged.depth = depth;
    merged.truncated = truncated;
    return true;
}

void PythonStacks::turn_off(std::string_view why) {
    collector_.forget();
    if (state_.exchange(State::off, std::memory_order_relaxed) != State::off) {
        definitions_.report_limitation(why);
    }
}

}  // namespace memlab::profiler::python
