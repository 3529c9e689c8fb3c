#include "profiler/python/frame_interner.hpp"

#include "profiler/python/line_table.hpp"
#include "profiler/word_mix.hpp"

namespace memlab::profiler::python {
namespace {

constexpr std::uint64_t factor = mix_factor;

std::uint64_t word(const unsigned char* data) {
    return python::read<std::uint64_t>(data, 0);
}

/// The end is read with what comes before it, where there is enough: no byte is left to copy alone.
std::uint64_t hash_of(const unsigned char* data, std::size_t size) {
    std::uint64_t hash = size ^ factor;
    std::uint64_t other = factor;  // a second lane: a multiplication need not wait for the last
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

/// What tells a code object from another one at its address.
class Identities {
  public:
    Identities(const Interpreter& interpreter, bool numbered)
        : interpreter_(interpreter), layout_(*interpreter.layout), numbered_(numbered) {}

    std::uint64_t of(const void* code, std::size_t table_bytes) {
        const std::uint64_t numbered = numbered_ ? numbered_identity(layout_, code) : 0;
        if (numbered != 0) {
            return numbered;
        }
        const auto* function = read<const void*>(code, layout_.code_qualname);
        const auto* file = read<const void*>(code, layout_.code_filename);
        const auto* table = read<const void*>(code, layout_.code_line_table);
        const std::uint64_t first = read<std::uint32_t>(code, layout_.code_first_line);
        const std::span<const unsigned char> lines = bytes_of(interpreter_.types, table);
        if (lines.size() < table_bytes) {
            return 0;
        }
        if (file != last_file_) {
            last_file_ = file;
            last_file_hash_ = text(file);
        }
        return hashed_identity(mix(mix(text(function), last_file_hash_) ^ first,
                                   hash_of(lines.data(), table_bytes) ^ factor));
    }

  private:
    std::uint64_t text(const void* object) const {
        Characters characters;
        return characters_of(layout_, interpreter_.types, object, &characters)
                   ? hash_of(characters.data, characters.bytes()) ^ characters.width
                   : 1;
    }

    const Interpreter& interpreter_;
    const Layout& layout_;
    const bool numbered_;
    const void* last_file_ = nullptr;  // most of a stack's frames share a few
    std::uint64_t last_file_hash_ = 0;
};

std::string text_of(const Interpreter& interpreter, const void* object) {
    Characters characters;
    return characters_of(*interpreter.layout, interpreter.types, object, &characters)
               ? utf8(characters)
               : std::string();
}

}  // namespace

Place place_of(const Interpreter& interpreter, const RawFrame& frame, std::size_t* table_bytes) {
    const Layout& layout = *interpreter.layout;
    Place place;
    place.function = text_of(interpreter, read<const void*>(frame.code, layout.code_qualname));
    place.file = text_of(interpreter, read<const void*>(frame.code, layout.code_filename));
    place.first_line = read<std::int32_t>(frame.code, layout.code_first_line);
    const LineAt at =
        line_at(bytes_of(interpreter.types, read<const void*>(frame.code, layout.code_line_table)),
                place.first_line, frame.offset);
    place.line = at.line;
    if (table_bytes != nullptr) {
        *table_bytes = at.bytes;
    }
    return place;
}

FrameInterner::FrameInterner(StackDefinitions& definitions) : definitions_(definitions) {}

[[gnu::hot]] void FrameInterner::number(const Interpreter& interpreter, bool in_main_interpreter,
                                        RawFrame* frames, std::size_t count) {
    Identities identities(interpreter, in_main_interpreter);
    for (std::size_t i = 0; i < count; ++i) {
        RawFrame& frame = frames[i];
        if (frame.number != 0) {
            continue;
        }
        // Recursion: nothing can have changed since the frame before.
        if (i > 0 && frame.code == frames[i - 1].code && frame.offset == frames[i - 1].offset) {
            frame.number = frames[i - 1].number;
            continue;
        }
        CodeLocationCache::Place kept;
        kept.code = frame.code;
        kept.offset = static_cast<std::uint32_t>(frame.offset);
        frame.number = known_.find(kept.code, kept.offset,
                                   [&](std::uint64_t identity, std::uint32_t table_bytes) {
                                       return identity == identities.of(frame.code, table_bytes);
                                   });
        if (frame.number != 0) {
            continue;
        }
        std::size_t table_bytes = 0;
        const Place place = place_of(interpreter, frame, &table_bytes);
        kept.table_bytes = static_cast<std::uint32_t>(table_bytes);
        kept.identity = identities.of(frame.code, table_bytes);
        const std::lock_guard lock(mutex_);
        frame.number = define(place);
        kept.number = frame.number;
        // Who finds a place there takes the frame for one that has been set up.
        if (frame.offset >= first_traceable(*interpreter.layout, frame.code)) {
            known_.keep(kept);
        }
    }
}

/// With mutex_ held.
std::uint32_t FrameInterner::define(const Place& place) {
    std::string key = place.function;
    key += '\0';
    key += place.file;
    key += '\0';
    key += std::to_string(place.line);
    key += '\0';
    key += std::to_string(place.first_line);
    const auto known = places_.find(key);
    if (known != places_.end()) {
        return known->second;
    }
    trace::PythonFrameDef definition;
    definition.id = static_cast<std::uint32_t>(places_.size() + 1);
    definition.function = definitions_.string_id(place.function);
    definition.file = definitions_.string_id(place.file);
    definition.line = static_cast<std::uint32_t>(place.line);
    definition.first_line = place.first_line > 0 ? static_cast<std::uint32_t>(place.first_line) : 0;
    definitions_.define(definition);
    places_.emplace(std::move(key), definition.id);
    return definition.id;
}

}  // namespace memlab::profiler::python
