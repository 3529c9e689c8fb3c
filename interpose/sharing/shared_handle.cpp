#include "interpose/sharing/shared_handle.hpp"

#include <cstring>

#include "trace/crc32c.hpp"

namespace memlab::interpose {
namespace {

constexpr unsigned char scramble = 0xa5;

struct Fields {
    char magic[8];
    SharedHandle handle;
    std::uint32_t checksum;  // of all before it
    std::uint32_t unused;
};
static_assert(sizeof(Fields) == sizeof(CUipcMemHandle) && sizeof(SharedHandle) == 48);

constexpr char magic[8] = {'m', 'e', 'm', 'l', 'a', 'b', '\1', '\n'};

std::uint32_t checksum_of(const Fields& fields) {
    return trace::crc32c(0, &fields, offsetof(Fields, checksum));
}

void scrambled(const void* from, void* to) {
    for (std::size_t i = 0; i < sizeof(Fields); ++i) {
        static_cast<unsigned char*>(to)[i] =
            static_cast<unsigned char>(static_cast<const unsigned char*>(from)[i] ^ scramble);
    }
}

}  // namespace

CUipcMemHandle encode(const SharedHandle& handle) {
    Fields fields{};
    std::memcpy(fields.magic, magic, sizeof magic);
    fields.handle = handle;
    fields.checksum = checksum_of(fields);
    CUipcMemHandle encoded;
    scrambled(&fields, &encoded);
    return encoded;
}

bool decode(const CUipcMemHandle& encoded, SharedHandle* handle) {
    Fields fields;
    scrambled(&encoded, &fields);
    if (std::memcmp(fields.magic, magic, sizeof magic) != 0 ||
        fields.checksum != checksum_of(fields)) {
        return false;
    }
    *handle = fields.handle;
    return true;
}

}  // namespace memlab::interpose
