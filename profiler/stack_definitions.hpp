// The sink of call stack definitions: modules, Python frames, stacks and nn.Modules, each defined
// before the first use of its id.
#pragma once

#include <cstdint>
#include <string_view>

#include "trace/record.hpp"

namespace memlab::profiler {

/// Called without the recorder's lock. Thread-safe; may throw std::bad_alloc.
class StackDefinitions {
  public:
    StackDefinitions() = default;
    StackDefinitions(const StackDefinitions&) = delete;
    StackDefinitions& operator=(const StackDefinitions&) = delete;
    virtual ~StackDefinitions() = default;

    /// StringDef::id of `text`, defined on first use.
    virtual std::uint32_t string_id(std::string_view text) = 0;
    virtual void define(const trace::ModuleDef& module) = 0;
    virtual void define(const trace::PythonFrameDef& frame) = 0;
    virtual void define(const trace::StackDef& stack) = 0;
    virtual void define(const trace::NnModuleStackDef& /*stack*/) {}
    virtual void define(const trace::NnModuleName& /*name*/) {}

    /// Reports that frames will be missing; `reason` is a sentence for the report.
    virtual void report_limitation(std::string_view reason) = 0;
};

}  // namespace memlab::profiler
