// What a recording has defined so far, and whether a record refers to anything else. Identifiers
// are given out in order from 1, so that a count is all there is to remember: the reader stays
// within bounded memory on any input.
//
// The recorder, the writer and the aggregator use repair(): a defect in the recorder costs the
// reference, not the recording; and a definition is taken, or all that come after it would be out
// of order. The reader uses define() and valid(): in a log an undefined reference is damage.
#pragma once

#include <bitset>
#include <cstdint>

#include "trace/log_format.hpp"
#include "trace/record.hpp"

namespace memlab::trace {

class Definitions {
  public:
    /// Each define() returns false, and changes nothing, when the record must not be accepted.
    bool define(const StringDef& record) { return next(strings_, record.id); }
    bool define(const ModuleDef& record) { return next(modules_, record.id); }
    bool define(const DeviceInfo& record) {
        if (record.index >= format::max_devices) {
            return false;
        }
        devices_.set(record.index);
        return true;
    }
    bool define(const ContextInfo& record) {
        return device(record.device) && next(contexts_, record.id);
    }
    bool define(const PythonFrameDef& record) {
        return valid(record) && next(python_frames_, record.id);
    }
    bool define(const StackDef& record) { return valid(record) && next(stacks_, record.id); }

    bool device(std::uint32_t index) const {
        return index < format::max_devices && devices_.test(index);
    }

    bool valid(const PythonFrameDef& record) const {
        return record.function <= strings_ && record.file <= strings_;
    }
    bool valid(const StackDef& record) const {
        for (const Frame& frame : record.frames) {
            if (frame.module > modules_ || frame.python > python_frames_) {
                return false;
            }
        }
        return true;
    }
    bool valid(const ContextLost& record) const {
        return record.context != 0 && record.context <= contexts_;
    }
    bool valid(const ThreadInfo& record) const { return record.name <= strings_; }
    bool valid(const Event& record) const {
        return (is_note(record.type) || device(record.device)) && record.context <= contexts_ &&
               record.api <= strings_ && record.name <= strings_ && record.stack <= stacks_;
    }
    bool valid(const OomEvent& record) const {
        return device(record.device) && record.context <= contexts_ && record.api <= strings_ &&
               record.stack <= stacks_;
    }
    bool valid(const DeviceSample& record) const { return device(record.device); }
    bool valid(const Missed& record) const { return record.reason <= strings_; }
    bool valid(const Work& record) const {
        return device(record.device) && record.name <= strings_ && record.start_ns <= record.end_ns;
    }
    bool valid(const Bypass& record) const {
        return device(record.device) && record.api <= strings_ && record.stack <= stacks_;
    }
    bool valid(const Coverage& record) const {
        return record.cupti <= strings_ && record.because <= strings_;
    }

    /// Makes the record valid by dropping undefined references; false when it cannot be.
    bool repair(PythonFrameDef& record) const {
        clear(record.function, strings_);
        clear(record.file, strings_);
        return true;
    }
    bool repair(StackDef& record) const {
        for (Frame& frame : record.frames) {
            clear(frame.module, modules_);
            clear(frame.python, python_frames_);
        }
        return true;
    }
    bool repair(Event& record) const {
        clear(record.context, contexts_);
        clear(record.api, strings_);
        clear(record.name, strings_);
        clear(record.stack, stacks_);
        return valid(record);
    }
    bool repair(OomEvent& record) const {
        clear(record.context, contexts_);
        clear(record.api, strings_);
        clear(record.stack, stacks_);
        return valid(record);
    }
    bool repair(Missed& record) const {
        clear(record.reason, strings_);
        return true;
    }
    bool repair(Work& record) const {
        clear(record.name, strings_);
        record.end_ns = record.end_ns < record.start_ns ? record.start_ns : record.end_ns;
        return valid(record);
    }
    bool repair(Bypass& record) const {
        clear(record.api, strings_);
        clear(record.stack, stacks_);
        return valid(record);
    }
    bool repair(Coverage& record) const {
        clear(record.cupti, strings_);
        clear(record.because, strings_);
        return true;
    }

    /// Marks, scopes and labels belong to the program, not to a device.
    static bool is_note(EventType type) {
        return type == EventType::mark || type == EventType::scope_begin ||
               type == EventType::scope_end || type == EventType::label;
    }

  private:
    static bool next(std::uint32_t& count, std::uint32_t id) {
        if (id == 0 || id != count + 1) {
            return false;
        }
        count = id;
        return true;
    }
    static void clear(std::uint32_t& reference, std::uint32_t count) {
        if (reference > count) {
            reference = 0;
        }
    }

    std::uint32_t strings_ = 0;
    std::uint32_t modules_ = 0;
    std::uint32_t python_frames_ = 0;
    std::uint32_t stacks_ = 0;
    std::uint32_t contexts_ = 0;
    std::bitset<format::max_devices> devices_;
};

}  // namespace memlab::trace
