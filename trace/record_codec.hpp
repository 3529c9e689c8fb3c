// The codec of records. Events have their own encoding (event_codec.hpp); every other record is its
// tag, the length of the rest in bytes, and its fields() in order: numbers as varints (LEB128),
// zigzag-coded where a value may fall; strings as length and bytes.
//
// Forward and backward compatible: a reader skips unknown fields at the end of a record, and
// missing ones keep their defaults. So new fields are added at the end, without a new format
// version.
//
// Encoder and decoder are visitors of the same fields(), so they cannot diverge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trace/event_codec.hpp"
#include "trace/log_format.hpp"
#include "trace/record.hpp"

namespace memlab::trace {

template <typename Record>
inline constexpr std::uint8_t record_tag = 0;
#define MEMLAB_TAG(Record, name, tag) \
    template <>                       \
    inline constexpr std::uint8_t record_tag<Record> = tag;
MEMLAB_RECORD_KINDS(MEMLAB_TAG)
#undef MEMLAB_TAG

/// Appends records to a byte vector. May throw std::bad_alloc.
class RecordEncoder {
  public:
    /// Appends to `bytes`; updates `bases`.
    RecordEncoder(std::vector<std::uint8_t>& bytes, DifferenceBases& bases)
        : bytes_(bytes), bases_(bases) {}

    /// Tag, length and fields.
    template <typename Record>
    void encode(const Record& record) {
        static_assert(record_tag<Record> != 0);
        byte(record_tag<Record>);
        const std::size_t begin = bytes_.size();
        Record::fields(record, *this);
        put_length(begin);
    }

    // The visitor.
    void time(const char* /*name*/, std::uint64_t value);
    template <typename Integer>
    void number(const char* /*name*/, Integer value) {
        put(static_cast<std::make_unsigned_t<Integer>>(value));
    }
    void text(const char* /*name*/, const std::string& value);
    void flag(const char* /*name*/, bool value) { byte(value ? 1 : 0); }
    template <typename Enum>
    void choice(const char* /*name*/, Enum value, Enum /*last*/) {
        byte(static_cast<std::uint8_t>(value));
    }
    void definition(const char* /*name*/, Definition /*what*/, std::uint32_t id) { put(id); }
    void reference(const char* /*name*/, Definition /*what*/, std::uint32_t id) { put(id); }
    void subject(const char* /*name*/, Definition /*what*/, std::uint32_t id) { put(id); }
    void correlation(const char* /*name*/, std::uint32_t value);
    void period(const char* /*start*/, const char* /*duration*/, std::uint64_t start,
                std::uint64_t end);
    /// Eight bytes, little-endian.
    void overwritten(const char* /*name*/, std::uint64_t value);
    template <typename Item, typename Fields>
    void list(const char* /*name*/, const std::vector<Item>& items, Fields fields) {
        put(items.size());
        for (const Item& item : items) {
            fields(item, *this);
        }
    }
    void frame(const Frame& frame);

  private:
    void byte(std::uint8_t value) { bytes_.push_back(value); }
    void put(std::uint64_t value);
    void put_length(std::size_t begin);

    std::vector<std::uint8_t>& bytes_;
    DifferenceBases& bases_;
};

/// Reads the fields of one record. Never allocates more than a small multiple of the bytes given.
/// May throw std::bad_alloc.
class RecordDecoder {
  public:
    /// Reads from `from`; updates `bases` if the whole record is valid.
    RecordDecoder(ByteReader& from, DifferenceBases& bases)
        : from_(from), bases_(bases), next_(bases) {}

    /// After the tag byte was read.
    template <typename Record>
    DecodeStatus decode(Record& record) {
        const std::uint8_t* const record_end = begin();
        if (from_.status() == DecodeStatus::ok) {
            Record::fields(record, *this);
            end(record_end);
        }
        return from_.status();
    }

    // The visitor. A field beyond the end of the record keeps its value.
    void time(const char* /*name*/, std::uint64_t& value);
    template <typename Integer>
    void number(const char* /*name*/, Integer& value) {
        if (more()) {
            from_.number(value);
        }
    }
    void text(const char* /*name*/, std::string& value);
    void flag(const char* /*name*/, bool& value);
    template <typename Enum>
    void choice(const char* /*name*/, Enum& value, Enum last) {
        std::uint8_t bits = static_cast<std::uint8_t>(value);
        if (more() && from_.byte(bits) && bits > static_cast<std::uint8_t>(last)) {
            from_.fail(DecodeStatus::bad);
            return;
        }
        value = static_cast<Enum>(bits);
    }
    void definition(const char* name, Definition /*what*/, std::uint32_t& id) { number(name, id); }
    void reference(const char* name, Definition /*what*/, std::uint32_t& id) { number(name, id); }
    void subject(const char* name, Definition /*what*/, std::uint32_t& id) { number(name, id); }
    void correlation(const char* /*name*/, std::uint32_t& value);
    void period(const char* /*start*/, const char* /*duration*/, std::uint64_t& start,
                std::uint64_t& end);
    void overwritten(const char* /*name*/, std::uint64_t& value);
    template <typename Item, typename Fields>
    void list(const char* /*name*/, std::vector<Item>& items, Fields fields) {
        if (!more()) {
            return;
        }
        items.resize(from_.count());
        in_list_ = true;
        for (Item& item : items) {
            fields(item, *this);
        }
        in_list_ = false;
    }
    void frame(Frame& frame);

  private:
    /// Reads the record's length; returns its end.
    const std::uint8_t* begin();
    void end(const std::uint8_t* record_end);
    /// Whether the next field is present. Items of a list are always complete.
    bool more() const { return in_list_ || !from_.at_end(); }

    ByteReader& from_;
    DifferenceBases& bases_;
    DifferenceBases next_;
    const std::uint8_t* input_end_ = nullptr;  ///< the end of from_ outside of the record
    bool in_list_ = false;
};

}  // namespace memlab::trace
