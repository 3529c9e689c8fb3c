#include "profiler/unwind/frame_tables.hpp"

namespace memlab::profiler::unwind {
namespace {

constexpr std::uint8_t omitted = 0xff;
constexpr std::uint8_t format_mask = 0x0f;
constexpr std::uint8_t relation_mask = 0x70;
constexpr std::uint8_t indirect = 0x80;
constexpr std::uint8_t pc_relative = 0x10;
constexpr std::uint8_t data_relative = 0x30;
constexpr std::uint8_t sorted_table = 0x3b;  // datarel | sdata4: the only one that linkers write

// Reads the entry (CIE or FDE) at the reader's position: its bytes after the length. Empty at the
// end of the section.
Bytes read_entry(ByteReader& reader) {
    std::uint64_t length = reader.number<std::uint32_t>();
    if (length == 0xffffffffU) {
        length = reader.number<std::uint64_t>();
    }
    return reader.take(length);
}

struct Cie {
    Bytes program;
    std::uint64_t code_alignment = 1;
    std::int64_t data_alignment = 1;
    std::uint64_t return_column = 16;
    std::uint8_t pointer_encoding = 0;
    bool has_augmentation_data = false;
    bool signal_frame = false;
};

bool read_cie(const FrameTables& tables, std::uintptr_t address, Cie* cie) {
    ByteReader whole(tables.from(address));
    ByteReader reader(read_entry(whole));
    const std::uint32_t id = reader.number<std::uint32_t>();
    const std::uint8_t version = reader.byte();
    if (reader.failed() || id != 0 || (version != 1 && version != 3 && version != 4)) {
        return false;
    }
    ByteReader augmentation(reader.rest());
    while (reader.byte() != 0) {
    }
    if (augmentation.rest().begin + 1 < reader.position()) {
        // Augmentation data has a length, so can be skipped, only if the string begins with 'z'.
        if (augmentation.byte() != 'z') {
            return false;
        }
        cie->has_augmentation_data = true;
    }
    if (version == 4) {
        const std::uint8_t address_size = reader.byte();
        const std::uint8_t segment_size = reader.byte();
        if (address_size != sizeof(std::uintptr_t) || segment_size != 0) {
            return false;
        }
    }
    cie->code_alignment = reader.uleb();
    cie->data_alignment = reader.sleb();
    cie->return_column = version == 1 ? reader.byte() : reader.uleb();
    if (cie->has_augmentation_data) {
        ByteReader data(reader.take(reader.uleb()));
        bool understood = true;
        while (understood) {
            switch (augmentation.byte()) {
                case 'R':
                    cie->pointer_encoding = data.byte();
                    break;
                case 'P': {
                    // The personality routine is only skipped, so `indirect` does not matter.
                    const auto encoding = static_cast<std::uint8_t>(data.byte() & ~indirect);
                    read_encoded_pointer(data, encoding, 0);
                    break;
                }
                case 'L':
                    data.byte();
                    break;
                case 'S':
                    cie->signal_frame = true;
                    break;
                case 'B':
                    break;
                default:  // the end, or an unknown letter, whose data is skipped with the rest
                    understood = false;
            }
        }
        if (data.failed()) {
            return false;
        }
    }
    cie->program = reader.rest();
    return !reader.failed();
}

// The FDE's address by the header's binary search table; 0 if there is none.
std::uintptr_t search_table(const FrameTables& tables, ByteReader table, std::uint64_t count,
                            std::uintptr_t address) {
    constexpr std::size_t entry_size = 8;
    if (count > table.left() / entry_size) {
        return 0;
    }
    const std::uintptr_t first = table.position();
    const auto start = [&](std::uint64_t index) {
        ByteReader entry({first + index * entry_size, first + count * entry_size});
        return tables.header + static_cast<std::uintptr_t>(
                                   static_cast<std::intptr_t>(entry.number<std::int32_t>()));
    };
    std::uint64_t low = 0;
    std::uint64_t high = count;  // invariant: entries from `high` on start after the address
    while (low < high) {
        const std::uint64_t middle = low + (high - low) / 2;
        if (start(middle) <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return 0;
    }
    ByteReader entry({first + (low - 1) * entry_size + 4, first + count * entry_size});
    return tables.header +
           static_cast<std::uintptr_t>(static_cast<std::intptr_t>(entry.number<std::int32_t>()));
}

// A linear search of .eh_frame, for objects whose linker wrote no search table.
bool search_all(const FrameTables& tables, std::uintptr_t frames, std::uintptr_t address,
                FrameDescription* description) {
    ByteReader reader(tables.from(frames));
    while (!reader.at_end()) {
        const std::uintptr_t at = reader.position();
        ByteReader entry(read_entry(reader));
        if (reader.failed() || entry.at_end()) {
            return false;  // a length of zero ends the section
        }
        const bool is_cie = entry.number<std::uint32_t>() == 0;
        if (!is_cie && read_frame_description(tables, at, description) &&
            description->code.contains(address)) {
            return true;
        }
    }
    return false;
}

}  // namespace

Bytes FrameTables::from(std::uintptr_t address) const {
    for (std::size_t i = 0; i < segment_count; ++i) {
        if (segments[i].contains(address)) {
            return {address, segments[i].end};
        }
    }
    return {};
}

std::uintptr_t read_encoded_pointer(ByteReader& reader, std::uint8_t encoding,
                                    std::uintptr_t data_base) {
    const std::uintptr_t own_address = reader.position();
    std::uint64_t value = 0;
    switch (encoding & format_mask) {
        case 0x00:
        case 0x04:
        case 0x0c:
            value = reader.number<std::uint64_t>();
            break;
        case 0x01:
            value = reader.uleb();
            break;
        case 0x02:
            value = reader.number<std::uint16_t>();
            break;
        case 0x03:
            value = reader.number<std::uint32_t>();
            break;
        case 0x09:
            value = static_cast<std::uint64_t>(reader.sleb());
            break;
        case 0x0a:
            value = static_cast<std::uint64_t>(std::int64_t{reader.number<std::int16_t>()});
            break;
        case 0x0b:
            value = static_cast<std::uint64_t>(std::int64_t{reader.number<std::int32_t>()});
            break;
        default:
            reader.fail();
            return 0;
    }
    switch (encoding & (relation_mask | indirect)) {
        case 0:
            return value;
        case pc_relative:
            return own_address + value;
        case data_relative:
            return data_base + value;
        default:
            reader.fail();
            return 0;
    }
}

bool read_frame_description(const FrameTables& tables, std::uintptr_t fde,
                            FrameDescription* description) {
    ByteReader whole(tables.from(fde));
    ByteReader reader(read_entry(whole));
    const std::uintptr_t id_address = reader.position();
    const std::uint32_t distance = reader.number<std::uint32_t>();
    Cie cie;
    if (reader.failed() || distance == 0 || !read_cie(tables, id_address - distance, &cie)) {
        return false;
    }
    const std::uintptr_t begin = read_encoded_pointer(reader, cie.pointer_encoding, 0);
    const std::uintptr_t size = read_encoded_pointer(reader, cie.pointer_encoding & format_mask, 0);
    if (cie.has_augmentation_data) {
        reader.take(reader.uleb());
    }
    if (reader.failed() || begin == 0 || begin + size < begin) {
        return false;
    }
    description->code = {begin, begin + size};
    description->initial_program = cie.program;
    description->program = reader.rest();
    description->code_alignment = cie.code_alignment;
    description->data_alignment = cie.data_alignment;
    description->return_column = cie.return_column;
    description->pointer_encoding = cie.pointer_encoding;
    description->signal_frame = cie.signal_frame;
    return true;
}

bool find_frame_description(const FrameTables& tables, std::uintptr_t address,
                            FrameDescription* description) {
    ByteReader reader(tables.from(tables.header));
    const std::uint8_t version = reader.byte();
    const std::uint8_t frames_encoding = reader.byte();
    const std::uint8_t count_encoding = reader.byte();
    const std::uint8_t table_encoding = reader.byte();
    if (reader.failed() || version != 1) {
        return false;
    }
    const std::uintptr_t frames = read_encoded_pointer(reader, frames_encoding, tables.header);
    if (count_encoding != omitted && table_encoding == sorted_table) {
        const std::uint64_t count = read_encoded_pointer(reader, count_encoding, tables.header);
        const std::uintptr_t fde =
            reader.failed() ? 0 : search_table(tables, reader, count, address);
        return fde != 0 && read_frame_description(tables, fde, description) &&
               description->code.contains(address);
    }
    return !reader.failed() && search_all(tables, frames, address, description);
}

}  // namespace memlab::profiler::unwind
