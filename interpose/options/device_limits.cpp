#include "interpose/options/device_limits.hpp"

#include <algorithm>
#include <charconv>

#include "interpose/options/quantities.hpp"

namespace memlab::interpose {
namespace {

constexpr std::size_t uuid_digits = 32;

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.front() == ' ') {
        text.remove_prefix(1);
    }
    while (!text.empty() && text.back() == ' ') {
        text.remove_suffix(1);
    }
    return text;
}

/// The lower-case digits of a full or abbreviated UUID; empty if invalid.
std::string parse_uuid_digits(std::string_view text) {
    if (!text.starts_with("GPU-") && !text.starts_with("MIG-")) {
        return {};
    }
    std::string digits;
    for (const char c : text.substr(4)) {
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')) {
            digits += c;
        } else if (c >= 'A' && c <= 'F') {
            digits += static_cast<char>(c - 'A' + 'a');
        } else if (c != '-') {
            return {};
        }
    }
    return digits.size() <= uuid_digits ? digits : std::string();
}

bool parse_device(std::string_view text, DeviceLimit* limit) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit->index);
    if (error == std::errc() && end == text.data() + text.size() && limit->index >= 0) {
        return true;
    }
    limit->index = -1;
    limit->uuid = parse_uuid_digits(text);
    return !limit->uuid.empty();
}

bool parse_entry(std::string_view text, DeviceLimit* limit) {
    constexpr std::string_view key = "device=";
    const std::size_t comma = text.find(',');
    if (!parse_bytes(trimmed(text.substr(0, comma)), &limit->bytes)) {
        return false;
    }
    if (comma == std::string_view::npos) {
        return true;
    }
    const std::string_view device = trimmed(text.substr(comma + 1));
    return device.starts_with(key) && parse_device(trimmed(device.substr(key.size())), limit);
}

bool same_device(const DeviceLimit& a, const DeviceLimit& b) {
    return a.index == b.index && a.uuid == b.uuid;
}

}  // namespace

bool parse_limits(std::string_view text, std::vector<DeviceLimit>* limits) {
    std::vector<DeviceLimit> parsed;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(';', begin), text.size());
        DeviceLimit limit;
        if (!parse_entry(trimmed(text.substr(begin, end - begin)), &limit)) {
            return false;
        }
        for (const DeviceLimit& other : parsed) {
            if (same_device(limit, other)) {
                return false;
            }
        }
        parsed.push_back(std::move(limit));
        begin = end + 1;
    }
    *limits = std::move(parsed);
    return true;
}

std::uint64_t find_limit(const std::vector<DeviceLimit>& limits, int index, std::string_view uuid) {
    const std::string digits = parse_uuid_digits(uuid);
    std::uint64_t default_limit = 0;
    for (const DeviceLimit& limit : limits) {
        const bool names_none = limit.index < 0 && limit.uuid.empty();
        if (names_none) {
            default_limit = limit.bytes;
        } else if (limit.index == index ||
                   (!limit.uuid.empty() && digits.starts_with(limit.uuid))) {
            return limit.bytes;
        }
    }
    return default_limit;
}

VisibleMemory visible_memory(std::uint64_t free, std::uint64_t total, std::uint64_t cached,
                             std::uint64_t limit) {
    const std::uint64_t used = total - std::min(free, total);
    const std::uint64_t in_use = used - std::min(cached, used);
    const std::uint64_t visible = limit == 0 ? total : std::min(limit, total);
    return {visible - std::min(in_use, visible), visible};
}

bool fits_limit(std::uint64_t bytes, std::uint64_t free, std::uint64_t total, std::uint64_t limit) {
    if (limit == 0 || limit >= total) {
        return true;
    }
    const std::uint64_t used = total - std::min(free, total);
    const std::uint64_t pages = bytes / device_page + (bytes % device_page != 0 ? 1 : 0);
    return used <= limit && pages <= (limit - used) / device_page;
}

}  // namespace memlab::interpose
