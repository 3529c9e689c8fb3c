#include "interpose/options/passthrough.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "interpose/options/quantities.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t max_size = std::numeric_limits<std::uint64_t>::max();

/// "a|b" -> "a", leaving "b".
std::string_view next_term(std::string_view& text) {
    const std::size_t bar = text.find('|');
    const std::string_view term = text.substr(0, bar);
    text = bar == std::string_view::npos ? std::string_view() : text.substr(bar + 1);
    return term;
}

/// Parses the text after "size" (">1GiB", "<=4KiB") into an inclusive range.
std::optional<std::pair<std::uint64_t, std::uint64_t>> parse_comparison(std::string_view text) {
    if (text.empty() || (text[0] != '>' && text[0] != '<')) {
        return std::nullopt;
    }
    const bool greater = text[0] == '>';
    const bool or_equal = text.size() > 1 && text[1] == '=';
    std::uint64_t bytes = 0;
    if (!parse_bytes(text.substr(or_equal ? 2 : 1), &bytes)) {
        return std::nullopt;
    }
    if (greater) {
        if (!or_equal && bytes == max_size) {
            return std::nullopt;  // empty range
        }
        return std::pair{or_equal ? bytes : bytes + 1, max_size};
    }
    if (!or_equal && bytes == 0) {
        return std::nullopt;  // empty range
    }
    return std::pair{std::uint64_t{0}, or_equal ? bytes : bytes - 1};
}

}  // namespace

bool Passthrough::parse(std::string_view text) {
    Passthrough parsed;
    while (!text.empty()) {
        const std::string_view term = next_term(text);
        if (term.starts_with("size")) {
            const auto range = parse_comparison(term.substr(4));
            if (!range) {
                return false;
            }
            parsed.sizes_.push_back({range->first, range->second});
        } else if (term.starts_with("site=") && term.size() > 5) {
            parsed.sites_.emplace_back(term.substr(5));
        } else {
            return false;
        }
    }
    *this = std::move(parsed);
    return true;
}

bool Passthrough::matches_size(std::uint64_t bytes) const {
    return std::any_of(sizes_.begin(), sizes_.end(), [bytes](const SizeRange& range) {
        return bytes >= range.min && bytes <= range.max;
    });
}

bool Passthrough::matches_object(std::string_view path) const {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    return std::any_of(sites_.begin(), sites_.end(), [name](const std::string& site) {
        return name.find(site) != std::string_view::npos;
    });
}

}  // namespace memlab::interpose
