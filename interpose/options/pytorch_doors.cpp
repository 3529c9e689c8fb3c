#include "interpose/options/pytorch_doors.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "interpose/options/small_file.hpp"

namespace memlab::interpose {
namespace {

std::string_view folder_of(std::string_view path) {
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

/// "2.6" of libtorch_cpu.so.2.6
std::string version_of_name(std::string_view name) {
    const std::size_t suffix = name.find(".so.");
    const std::string_view digits =
        suffix == std::string_view::npos ? std::string_view() : name.substr(suffix + 4);
    const bool is_version = digits.find('.') != std::string_view::npos &&
                            digits.find_first_not_of("0123456789.") == std::string_view::npos;
    return is_version ? std::string(digits) : std::string();
}

}  // namespace

const char* pytorch_feature_name(PytorchFeature feature) {
    static constexpr const char* names[] = {"tensors", "out-of-memory failures", "forward lines",
                                            "calls of nn.Module"};
    return names[static_cast<std::size_t>(feature)];
}

std::string pytorch_not_read(std::string_view version, PytorchFeature feature,
                             std::string_view why) {
    std::string text = "PyTorch";
    if (!version.empty()) {
        text.append(" ").append(version);
    }
    return text.append(": ")
        .append(pytorch_feature_name(feature))
        .append(" not read: ")
        .append(why);
}

std::string parse_pytorch_version(std::string_view text) {
    constexpr std::string_view key = "__version__ = ";
    const std::size_t at = text.find(key);
    if (at == std::string_view::npos) {
        return {};
    }
    text.remove_prefix(at + key.size());
    if (text.empty() || (text[0] != '\'' && text[0] != '"')) {
        return {};
    }
    const std::string_view version = text.substr(1, text.find_first_of("'\"+\n", 1) - 1);
    const bool plain = std::all_of(version.begin(), version.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '.';
    });
    return plain && version.size() < 32 ? std::string(version) : std::string();
}

std::string pytorch_version_of(const std::string& library) {
    const std::string_view folder = folder_of(library);
    if (folder.ends_with("/lib")) {
        constexpr std::size_t most = 4096;
        std::string version = parse_pytorch_version(
            read_small_file(std::string(folder_of(folder)) + "/version.py", most));
        if (!version.empty()) {
            return version;
        }
    }
    return version_of_name(
        std::string_view(library).substr(folder.empty() ? 0 : folder.size() + 1));
}

}  // namespace memlab::interpose
