// The records that define what others refer to by number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/event.hpp"

namespace memlab::trace {

struct StringDef {
    std::uint32_t id = 0;
    std::string text = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.definition("id", Definition::string, self.id);
        visit.text("text", self.text);
    }
    bool operator==(const StringDef&) const = default;
};

/// A loaded object at addresses [start, end). address - bias is the address in its symbol table and
/// debug information.
struct ModuleDef {
    std::uint32_t id = 0;
    std::string path = {};
    std::string build_id = {};  ///< lower-case hexadecimal; empty: none
    std::uint64_t bias = 0;
    std::uint64_t start = 0;
    std::uint64_t end = 0;

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.definition("id", Definition::module, self.id);
        visit.text("path", self.path);
        visit.text("build id", self.build_id);
        visit.number("bias", self.bias);
        visit.number("start", self.start);
        visit.number("end", self.end);
    }
    bool operator==(const ModuleDef&) const = default;
};

/// A Python frame: a function and the current line in it.
struct PythonFrameDef {
    std::uint32_t id = 0;
    std::uint32_t function = 0;    ///< StringDef::id of its qualified name ("Model.forward")
    std::uint32_t file = 0;        ///< StringDef::id: co_filename of the code object
    std::uint32_t line = 0;        ///< 0: unknown
    std::uint32_t first_line = 0;  ///< where the function begins; 0: unknown

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.definition("id", Definition::python_frame, self.id);
        visit.reference("function", Definition::string, self.function);
        visit.reference("file", Definition::string, self.file);
        visit.number("line", self.line);
        visit.number("first line", self.first_line);
    }
    bool operator==(const PythonFrameDef&) const = default;
};

/// One frame: the *return* address (leaf frames included: the call into CUDA), relative to the
/// module's bias, or absolute where the module is unknown (module 0). A Python frame has neither.
struct Frame {
    std::uint32_t module = 0;
    std::uint64_t address = 0;
    std::uint32_t python = 0;  ///< PythonFrameDef::id

    bool operator==(const Frame&) const = default;
};

/// A call stack, leaf (nearest to the CUDA call) first.
struct StackDef {
    std::uint32_t id = 0;
    bool truncated = false;  ///< deeper than the limit that applied
    std::vector<Frame> frames = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.definition("id", Definition::stack, self.id);
        visit.flag("truncated", self.truncated);
        visit.list("frames", self.frames, [](auto& frame, auto& item) { item.frame(frame); });
    }
    bool operator==(const StackDef&) const = default;
};

/// A stack of calls of PyTorch's nn.Modules, by its innermost one; the others are its parent's.
struct NnModuleStackDef {
    std::uint32_t id = 0;
    std::uint32_t parent = 0;     ///< NnModuleStackDef::id; 0: this is the outermost call
    std::uint32_t nn_module = 0;  ///< the object's number: an address that is reused gets another

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.definition("id", Definition::nn_module_stack, self.id);
        visit.reference("parent", Definition::nn_module_stack, self.parent);
        visit.number("nn.Module", self.nn_module);
    }
    bool operator==(const NnModuleStackDef&) const = default;
};

/// What the program calls an nn.Module; the latest counts.
struct NnModuleName {
    std::uint32_t nn_module = 0;  ///< NnModuleStackDef::nn_module, whether or not it has a stack
    std::uint32_t name = 0;       ///< StringDef::id: qualified, "layers.0.linear"; 0: the outermost
    std::uint32_t class_name = 0;  ///< StringDef::id: "Linear"; 0: unknown

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number("nn.Module", self.nn_module);
        visit.reference("name", Definition::string, self.name);
        visit.reference("class", Definition::string, self.class_name);
    }
    bool operator==(const NnModuleName&) const = default;
};

}  // namespace memlab::trace
