#include "profiler/python/frame_numbers.hpp"

#include "profiler/python/line_table.hpp"

namespace memlab::profiler::python {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t factor = 0x9e3779b97f4a7c15ULL;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

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
        const auto* function = read<const void*>(code, layout_.code_qualname);
        const auto* file = read<const void*>(code, layout_.code_filename);
        const auto* table = read<const void*>(code, layout_.code_line_table);
        const std::uint64_t first = read<std::uint32_t>(code, layout_.code_first_line);
        if (numbered_ && layout_.code_version != 0) {
            const std::uint64_t version = read<std::uint32_t>(code, layout_.code_version);
            if (version != 0) {
                return mix(mix(address(function) ^ factor, address(file)),
                           mix(address(table) ^ factor, version << 32 | first));
            }
        }
        const std::span<const unsigned char> lines = bytes_of(interpreter_.types, table);
        if (lines.size() < table_bytes) {
            return 0;
        }
        if (file != last_file_) {
            last_file_ = file;
            last_file_hash_ = text(file);
        }
        return mix(mix(text(function), last_file_hash_) ^ first,
                   hash_of(lines.data(), table_bytes) ^ factor);
    }

  private:
    static std::uint64_t address(const void* object) {
        return reinterpret_cast<std::uintptr_t>(object);
    }

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

struct FrameNumbers::Known {
    std::uint64_t code;
    std::uint64_t offset_and_table_bytes;
    std::uint64_t identity;
    std::uint32_t number;
};

FrameNumbers::FrameNumbers(StackDefinitions& definitions)
    : definitions_(definitions), sets_(std::make_unique<Set[]>(set_count)) {}

/// False for an entry that is being written.
bool FrameNumbers::read(const Entry& entry, Known* known) {
    const std::uint32_t before = entry.version.load(std::memory_order_acquire);
    known->code = entry.code.load(std::memory_order_acquire);
    known->offset_and_table_bytes = entry.offset_and_table_bytes.load(std::memory_order_acquire);
    known->identity = entry.identity.load(std::memory_order_acquire);
    known->number = entry.number.load(std::memory_order_acquire);
    return (before & 1) == 0 && entry.version.load(std::memory_order_relaxed) == before;
}

/// One thread at a time: with mutex_ held.
void FrameNumbers::write(Entry& entry, const Known& known) {
    const std::uint32_t version = entry.version.load(std::memory_order_relaxed);
    entry.version.store(version + 1, std::memory_order_relaxed);
    entry.code.store(known.code, std::memory_order_release);
    entry.offset_and_table_bytes.store(known.offset_and_table_bytes, std::memory_order_release);
    entry.identity.store(known.identity, std::memory_order_release);
    entry.number.store(known.number, std::memory_order_release);
    entry.version.store(version + 2, std::memory_order_release);
}

void FrameNumbers::of(const Interpreter& interpreter, bool in_main_interpreter,
                      const RawFrame* frames, std::size_t count, std::uint32_t* numbers) {
    Identities identities(interpreter, in_main_interpreter);
    for (std::size_t i = 0; i < count; ++i) {
        const RawFrame& frame = frames[i];
        // Recursion: nothing can have changed since the frame before.
        if (i > 0 && frame.code == frames[i - 1].code && frame.offset == frames[i - 1].offset) {
            numbers[i] = numbers[i - 1];
            continue;
        }
        const auto code = reinterpret_cast<std::uintptr_t>(frame.code);
        const std::uint64_t offset = static_cast<std::uint32_t>(frame.offset);
        std::array<Entry, set_size>& set =
            sets_[mix(code ^ offset << 48, factor) % set_count].entries;
        numbers[i] = 0;
        for (const Entry& entry : set) {
            Known known;
            if (read(entry, &known) && known.code == code &&
                known.offset_and_table_bytes >> 32 == offset &&
                known.identity ==
                    identities.of(frame.code, known.offset_and_table_bytes & UINT32_MAX)) {
                numbers[i] = known.number;
                break;
            }
        }
        if (numbers[i] != 0) {
            continue;
        }
        std::size_t table_bytes = 0;
        const Place place = place_of(interpreter, frame, &table_bytes);
        const std::lock_guard lock(mutex_);
        numbers[i] = define(place);
        // A place whose code object is gone makes room first.
        Entry* victim = &set[next_victim_.fetch_add(1, std::memory_order_relaxed) % set_size];
        for (Entry& entry : set) {
            if (entry.code.load(std::memory_order_relaxed) == 0 ||
                (entry.code.load(std::memory_order_relaxed) == code &&
                 entry.offset_and_table_bytes.load(std::memory_order_relaxed) >> 32 == offset)) {
                victim = &entry;
                break;
            }
        }
        write(*victim, {.code = code,
                        .offset_and_table_bytes = offset << 32 | table_bytes,
                        .identity = identities.of(frame.code, table_bytes),
                        .number = numbers[i]});
    }
}

/// With mutex_ held.
std::uint32_t FrameNumbers::define(const Place& place) {
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
