// What call stacks tell the recording: their definitions, in order, each before the first use of
// its number.
#pragma once

#include <cstdint>
#include <string_view>

#include "trace/record.hpp"

namespace memlab::profiler {

/// Called without any lock of the recorder's held. Thread-safe; may throw std::bad_alloc.
class StackDefinitions {
  public:
    StackDefinitions() = default;
    StackDefinitions(const StackDefinitions&) = delete;
    StackDefinitions& operator=(const StackDefinitions&) = delete;
    virtual ~StackDefinitions() = default;

    /// StringDef::id of a text, defined on first use.
    virtual std::uint32_t string_id(std::string_view text) = 0;
    virtual void define(const trace::ModuleDef& module) = 0;
    virtual void define(const trace::PythonFrameDef& frame) = 0;
    virtual void define(const trace::StackDef& stack) = 0;

    /// Frames that will not be seen, and why: a sentence for the report.
    virtual void missed(std::string_view reason) = 0;
};

}  // namespace memlab::profiler
