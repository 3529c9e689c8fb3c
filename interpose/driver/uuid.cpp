#include "interpose/driver/uuid.hpp"

#include "interpose/driver/driver.hpp"

namespace memlab::interpose {

std::string device_uuid(CUdevice device) {
    CUuuid uuid{};
    if (call_real(&Driver::cuDeviceGetUuid_v2, &uuid, device) != CUDA_SUCCESS) {
        return {};
    }
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
        constexpr char digits[] = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            text += '-';
        }
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

}  // namespace memlab::interpose
