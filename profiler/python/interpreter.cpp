#include "profiler/python/interpreter.hpp"
#include "profiler/python/layouts.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>

#include "profiler/loaded_modules.hpp"
#include "profiler/python/debug_offsets.hpp"

namespace memlab::profiler::python {
namespace {

std::string_view base_name(std::string_view path) {
    return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

class Symbols {
  public:
    explicit Symbols(std::uintptr_t address)
        : object_(ObjectSymbols::at(address)), program_(ObjectSymbols::of_program()) {}

    /// A variable of the library may have been copied to the program (copy relocation), whose copy
    /// everyone uses.
    void* data(const char* name) const {
        void* const copy = program_.find(name);
        return copy != nullptr ? copy : object_.find(name);
    }

    /// The first bytes of a variable, `count` if it has so many; none if it is not there.
    std::span<const std::byte> contents(const char* name, std::size_t count) const {
        const void* const begin = data(name);
        if (begin == nullptr) {
            return {};
        }
        return {static_cast<const std::byte*>(begin),
                std::min<std::size_t>(count, object_.extent_of(name).bytes)};
    }

    /// Sets complete() to false if the symbol is missing.
    template <class Function>
    void get(Function*& function, const char* name) {
        function = reinterpret_cast<Function*>(object_.find(name));
        complete_ &= function != nullptr;
    }
    void get(const void*& object, const char* name) {
        object = data(name);
        complete_ &= object != nullptr;
    }
    bool complete() const { return complete_; }

  private:
    ObjectSymbols object_;
    ObjectSymbols program_;
    bool complete_ = true;
};

/// 12 for "3.12.3 (main, ..."; -1 if it is not Python 3.
int parse_minor(std::string_view version) {
    int minor = -1;
    if (version.starts_with("3.")) {
        std::from_chars(version.data() + 2, version.data() + version.size(), minor);
    }
    return minor;
}

/// Compares the types' sizes with those that the layout implies, to detect builds with other
/// structures.
bool matches(const Layout& layout, const Types& types, const void* generator) {
    const auto size_of = [](const void* type) {
        return read<std::uint64_t>(type, type_basic_size);
    };
    return size_of(types.code) == layout.code_bytes && size_of(types.str) == layout.unicode_size &&
           size_of(generator) == layout.generator_frame + layout.frame_locals;
}

std::string unusable(const std::string& version, const std::string& why) {
    return "Python " + version + " " + why +
           ": call sites are native only, without its functions and lines";
}

}  // namespace

bool is_interpreter(const ObjectSymbols& object) {
    return object.find("Py_GetVersion") != nullptr || object.find("PyPy_GetVersion") != nullptr ||
           object.find("pypy_execute_source") != nullptr;
}

Search find_interpreter(std::uintptr_t address, Interpreter* interpreter, std::string* why) {
    Symbols symbols(address);
    if (symbols.data("PyPy_GetVersion") != nullptr ||
        symbols.data("pypy_execute_source") != nullptr) {
        *why = unusable("(PyPy)", "has a frame layout that memlab does not support");
        return Search::unusable;
    }
    const char* (*get_version)() = nullptr;
    symbols.get(get_version, "Py_GetVersion");
    if (get_version == nullptr) {
        *why = unusable("", "is a build that memlab does not support");
        return Search::unusable;
    }
    const std::string_view text = get_version();
    const std::string version(text.substr(0, text.find(' ')));
    interpreter->layout = find_layout(parse_minor(version));
    if (interpreter->layout == nullptr) {
        *why =
            unusable(version, "is not one that memlab was tested with (" + tested_versions() + ")");
        return Search::unusable;
    }
    // Free-threaded and debug builds have other object layouts.
    const auto runtime = symbols.contents("_PyRuntime", debug_offsets_bytes);
    if (text.find("free-threading") != std::string_view::npos || says_free_threaded(runtime)) {
        *why = unusable(version, "is a free-threaded build");
        return Search::unusable;
    }
    if (symbols.data("_Py_NegativeRefcount") != nullptr) {
        *why = unusable(version, "is a debug build");
        return Search::unusable;
    }
    if (interpreter->layout->minor >= debug_offsets_from_minor) {
        const std::string difference = difference_to(*interpreter->layout, runtime);
        if (!difference.empty()) {
            *why = unusable(version, difference);
            return Search::unusable;
        }
    }
    const void* generator = nullptr;
    const void* loop = nullptr;
    symbols.get(interpreter->types.code, "PyCode_Type");
    symbols.get(interpreter->types.str, "PyUnicode_Type");
    symbols.get(interpreter->types.bytes, "PyBytes_Type");
    symbols.get(generator, "PyGen_Type");
    symbols.get(interpreter->list_type, "PyList_Type");
    symbols.get(loop, "_PyEval_EvalFrameDefault");
    symbols.get(interpreter->is_initialized, "Py_IsInitialized");
    symbols.get(interpreter->thread_state, "PyGILState_GetThisThreadState");
    symbols.get(interpreter->running_state, interpreter->layout->minor < 13
                                                ? "_PyThreadState_UncheckedGet"
                                                : "PyThreadState_GetUnchecked");
    void* (*main_interpreter)() = nullptr;
    symbols.get(main_interpreter, "PyInterpreterState_Main");
    PublicApi& api = interpreter->api;
    symbols.get(api.thread_frame, "PyThreadState_GetFrame");
    symbols.get(api.frame_back, "PyFrame_GetBack");
    symbols.get(api.frame_code, "PyFrame_GetCode");
    symbols.get(api.frame_line, "PyFrame_GetLineNumber");
    symbols.get(api.attribute, "PyObject_GetAttrString");
    symbols.get(api.utf8, "PyUnicode_AsUTF8AndSize");
    symbols.get(api.error, "PyErr_Occurred");
    symbols.get(api.clear_error, "PyErr_Clear");
    if (interpreter->layout->minor >= 10) {
        symbols.get(api.disable_gc, "PyGC_Disable");
        symbols.get(api.enable_gc, "PyGC_Enable");
    }
    symbols.get(api.release, "Py_DecRef");
    if (!symbols.complete() || !matches(*interpreter->layout, interpreter->types, generator)) {
        *why = unusable(version, "is a build that memlab does not support");
        return Search::unusable;
    }
    interpreter->main_interpreter = main_interpreter();
    if (interpreter->layout->without_records()) {
        interpreter->loop = find_loop_code(reinterpret_cast<std::uintptr_t>(loop));
    }
    LoadedModule module;
    if (find_loaded_module(reinterpret_cast<std::uintptr_t>(loop), &module)) {
        interpreter->library = module.is_program ? std::string() : module.path;
        const std::string_view file = base_name(module.path);
        if (file.starts_with("python") || file.starts_with("libpython")) {
            interpreter->code_start = module.start;
            interpreter->code_end = module.end;
        }
    }
    return Search::found;
}

bool pin(const Interpreter& interpreter) {
    return interpreter.library.empty() ||
           dlopen(interpreter.library.c_str(), RTLD_LAZY | RTLD_NOLOAD) != nullptr;
}

}  // namespace memlab::profiler::python
