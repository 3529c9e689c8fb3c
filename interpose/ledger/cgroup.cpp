#include "interpose/ledger/cgroup.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <climits>

#include "interpose/driver/function_ref.hpp"
#include "interpose/options/small_file.hpp"

namespace memlab::interpose {
namespace {

/// Takes the first line off `text`.
std::string_view next_line(std::string_view& text) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    return line;
}

/// Takes the first word off `line`; words end at a space.
std::string_view next_word(std::string_view& line) {
    const std::size_t end = line.find(' ');
    const std::string_view word = line.substr(0, end);
    line = end == std::string_view::npos ? std::string_view() : line.substr(end + 1);
    return word;
}

/// As mountinfo has paths: "\040" is a space.
std::string without_octal(std::string_view text) {
    std::string plain;
    plain.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        unsigned value = 0;
        const char* const digits = text.data() + i + 1;
        if (text[i] == '\\' && i + 3 < text.size() &&
            std::from_chars(digits, digits + 3, value, 8).ptr == digits + 3 && value < 256) {
            plain += static_cast<char>(value);
            i += 3;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

bool has_dot_dot(std::string_view path) {
    return path == "/.." || path.starts_with("/../") || path.ends_with("/..") ||
           path.find("/../") != std::string_view::npos;
}

bool same_letter(char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
}

/// Whether the name of a region is of the GPU: it contains the address, whose domain has four
/// digits or more.
bool is_of_gpu(std::string_view region, std::string_view pci) {
    const auto is_digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    const auto found =
        std::search(region.begin(), region.end(), pci.begin(), pci.end(), same_letter);
    if (pci.empty() || found == region.end()) {
        return false;
    }
    const auto end = found + static_cast<std::ptrdiff_t>(pci.size());
    auto begin = found;
    while (begin != region.begin() && *(begin - 1) == '0') {
        --begin;
    }
    return (begin == region.begin() || !is_digit(*(begin - 1))) &&
           (end == region.end() || !is_digit(*end));
}

std::optional<std::uint64_t> limit_value(std::string_view text) {
    if (text == "max") {
        return CgroupLimit::unlimited;
    }
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || end != text.data() + text.size()) {
        return std::nullopt;
    }
    const bool beyond =
        error == std::errc::result_out_of_range || value >= static_cast<std::uint64_t>(LLONG_MAX);
    return beyond ? CgroupLimit::unlimited : value;
}

std::string read_cgroup_file(const std::string& path) {
    return read_small_file(path, max_cgroup_file_bytes);
}

/// visit(directory) for the cgroup of a place and each above it that is visible.
void for_each_cgroup(const CgroupPlace& place, FunctionRef<void(const std::string&)> visit) {
    std::string directory = place.directory;
    for (;;) {  // once for each component of a path, at most
        visit(directory);
        if (directory.size() <= place.top.size()) {
            return;
        }
        directory.resize(std::max(directory.rfind('/'), place.top.size()));
    }
}

/// What a symbolic link says; empty where it cannot be read.
std::string link_text(const std::string& path) {
    char text[128];
    const ssize_t length = readlink(path.c_str(), text, sizeof text);
    return length <= 0 ? std::string() : std::string(text, static_cast<std::size_t>(length));
}

}  // namespace

std::string_view cgroup_path(std::string_view cgroup) {
    while (!cgroup.empty()) {
        const std::string_view line = next_line(cgroup);
        if (line.starts_with("0::/")) {
            return line.substr(3);
        }
    }
    return {};
}

CgroupPlace find_cgroup(std::string_view cgroup, std::string_view mounts) {
    CgroupPlace place;
    const std::string_view path = cgroup_path(cgroup);
    if (path.empty() || path.size() > PATH_MAX || has_dot_dot(path)) {
        return place;  // outside of what this process sees
    }
    while (!mounts.empty()) {
        // 35 25 0:30 /root /mount/point options [optional fields] - cgroup2 source options
        std::string_view line = next_line(mounts);
        const std::size_t dash = line.find(" - ");
        if (dash == std::string_view::npos || !line.substr(dash + 3).starts_with("cgroup2 ")) {
            continue;
        }
        for (int field = 0; field < 3; ++field) {
            next_word(line);
        }
        const std::string root = without_octal(next_word(line));
        const std::string point = without_octal(next_word(line));
        const std::size_t cut = root == "/" ? 0 : root.size();
        const bool inside = root == "/" || path == root ||
                            (path.starts_with(root) && path.size() > cut && path[cut] == '/');
        if (!point.starts_with('/') || !root.starts_with('/') || !inside) {
            continue;
        }
        place.path = path;
        place.top = point == "/" ? std::string() : point;
        place.directory = place.top + std::string(path.substr(cut));
        while (place.directory.size() > place.top.size() && place.directory.ends_with('/')) {
            place.directory.pop_back();
        }
        return place;
    }
    return place;
}

CgroupPlace own_cgroup(const std::string& proc) {
    return find_cgroup(read_cgroup_file(proc + "/self/cgroup"),
                       read_cgroup_file(proc + "/self/mountinfo"));
}

std::optional<std::uint64_t> dmem_value(std::string_view file, std::string_view pci) {
    std::optional<std::uint64_t> vram;
    std::optional<std::uint64_t> any;
    const auto keep = [](std::optional<std::uint64_t>& kept, std::uint64_t value) {
        kept = std::min(kept.value_or(value), value);
    };
    while (!file.empty()) {
        std::string_view line = next_line(file);
        const std::string_view region = next_word(line);
        const std::optional<std::uint64_t> value = limit_value(line);
        if (!value || !is_of_gpu(region, pci)) {
            continue;
        }
        keep(any, *value);
        const std::size_t slash = region.rfind('/');
        const std::string_view last =
            slash == std::string_view::npos ? region : region.substr(slash + 1);
        if (last.starts_with("vram")) {
            keep(vram, *value);
        }
    }
    return vram ? vram : any;
}

std::optional<CgroupLimit> dmem_limit(const CgroupPlace& place, std::string_view pci) {
    std::optional<CgroupLimit> tightest;
    if (place.path.empty()) {
        return tightest;
    }
    for_each_cgroup(place, [&](const std::string& directory) {
        const auto value = [&](const char* file) {
            return dmem_value(read_cgroup_file(directory + file), pci);
        };
        const std::optional<std::uint64_t> used = value("/dmem.current");
        const std::optional<std::uint64_t> limit = value("/dmem.max");
        if (used || limit) {
            CgroupLimit here;
            const std::size_t below = place.directory.size() - directory.size();
            here.path =
                place.path.substr(0, place.path.size() - std::min(place.path.size(), below));
            here.path = here.path.empty() ? "/" : here.path;
            here.limit = limit.value_or(CgroupLimit::unlimited);
            here.used = used.value_or(0);
            here.guaranteed = value("/dmem.min").value_or(0);
            if (!tightest ||
                (here.limit != CgroupLimit::unlimited &&
                 (tightest->limit == CgroupLimit::unlimited || here.room() < tightest->room()))) {
                tightest = std::move(here);
            }
        }
    });
    if (tightest) {
        tightest->capacity =
            dmem_value(read_cgroup_file(place.top + "/dmem.capacity"), pci).value_or(0);
    }
    return tightest;
}

std::uint64_t memory_room(const CgroupPlace& place) {
    std::uint64_t least = CgroupLimit::unlimited;
    for_each_cgroup(place, [&](const std::string& directory) {
        const auto value = [&](const char* file) {
            const std::string text = read_cgroup_file(directory + file);
            std::string_view lines = text;
            return limit_value(next_line(lines));
        };
        const std::optional<std::uint64_t> limit = value("/memory.max");
        const std::optional<std::uint64_t> used = value("/memory.current");
        if (limit && *limit != CgroupLimit::unlimited && used) {
            least = std::min(least, *limit - std::min(*limit, *used));
        }
    });
    return least;
}

std::optional<bool> is_in_own_cgroup(std::uint32_t pid, const std::string& proc) {
    const std::string process = proc + "/" + std::to_string(pid);
    const std::string own_namespace = link_text(proc + "/self/ns/pid");
    const std::string its_namespace = link_text(process + "/ns/pid");
    if (!own_namespace.empty() && !its_namespace.empty() && own_namespace != its_namespace) {
        return false;
    }
    const std::string own = read_cgroup_file(proc + "/self/cgroup");
    const std::string its = read_cgroup_file(process + "/cgroup");
    if (own.empty() || its.empty()) {
        return std::nullopt;
    }
    const std::string_view own_path = cgroup_path(own);
    const std::string_view its_path = cgroup_path(its);
    const bool below = own_path.size() > 1 && its_path.size() > own_path.size() &&
                       its_path.starts_with(own_path) && its_path[own_path.size()] == '/';
    return own == its || below;
}

}  // namespace memlab::interpose
