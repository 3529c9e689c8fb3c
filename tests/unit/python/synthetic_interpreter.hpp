// An interpreter of some version whose objects, frames and records a test lays out itself.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "profiler/python/interpreter.hpp"
#include "profiler/python/layouts.hpp"

namespace memlab::test {

using namespace profiler::python;

inline const int code_object = 0;
inline const int str_object = 0;
inline const int bytes_object = 0;
inline const int other_object = 0;
inline int initialized = 1;
inline int initialized_reads_left = -1;  // then the interpreter has begun to end
inline void* thread = nullptr;
inline int main_interpreter = 0;

// A piece of the interpreter's memory.
using Memory = std::vector<unsigned char>;

template <class T>
void put(Memory& memory, std::size_t offset, T value) {
    std::memcpy(memory.data() + offset, &value, sizeof(value));
}

/// Code objects, frames and records of one thread. The records lie in an array on this thread's
/// stack, as they do in the interpreter's loop.
class World {
  public:
    explicit World(int minor) : layout_(*find_layout(minor)) {
        interpreter.layout = &layout_;
        interpreter.types = {&code_object, &str_object, &bytes_object};
        interpreter.is_initialized = [] {
            if (initialized_reads_left >= 0 && initialized_reads_left-- == 0) {
                initialized = 0;
            }
            return initialized;
        };
        interpreter.thread_state = [] { return thread; };
        interpreter.running_state = []() -> void* { return nullptr; };
        interpreter.main_interpreter = &main_interpreter;
        initialized = 1;
        initialized_reads_left = -1;
        thread = state_.data();
        put(state_, layout_.thread_interpreter, static_cast<void*>(&main_interpreter));
    }

    const void* code(const char* name, const char* file, int line) {
        Memory& memory = objects_.emplace_back(400);
        put(memory, object_type, static_cast<const void*>(&code_object));
        put(memory, object_count, std::int64_t{40});
        put(memory, layout_.code_qualname, text(name));
        put(memory, layout_.code_filename, text(file));
        put(memory, layout_.code_first_line, line);
        put(memory, layout_.code_first_traceable, 2);
        // Ten instructions on the first line, then ten on the one after.
        Memory& table = objects_.emplace_back(64);
        put(table, object_type, static_cast<const void*>(&bytes_object));
        put(table, object_count, std::int64_t{8});
        const unsigned char entries[] = {128 | 13 << 3 | 7, 0, 128 | 13 << 3 | 1, 0,
                                         128 | 13 << 3 | 7, 2, 128 | 13 << 3 | 1, 0};
        std::memcpy(table.data() + bytes_data, entries, sizeof(entries));
        put(memory, layout_.code_line_table, static_cast<const void*>(table.data()));
        return memory.data();
    }

    /// A frame that runs `code` at an instruction, called by `previous`.
    void* frame(const void* code, int instruction, void* previous) {
        Memory& memory = objects_.emplace_back(128);
        // The lowest bit of a reference says how it is counted.
        put(memory, layout_.frame_code, static_cast<const char*>(code) + (layout_.frame_tags & 1));
        put(memory, layout_.frame_previous, previous);
        if (layout_.has_frame_objects) {
            put(memory, layout_.frame_instruction, std::int32_t{instruction});
        } else {
            put(memory, layout_.frame_instruction,
                static_cast<const char*>(code) + layout_.code_bytes + 2 * instruction);
        }
        return memory.data();
    }

    void set(void* frame, std::size_t offset, std::uint8_t value) {
        static_cast<unsigned char*>(frame)[offset] = value;
    }

    /// A record of an activation at `record`, the one before it at `previous`.
    void activation(void* record, void* frame, const void* previous) {
        auto* bytes = static_cast<unsigned char*>(record);
        std::memcpy(bytes + layout_.cframe_frame, &frame, sizeof(frame));
        std::memcpy(bytes + layout_.cframe_previous, &previous, sizeof(previous));
    }

    /// 3.10: the innermost frame.
    void frame_object(const void* frame) { put(state_, layout_.thread_frame_object, frame); }
    void root(const void* record) { put(state_, layout_.thread_frame, record); }
    const Layout& layout() const { return layout_; }

    Interpreter interpreter;

  private:
    const void* text(const std::string& characters) {
        Memory& memory = objects_.emplace_back(layout_.ascii_size + characters.size());
        put(memory, object_type, static_cast<const void*>(&str_object));
        put(memory, text_length, static_cast<std::int64_t>(characters.size()));
        put(memory, text_state, std::uint32_t{1U << 2 | 1U << 5 | 1U << 6});
        std::memcpy(memory.data() + layout_.ascii_size, characters.data(), characters.size());
        return memory.data();
    }

    const Layout& layout_;
    std::deque<Memory> objects_;
    Memory state_ = Memory(1024);
};

struct Record {
    alignas(8) unsigned char bytes[32] = {};
};

}  // namespace memlab::test
