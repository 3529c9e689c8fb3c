#include "profiler/python/python_stacks.hpp"

#include <algorithm>
#include <ctime>
#include <string>

#include "profiler/python/public_api_check.hpp"
#include "profiler/stack_table.hpp"
#include "profiler/trace/no_cancellation.hpp"

namespace memlab::profiler::python {
PythonStacks::PythonStacks(Mode mode, std::size_t depth, StackDefinitions& definitions)
    : mode_(mode),
      depth_(depth),
      definitions_(definitions),
      state_(mode == Mode::off || depth == 0 ? State::off : State::looking) {}

bool PythonStacks::look(std::uint32_t modules) {
    if (!looking()) {
        return false;
    }
    // Who searches says so first: who finds that it was done already finds that it is going on,
    // too.
    if (known_modules_.load(std::memory_order_acquire) == modules ||
        searching_.exchange(true, std::memory_order_acquire)) {
        await_search();
        return false;
    }
    known_modules_.store(modules, std::memory_order_release);
    Interpreter found;
    std::string why;
    switch (find_interpreter(&found, &why)) {
        case Search::nothing:
            searching_.store(false, std::memory_order_release);
            return false;
        case Search::unusable:
            turn_off(why);
            return false;
        case Search::found:
            break;
    }
    interpreter_ = found;
    numbers_ = std::make_unique<FrameNumbers>(definitions_);
    known_stacks_ = std::make_unique<KnownStacks>();
    state_.store(State::on, std::memory_order_release);
    return true;
}

void PythonStacks::await_search() {
    const trace::NoCancellation no_cancellation;
    constexpr timespec pause{0, 100'000};
    constexpr int most_pauses = 1000;
    const auto goes_on = [this] {
        return searching_.load(std::memory_order_acquire) && looking() &&
               !waited_in_vain_.load(std::memory_order_relaxed);
    };
    for (int i = 0; i < most_pauses && goes_on(); ++i) {
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
        numbers_->number(interpreter_, frames.in_main_interpreter, frames.frames,
                         frames.frame_count);
    }
    return true;
}

bool PythonStacks::merge(const CapturedStack& native, const Frames& frames,
                         MergedStack& merged) const {
    const std::size_t limit = std::min(depth_, native.max_depth);
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
            add(StackTable::python_bit | frames.frames[frame].number);
        }
        ++activation;
    };
    const auto next_activation = [&] {
        return activation < frames.activation_count ? frames.activations[activation].on_stack
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
    if (activation == 0) {
        return false;
    }
    // The native stack ends at the limit, the Python one goes on: it is the better half.
    while (native.truncated && activation < frames.activation_count) {
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
