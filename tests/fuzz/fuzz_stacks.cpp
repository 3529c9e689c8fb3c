// libFuzzer: any words as call stacks. Each stack gets an id that is defined, with the frames that
// were passed and only references that are defined; and the table goes on to accept others.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "profiler/stack_table.hpp"
#include "tests/fuzz/fuzz_input.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/definitions.hpp"

using namespace memlab;
using fuzz::require;
using profiler::StackTable;

namespace {

constexpr std::uint32_t python_frames = 100;
constexpr std::uint32_t max_stacks = 64;

class Checked final : public profiler::StackDefinitions {
  public:
    Checked() {
        for (std::uint32_t id = 1; id <= python_frames; ++id) {
            define(trace::PythonFrameDef{.id = id});
        }
    }
    std::uint32_t string_id(std::string_view) override { return 0; }
    void define(const trace::ModuleDef& module) override { take(module); }
    void define(const trace::PythonFrameDef& frame) override { take(frame); }
    void define(const trace::StackDef& stack) override {
        take(stack);
        last = stack;
        ++stacks;
    }
    void report_limitation(std::string_view) override { ++told; }

    trace::StackDef last;
    std::uint32_t stacks = 0;
    int told = 0;
    trace::Aggregator aggregator;

  private:
    template <class Record>
    void take(const Record& record) {
        require(definitions_.accept(record));
        aggregator.on(record);
    }

    trace::Definitions definitions_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Checked checked;
    StackTable table(checked, max_stacks);
    std::uint64_t epoch = 1;
    while (size > 2) {
        const std::uint8_t flags = data[0];
        const std::size_t depth = std::min<std::size_t>(
            {data[1], profiler::unwind::CapturedStack::max_depth, (size - 2) / 8});
        std::vector<std::uint64_t> words(depth);
        if (depth != 0) {
            std::memcpy(words.data(), data + 2, depth * 8);
        }
        data += 2 + depth * 8;
        size -= 2 + depth * 8;
        StackTable::PythonWords python{};
        const bool merged = (flags & 1U) != 0;
        for (std::size_t i = 0; i < depth; ++i) {
            if ((words[i] & 3U) == 0) {
                words[i] =
                    reinterpret_cast<std::uintptr_t>(&LLVMFuzzerTestOneInput) + words[i] % 64;
            } else if (merged && (words[i] & 3U) == 1) {
                words[i] = 1 + words[i] % python_frames;
                python[i / 64] |= std::uint64_t{1} << i % 64;
            }
        }
        epoch += flags >> 1 & 1U;
        const bool truncated = (flags & 4U) != 0;
        const std::uint32_t before = checked.stacks;
        const std::uint32_t id =
            table.intern(words, truncated, (flags & 8U) != 0 ? StackTable::no_epoch : epoch,
                         merged ? &python : nullptr);
        require(id <= checked.stacks && (id == 0) == words.empty());
        require(checked.stacks <= max_stacks + max_stacks / 4 + 17);
        require(checked.aggregator.stacks().size() == checked.stacks + std::size_t{1});
        if (checked.stacks == before || id > max_stacks) {
            continue;
        }
        require(checked.last.frames.size() == depth && checked.last.truncated == truncated);
        for (std::size_t i = 0; i < depth; ++i) {
            const trace::Frame& frame = checked.last.frames[i];
            const bool is_python = (python[i / 64] >> i % 64 & 1U) != 0;
            require(frame.python == (is_python ? words[i] : 0));
            require(is_python || frame.module != 0 || frame.address == words[i]);
        }
    }
    require(checked.told <= 1);
    return 0;
}
