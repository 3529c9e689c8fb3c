#include "profiler/python/frame_interner.hpp"

#include "profiler/python/line_table.hpp"
#include "profiler/word_mix.hpp"

namespace memlab::profiler::python {
namespace {

constexpr std::uint64_t factor = mix_factor;

std::uint64_t word(const unsigned char* data) {
    return python::read<std::uint64_t>(data, 0);
}

/// The last words overlap what precedes them, so that no bytes are left over.
std::uint64_t hash_bytes(const unsigned char* data, std::size_t size) {
    std::uint64_t hash = size ^ factor;
    std::uint64_t other = factor;  // a second lane, independent of the first
    if (size < 16) {
        std::uint64_t first = 0;
        std::uint64_t last = 0;
        if (size >= 8) {
            first = word(data);
            last = word(data + size - 8);
        } else {
            std::memcpy(&first, data, size);
        }
        return mix(first ^ hash, last ^ factor);
    }
    const unsigned char* const end = data + size;
    for (; end - data > 32; data += 32) {
        hash = mix(word(data) ^ hash, word(data + 8) ^ factor);
        other = mix(word(data + 16) ^ other, word(data + 24) ^ factor);
    }
    if (end - data > 16) {
        hash = mix(word(data) ^ hash, word(data + 8) ^ factor);
    }
    other = mix(word(end - 16) ^ other, word(end - 8) ^ factor);
    return mix(hash ^ factor, other);
}

/// Computes CodeLocationCache identities.
class IdentityMaker {
  public:
    IdentityMaker(const Interpreter& interpreter, bool has_versions)
        : interpreter_(interpreter), layout_(*interpreter.layout), has_versions_(has_versions) {}

    std::uint64_t make(const void* code, std::size_t table_bytes) {
        const std::uint64_t versioned = has_versions_ ? versioned_identity(layout_, code) : 0;
        if (versioned != 0) {
            return versioned;
        }
        const auto* function = read<const void*>(code, layout_.code_qualname);
        const auto* file = read<const void*>(code, layout_.code_filename);
        const auto* table = read<const void*>(code, layout_.code_line_table);
        const std::uint64_t first = read<std::uint32_t>(code, layout_.code_first_line);
        const std::span<const unsigned char> lines = get_bytes(interpreter_.types, table);
        if (lines.size() < table_bytes) {
            return 0;
        }
        if (file != last_file_) {
            last_file_ = file;
            last_file_hash_ = hash_text(file);
        }
        // Where a table of changes ends the last line goes on.
        const std::uint64_t size = layout_.line_table == LineTable::changes ? lines.size() : 0;
        return hashed_identity(mix(mix(hash_text(function), last_file_hash_) ^ first,
                                   hash_bytes(lines.data(), table_bytes) ^ factor ^ size));
    }

  private:
    std::uint64_t hash_text(const void* object) const {
        Characters characters;
        return get_characters(layout_, interpreter_.types, object, &characters)
                   ? hash_bytes(characters.data, characters.bytes()) ^ characters.width
                   : 1;
    }

    const Interpreter& interpreter_;
    const Layout& layout_;
    const bool has_versions_;
    const void* last_file_ = nullptr;  // successive frames often share it
    std::uint64_t last_file_hash_ = 0;
};

std::string to_text(const Interpreter& interpreter, const void* object) {
    Characters characters;
    return get_characters(*interpreter.layout, interpreter.types, object, &characters)
               ? utf8(characters)
               : std::string();
}

/// Whether the code object holds what one does where the layout says, and the instruction is in it.
/// One text may be of a class of the program's own. What is there is not taken for an object
/// before.
bool is_plausible(const Interpreter& interpreter, const RawFrame& frame) {
    const Layout& layout = *interpreter.layout;
    const auto holds = [&](std::size_t at, const void* type) {
        return word_at(python::read<std::uintptr_t>(frame.code, at) + object_type) ==
               reinterpret_cast<std::uintptr_t>(type);
    };
    const bool inside =
        layout.has_frame_objects || frame.offset / static_cast<std::int64_t>(instruction_size) <
                                        python::read<std::int64_t>(frame.code, object_count);
    return inside && holds(layout.code_line_table, interpreter.types.bytes) &&
           (holds(layout.code_qualname, interpreter.types.str) ||
            holds(layout.code_filename, interpreter.types.str));
}

}  // namespace

SourceLocation read_location(const Interpreter& interpreter, const RawFrame& frame,
                             std::size_t* table_bytes) {
    const Layout& layout = *interpreter.layout;
    SourceLocation location;
    location.function = to_text(interpreter, read<const void*>(frame.code, layout.code_qualname));
    location.file = to_text(interpreter, read<const void*>(frame.code, layout.code_filename));
    location.first_line = read<std::int32_t>(frame.code, layout.code_first_line);
    const auto table =
        get_bytes(interpreter.types, read<const void*>(frame.code, layout.code_line_table));
    const LineAt at = line_at(layout.line_table, table, location.first_line, frame.offset);
    location.line = at.line;
    if (table_bytes != nullptr) {
        *table_bytes = at.bytes;
    }
    return location;
}

FrameInterner::FrameInterner(StackDefinitions& definitions) : definitions_(definitions) {}

[[gnu::hot]] bool FrameInterner::assign_ids(const Interpreter& interpreter,
                                            bool in_main_interpreter, RawFrame* frames,
                                            std::size_t count) {
    IdentityMaker identity_maker(interpreter, in_main_interpreter);
    for (std::size_t i = 0; i < count; ++i) {
        RawFrame& frame = frames[i];
        if (frame.id != 0) {
            continue;
        }
        // Recursion: the same as the frame before.
        if (i > 0 && frame.code == frames[i - 1].code && frame.offset == frames[i - 1].offset) {
            frame.id = frames[i - 1].id;
            continue;
        }
        CodeLocationCache::Location entry;
        entry.code = frame.code;
        entry.offset = static_cast<std::uint32_t>(frame.offset);
        frame.id = cache_.find(entry.code, entry.offset,
                               [&](std::uint64_t identity, std::uint32_t table_bytes) {
                                   return identity == identity_maker.make(frame.code, table_bytes);
                               });
        if (frame.id != 0) {
            continue;
        }
        if (!is_plausible(interpreter, frame)) {
            return false;
        }
        std::size_t table_bytes = 0;
        const SourceLocation location = read_location(interpreter, frame, &table_bytes);
        entry.table_bytes = static_cast<std::uint32_t>(table_bytes);
        entry.identity = identity_maker.make(frame.code, table_bytes);
        const threads::LockGuard lock(mutex_);
        note_nn_call(interpreter, frame.code, location);
        frame.id = define(location);
        entry.id = frame.id;
        // read_frames() takes a cached location for that of a frame that is set up.
        if (frame.offset >= first_traceable(*interpreter.layout, frame.code)) {
            cache_.insert(entry);
        }
    }
    return true;
}

/// The self of _call_impl() is a cell variable since closures use it, so _wrapped_call_impl(),
/// which calls it since PyTorch 2.1, replaces it.
void FrameInterner::note_nn_call(const Interpreter& interpreter, const void* code,
                                 const SourceLocation& location) {
    constexpr std::string_view file = "torch/nn/modules/module.py";
    if (!location.file.ends_with(file)) {
        return;
    }
    const std::string_view function = location.function;
    const bool wrapped = function.ends_with("_wrapped_call_impl");
    const bool plain = !wrapped && function.ends_with("_call_impl") && !nn_call_is_wrapped_ &&
                       !rejected_plain_nn_call_;
    if ((wrapped && !rejected_wrapped_nn_call_) || plain) {
        nn_call_is_wrapped_ = wrapped;
        nn_code_.store(nullptr, std::memory_order_relaxed);
        nn_identity_.store(identity_of_nn_call(*interpreter.layout, code),
                           std::memory_order_release);
        nn_code_.store(code, std::memory_order_release);
    }
}

bool FrameInterner::reject_nn_call() {
    const threads::LockGuard lock(mutex_);
    nn_code_.store(nullptr, std::memory_order_relaxed);
    (nn_call_is_wrapped_ ? rejected_wrapped_nn_call_ : rejected_plain_nn_call_) = true;
    return nn_call_is_wrapped_;
}

std::uint32_t FrameInterner::forward_marker() {
    SourceLocation marker;
    marker.function = trace::forward_marker;
    const threads::LockGuard lock(mutex_);
    return define(marker);
}

std::uint32_t FrameInterner::define(const SourceLocation& location) {
    std::string key = location.function;
    key += '\0';
    key += location.file;
    key += '\0';
    key += std::to_string(location.line);
    key += '\0';
    key += std::to_string(location.first_line);
    const auto known = ids_.find(key);
    if (known != ids_.end()) {
        return known->second;
    }
    trace::PythonFrameDef definition;
    definition.id = static_cast<std::uint32_t>(ids_.size() + 1);
    definition.function = definitions_.string_id(location.function);
    definition.file = definitions_.string_id(location.file);
    definition.line = static_cast<std::uint32_t>(location.line);
    definition.first_line =
        location.first_line > 0 ? static_cast<std::uint32_t>(location.first_line) : 0;
    definitions_.define(definition);
    ids_.emplace(std::move(key), definition.id);
    return definition.id;
}

}  // namespace memlab::profiler::python
