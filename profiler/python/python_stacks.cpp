#include "profiler/python/python_stacks.hpp"

#include <algorithm>
#include <ctime>
#include <string>

#include "profiler/python/public_api_check.hpp"
#include "profiler/stack_table.hpp"

namespace memlab::profiler::python {
namespace {

class Merge {
  public:
    Merge(const Interpreter& interpreter, const CapturedStack& native, const Frames& python,
          const std::uint32_t* numbers, std::size_t limit, MergedStack& out)
        : interpreter_(interpreter),
          native_(native),
          python_(python),
          numbers_(numbers),
          limit_(std::min(limit, native.max_depth)),
          out_(out) {
        out_.depth = 0;
        out_.truncated = false;
    }

    /// False when no activation was found in the native stack.
    bool run() {
        for (std::size_t i = 0; i < native_.depth; ++i) {
            if (has_activation_below(native_.ends[i])) {
                add_activation();
            } else if (!is_interpreters(native_.addresses[i])) {
                add(native_.addresses[i]);
            }
        }
        if (activation_ == 0) {
            return false;
        }
        // The native stack ends at the limit, the Python one goes on: it is the better half.
        while (native_.truncated && activation_ < python_.activation_count) {
            add_activation();
        }
        out_.truncated |= native_.truncated || python_.truncated;
        return true;
    }

  private:
    /// Of a frame whose end is not known nothing is said: a coroutine's first one may lie anywhere
    /// below the activations of the stack that resumed it.
    bool has_activation_below(std::uintptr_t end) const {
        return end != UINTPTR_MAX && activation_ < python_.activation_count &&
               python_.activations[activation_].on_stack < end;
    }

    void add_activation() {
        const std::size_t end = python_.activations[activation_].end;
        for (; frame_ < end; ++frame_) {
            add(StackTable::python_bit | numbers_[frame_]);
        }
        ++activation_;
    }

    bool is_interpreters(std::uintptr_t address) const {
        return address > interpreter_.code_start && address <= interpreter_.code_end;
    }

    void add(std::uint64_t word) {
        if (out_.depth < limit_) {
            out_.words[out_.depth++] = word;
        } else {
            out_.truncated = true;
        }
    }

    const Interpreter& interpreter_;
    const CapturedStack& native_;
    const Frames& python_;
    const std::uint32_t* numbers_;
    const std::size_t limit_;
    MergedStack& out_;
    std::size_t activation_ = 0;
    std::size_t frame_ = 0;
};

}  // namespace

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
    state_.store(State::on, std::memory_order_release);
    return true;
}

void PythonStacks::await_search() {
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

bool PythonStacks::merge(const CapturedStack& native, MergedStack& merged) {
    if (state_.load(std::memory_order_acquire) != State::on) {
        return false;
    }
    Frames frames;
    read_frames(interpreter_, depth_, frames);
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
    std::uint32_t numbers[Frames::max_frames];
    numbers_->of(interpreter_, frames.in_main_interpreter, frames.frames, frames.frame_count,
                 numbers);
    return Merge(interpreter_, native, frames, numbers, depth_, merged).run();
}

void PythonStacks::turn_off(std::string_view why) {
    if (state_.exchange(State::off, std::memory_order_relaxed) != State::off) {
        definitions_.missed(why);
    }
}

}  // namespace memlab::profiler::python
