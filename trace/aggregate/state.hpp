// Saves and restores the aggregator's state: the contents of a checkpoint. Each class names its
// members once, in a static state(self, archive); writer and reader are visitors of it, so they
// cannot diverge. Numbers are varints, containers are a count and their items.
//
// The format is described by the version in the checkpoint's first record: a member that is added
// later is read only where StateReader::version() is at least the one that brought it.
//
// The reader accepts any bytes: it allocates no more than a small multiple of them, and fails
// instead of reading beyond them. Indexes are checked by the classes after everything is read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/event_codec.hpp"
#include "trace/record.hpp"
#include "trace/record_sink.hpp"

namespace memlab::trace {

/// Says what a checkpoint has in place of a text of the state: for copies without private data.
class TextReplacer {
  public:
    TextReplacer() = default;
    TextReplacer(const TextReplacer&) = delete;
    TextReplacer& operator=(const TextReplacer&) = delete;

    /// May throw std::bad_alloc.
    virtual std::string replace(const std::string& text) = 0;

  protected:
    ~TextReplacer() = default;
};

/// The last value of an enumeration that is part of a state: greater ones are refused.
template <typename Enum>
inline constexpr Enum last_value = Enum::none;
template <>
inline constexpr MemoryKind last_value<MemoryKind> = last_memory_kind;
template <>
inline constexpr Origin last_value<Origin> = Origin::driver;
template <>
inline constexpr EventType last_value<EventType> = EventType::label;

/// Adapts an archive to the visitors of a record's fields().
template <typename Archive>
struct FieldArchive {
    Archive& archive;

    /// Whether the state has the fields of a record that this version of it brought.
    bool has(std::uint32_t version) const { return archive.version() >= version; }
    template <typename Value>
    void time(const char*, Value& value) {
        archive(value);
    }
    template <typename Value>
    void number(const char*, Value& value) {
        archive(value);
    }
    template <typename Value>
    void text(const char*, Value& value) {
        archive(value);
    }
    template <typename Value>
    void flag(const char*, Value& value) {
        archive(value);
    }
    template <typename Enum>
    void choice(const char*, Enum& value, std::remove_const_t<Enum> last) {
        archive.choice(value, last);
    }
    template <typename Value>
    void reference(const char*, Definition, Value& value) {
        archive(value);
    }
    template <typename Value>
    void subject(const char*, Definition, Value& value) {
        archive(value);
    }
};

/// Passes what it writes to a sink, in AggregateState records of about `part_size` bytes. May throw
/// std::bad_alloc.
class StateWriter {
  public:
    static constexpr bool reading = false;
    static constexpr std::size_t part_size = std::size_t{16} << 10;

    /// `texts`: says what to write for each text; null: the text itself.
    explicit StateWriter(RecordSink& sink, TextReplacer* texts = nullptr)
        : sink_(sink), texts_(texts) {}

    /// The version of the state that is written.
    static constexpr std::uint32_t version() { return Checkpoint::state_version; }

    template <typename... Values>
    void operator()(const Values&... values) {
        (put(values), ...);
    }
    template <typename Enum>
    void choice(const Enum& value, Enum /*last*/) {
        number(static_cast<std::uint64_t>(value));
    }
    /// A record, by its fields().
    template <typename Record>
    void record(const Record& record) {
        FieldArchive<StateWriter> visitor{*this};
        Record::fields(record, visitor);
    }
    /// The number of items that the caller writes next.
    void count(std::size_t items) { number(items); }
    void number(std::uint64_t value) {
        std::uint8_t bytes[max_number_size];
        bytes_.append(reinterpret_cast<const char*>(bytes),
                      static_cast<std::size_t>(put_number(bytes, value) - bytes));
    }
    void finish() { flush(true); }

  private:
    template <typename Value>
    void put(const Value& value) {
        if constexpr (std::is_enum_v<Value> || std::is_integral_v<Value>) {
            number(static_cast<std::uint64_t>(value));
        } else {
            Value::state(value, *this);
            if (bytes_.size() >= part_size) {
                flush(false);
            }
        }
    }
    void put(const std::string& text) {
        if (texts_ == nullptr) {
            put_text(text);
        } else {
            put_text(texts_->replace(text));
        }
    }
    void put_text(const std::string& text) {
        number(text.size());
        bytes_ += text;
    }
    template <typename Item, std::size_t size>
    void put(const std::array<Item, size>& items) {
        for (const Item& item : items) {
            put(item);
        }
    }
    template <typename Item>
    void put(const std::vector<Item>& items) {
        number(items.size());
        for (const Item& item : items) {
            put(item);
        }
    }
    template <typename Value>
    void put(const std::unique_ptr<Value>& value) {
        put(value != nullptr);
        if (value != nullptr) {
            put(*value);
        }
    }
    template <typename Value>
    void put(const std::optional<Value>& value) {
        put(value.has_value());
        if (value) {
            put(*value);
        }
    }
    template <typename Key, typename Value>
    void put(const std::pair<Key, Value>& pair) {
        put(pair.first);
        put(pair.second);
    }
    template <typename Key, typename Value>
    void put(const std::unordered_map<Key, Value>& map) {
        put_map(map);
    }
    template <typename Key, typename Value>
    void put(const std::map<Key, Value>& map) {
        put_map(map);
    }
    template <typename Map>
    void put_map(const Map& map) {
        number(map.size());
        for (const auto& [key, value] : map) {
            put(key);
            put(value);
        }
    }
    void flush(bool last) {
        AggregateState part;
        part.last = last;
        part.bytes.swap(bytes_);
        sink_.on(part);
    }

    RecordSink& sink_;
    TextReplacer* texts_;
    std::string bytes_;
};

/// May throw std::bad_alloc.
class StateReader {
  public:
    static constexpr bool reading = true;

    StateReader(const std::string& bytes, std::uint32_t version)
        : at_(bytes.data()), end_(at_ + bytes.size()), version_(version) {}

    /// The version of the state that is read.
    std::uint32_t version() const { return version_; }
    /// False once something was wrong; what was read since is arbitrary.
    bool ok() const { return ok_; }
    bool at_end() const { return at_ == end_; }
    void fail() {
        ok_ = false;
        at_ = end_;
    }

    template <typename... Values>
    void operator()(Values&... values) {
        (get(values), ...);
    }
    template <typename Enum>
    void choice(Enum& value, Enum last) {
        const std::uint64_t bits = number();
        if (bits > static_cast<std::uint64_t>(last)) {
            fail();
        } else {
            value = static_cast<Enum>(bits);
        }
    }
    template <typename Record>
    void record(Record& record) {
        FieldArchive<StateReader> visitor{*this};
        Record::fields(record, visitor);
    }
    /// The number of items that follow: no more than there are bytes.
    std::size_t count() {
        const std::uint64_t items = number();
        if (items > static_cast<std::uint64_t>(end_ - at_)) {
            fail();
            return 0;
        }
        return static_cast<std::size_t>(items);
    }
    std::uint64_t number() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 64 && at_ != end_; shift += 7) {
            const auto byte = static_cast<unsigned char>(*at_++);
            value |= std::uint64_t{byte & 0x7fU} << shift;
            if (byte < 0x80) {
                return value;
            }
        }
        fail();
        return 0;
    }

  private:
    template <typename Value>
    void get(Value& value) {
        if constexpr (std::is_enum_v<Value>) {
            choice(value, last_value<Value>);
        } else if constexpr (std::is_same_v<Value, bool>) {
            const std::uint64_t bits = number();
            value = bits != 0;
        } else if constexpr (std::is_integral_v<Value>) {
            const std::uint64_t bits = number();
            value = static_cast<Value>(bits);
            if (static_cast<std::uint64_t>(value) != bits) {
                fail();
            }
        } else {
            Value::state(value, *this);
        }
    }
    void get(std::string& text) {
        const std::size_t size = count();
        text.assign(at_, size);
        at_ += size;
    }
    template <typename Item, std::size_t size>
    void get(std::array<Item, size>& items) {
        for (Item& item : items) {
            get(item);
        }
    }
    template <typename Item>
    void get(std::vector<Item>& items) {
        const std::size_t size = count();
        items.clear();
        for (std::size_t i = 0; i < size && ok_; ++i) {
            items.emplace_back();
            get(items.back());
        }
    }
    template <typename Value>
    void get(std::unique_ptr<Value>& value) {
        bool present = false;
        get(present);
        if (present) {
            value = std::make_unique<Value>();
            get(*value);
        }
    }
    template <typename Value>
    void get(std::optional<Value>& value) {
        bool present = false;
        get(present);
        if (present) {
            get(value.emplace());
        }
    }
    template <typename Key, typename Value>
    void get(std::unordered_map<Key, Value>& map) {
        get_map(map);
    }
    template <typename Key, typename Value>
    void get(std::map<Key, Value>& map) {
        get_map(map);
    }
    template <typename Map>
    void get_map(Map& map) {
        const std::size_t size = count();
        map.clear();
        for (std::size_t i = 0; i < size && ok_; ++i) {
            typename Map::key_type key{};
            get(key);
            get(map[key]);
        }
    }

    const char* at_;
    const char* end_;
    std::uint32_t version_;
    bool ok_ = true;
};

}  // namespace memlab::trace
