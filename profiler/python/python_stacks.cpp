#include "profiler/python/python_stacks.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <ctime>
#include <string>

#include "profiler/object_symbols.hpp"
#include "profiler/python/public_api_check.hpp"
#include "profiler/stack_table.hpp"
#include "profiler/unwind/executable_memory.hpp"
#include "profiler/unwind/stack_memory.hpp"
#include "trace/no_cancellation.hpp"

namespace memlab::profiler::python {
PythonStacks::PythonStacks(Mode mode, std::size_t depth, StackDefinitions& definitions)
    : mode_(mode),
      depth_(depth),
      definitions_(definitions),
      state_(mode == Mode::off || depth == 0 ? State::off : State::looking) {}

void PythonStacks::look(std::uintptr_t address) {
    if (!looking() || address == 0) {
        return;
    }
    if (searching_.exchange(true, std::memory_order_acquire)) {
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
    numbers_ = std::make_unique<FrameInterner>(definitions_);
    merged_stacks_ = std::make_unique<MergedStackCache>();
    state_.store(State::on, std::memory_order_release);
}

std::uintptr_t PythonStacks::interpreter_above(std::uintptr_t sp) {
    constexpr int max_looks = 16;
    constexpr std::size_t max_words = 16384;
    if (looks_above_.fetch_add(1, std::memory_order_relaxed) >= max_looks) {
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
            continue;  // of the object before
        }
        dl_find_object object{};
        if (_dl_find_object(reinterpret_cast<void*>(word), &object) != 0) {
            continue;
        }
        start = reinterpret_cast<std::uintptr_t>(object.dlfo_map_start);
        end = reinterpret_cast<std::uintptr_t>(object.dlfo_map_end);
        if (unwind::is_behind_call(word) && is_interpreter(ObjectSymbols::at(word))) {
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
    const trace::NoCancellation no_cancellation;
    constexpr timespec pause{0, 100'000};
    constexpr int max_pauses = 1000;
    const auto goes_on = [this] {
        return searching_.load(std::memory_order_acquire) && looking() &&
               !waited_in_vain_.load(std::memory_order_relaxed);
    };
    for (int i = 0; i < max_pauses && goes_on(); ++i) {
        nanosleep(&pause, nullptr);
    }
    if (goes_on()) {
        waited_in_vain_.store(true, std::memory_order_relaxed);
    }
}

[[gnu::hot]] bool PythonStacks::read(Frames& frames) {
    read_frames(interpreter_, depth_, numbers_->known(), frames);
    if (frames.implausible) {
        turn_off(
            "a Python thread's frames are not laid out as in other builds of its version: call "
            "sites are native only from here on");
        return false;
    }
    if (frames.activation_count == 0) {
        return false;
    }
    if (mode_ == Mode::verify || !compared_.load(std::memory_order_relaxed)) {
        switch (compare_with_public_api(interpreter_, frames)) {
            case Comparison::not_now:
                break;
            case Comparison::equal:
                compared_.store(true, std::memory_order_relaxed);
                break;
            case Comparison::different:
                turn_off(
                    "Python frames as memlab reads them are not those that the interpreter "
                    "itself gives: call sites are native only from here on");
                return false;
        }
    }
    if (!frames.all_numbered) {
        numbers_->number(interpreter_, frames.in_main_interpreter, frames.frames(),
                         frames.frame_count);
    }
    return true;
}

bool PythonStacks::merge(const StackView& native, const Frames& frames, MergedStack& merged) const {
    const std::size_t limit = std::min(depth_, merged.words.size());
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
            add(frames.frames()[frame].number);
        }
        ++activation;
    };
    const auto next_activation = [&] {
        return activation < frames.activation_count
                   ? std::uintptr_t{frames.activations[activation].on_stack}
                   : UINTPTR_MAX;
    };
    std::uintptr_t next = next_activation();
    for (std::size_t i = 0; i < native.depth; ++i) {
        const std::uintptr_t end = native.ends[i];
        // Of a frame whose end is not known nothing is said: a coroutine's first one may lie
        // anywhere below the activations of the stack that resumed it.
        if (end > next && end != UINTPTR_MAX) {
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
        truncated = true;  // what lay between is not known
    } else if (activation == 0) {
        return false;
    }
    // The native stack ends at the limit or early, the Python one goes on: it is the better half.
    while ((native.truncated || native.ends_early) && activation < frames.activation_count) {
        add_activation();
    }
    merged.depth = depth;
    merged.truncated = truncated;
    return true;
}

void PythonStacks::turn_off(std::string_view why) {
    if (state_.exchange(State::off, std::memory_order_relaxed) != State::off) {
        definitions_.missed(why);
    }
}

}  // namespace memlab::profiler::python
